"""Questions of stateless servers in the course of their tasks: each is asked once, and answered once.

The server lists its open questions in every result of `tasks/get`, and takes the answers with `tasks/update`. The
client of the call is asked as if the call itself had asked.

Source: the tasks extension, "Task Update Requests".
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.input_requests import Question
from ..downstream.responder import Responder
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeState
from ..state.link import UPDATE, Link
from ..state.session import PendingQuestion
from ..state.upstream_session import UpstreamSessionState
from ..state.upstream_task import UpstreamTask
from ..upstream.roots import roots_of
from .polling import TaskPolling

OVER: Final = msgspec.json.encode({"requestId": 0, "reason": "what asked is over"})


class UpstreamQuestions:
    """The questions of all tasks of stateless servers."""

    def __init__(self, context: Context, responder: Responder, polling: TaskPolling) -> None:
        self._context = context
        self._responder = responder
        self._polling = polling

    def ask_new(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, asked: tuple[Question, ...]) -> None:
        """Asks those of a task's open questions that were not asked before, and withdraws those that are not open any
        more. At most `Limits.task_questions_max` may be open at once, and that times `Limits.rounds_max` asked in all:
        others are noted and left unanswered."""
        keys = {question.key for question in asked}
        for number, question in list(upstream_task.open.items()):
            if question.key not in keys:
                upstream_task.take_question(number)
                reason = msgspec.json.encode({"requestId": 0, "reason": "it is not asked any more"})
                self._responder.cancel_question(link.session_of(exchange), number, reason)
        for question in asked:
            if question.key in upstream_task.asked:
                continue
            if (
                len(upstream_task.open) >= self._context.limits.task_questions_max
                or len(upstream_task.asked) >= self._asked_max
            ):
                self._context.note("warning", "a task asks more than can be asked: left unanswered", link.plan.id)
                return
            upstream_task.mark_asked(question.key)
            try:
                self._ask(link, exchange, upstream_task, question)
            except RemoteProtocolError as fault:
                self._context.note("warning", f"a task asks what cannot be shown: {fault.message}", link.plan.id)

    def settle(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask) -> None:
        """Withdraws the open questions of a task that is over. A client that knows the task sees them end with it."""
        session = link.session_of(exchange)
        for number in list(upstream_task.open):
            question = session.questions.get(number)
            if question is not None and question.of_task is None and not session.is_stateless:
                self._responder.cancel_question(session, number, OVER)

    @property
    def _asked_max(self) -> int:
        return self._context.limits.task_questions_max * self._context.limits.rounds_max

    def _ask(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, question: Question) -> None:
        session = link.session_of(exchange)
        if question.method == "roots/list" and link.plan.owns_roots:
            self._answer(link, exchange, upstream_task, question.key, roots_of(self._context, session))
            return
        client = exchange.request or session.client
        if missing(client.capabilities, question.method, question.params) is not None:
            self._context.note(
                "info", f"a task asks for {question.method}, which its client does not offer", link.plan.id
            )
            return  # a refusal would be an error, for which `tasks/update` has no form
        params = question.params
        if not session.is_stateless:
            capabilities = session.client.capabilities
            elicitation_id = self._context.mint()
            params = input_requests.shown(
                question.method, params, session.features, elicitation_id=elicitation_id, capabilities=capabilities
            )
        number = session.last_question + 1
        upstream_task.add_question(number, question)
        pending = PendingQuestion(
            b"null", None, question.method, link.upstream.incarnation, None, exchange=exchange, number=number
        )
        self._responder.ask(session, pending, params, exchange)

    def receive_answer(self, link: Link, number: int, exchange: Exchange, answer: Frame) -> None:
        """Handles the client's response to a question, or an error of ours in place of it. An error becomes the
        fallback answer, or none at all."""
        upstream_task, session = exchange.upstream_task, link.session_of(exchange)
        question = None if upstream_task is None else upstream_task.take_question(number)
        if upstream_task is None or question is None or exchange.state is not ExchangeState.TASKED:
            return
        result = answer.result
        if result is not None and not session.is_stateless:
            try:
                result = input_requests.answered(question.method, question.params, session.features, result)
                input_requests.check_response(question.method, result)
            except RemoteProtocolError as fault:
                self._context.note("info", f"a client's answer cannot be given on: {fault.message}", link.plan.id)
                result = None
        if result is None:
            kind, body = input_requests.FALLBACKS.get(question.method, ("error", b""))
            if kind != "result":
                return  # `tasks/update` has no form for an error: the server goes on without an answer, or gives up
            result = body
        self._answer(link, exchange, upstream_task, question.key, result)

    def _answer(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, key: str, result: bytes) -> None:
        upstream_task.receive_answer(key, result)
        self.send(link, exchange)
        if not upstream_task.is_looked_at:
            self._polling.poll_later(exchange)

    def send(self, link: Link, exchange: Exchange) -> None:
        """Sends each answer that is not on its way in a `tasks/update` of its own, if the server is ready. An answer
        that failed to arrive is sent again with the next poll."""
        upstream_task = exchange.upstream_task
        assert upstream_task is not None
        if link.upstream.state is not UpstreamSessionState.READY:
            return
        for key, result in upstream_task.take_unsent():
            params = {"taskId": upstream_task.id, "inputResponses": {key: msgspec.Raw(result)}}
            self._polling.run(link, exchange, UPDATE, "tasks/update", params, about=key)
