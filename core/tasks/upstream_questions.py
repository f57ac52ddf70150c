"""What servers without sessions ask in the course of their tasks: each question once, and each answer once.

They list what they ask whenever they are looked at, and are told the answers with requests of their own
(`tasks/update`). Whoever the call belongs to is asked as if the call had asked.

Source: the tasks extension, "Task Update Requests".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ..base.errors import RemoteProtocolError
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.input_requests import Question
from ..downstream.responder import Courier
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.exchange import State as ExchangeState
from ..state.link import Link
from ..state.session import Ask, Session
from ..state.upstream_session import State
from ..state.upstream_task import Remote

OVER: Final = msgspec.json.encode({"requestId": 0, "reason": "what asked is over"})

UPDATE: Final = "task-update"


class Looking(Protocol):
    """Who looks at tasks."""

    def look_later(self, link: Link, exchange: Exchange) -> None: ...

    def run(
        self, link: Link, exchange: Exchange, purpose: str, method: str, params: object, about: str = ""
    ) -> int: ...


class RemoteAsking:
    """
    Args:
        roots_of: the JSON result of `roots/list` in a session, for servers whose roots are not the client's.
    """

    def __init__(self, desk: Desk, courier: Courier, looking: Looking, *, roots_of: Callable[[Session], bytes]) -> None:
        self.looking = looking
        self._desk = desk
        self._courier = courier
        self._roots_of = roots_of

    def ask_new(self, link: Link, exchange: Exchange, remote: Remote, asked: tuple[Question, ...]) -> None:
        keys = {question.key for question in asked}
        for number, question in list(remote.open.items()):
            if question.key not in keys:
                del remote.open[number]
                reason = msgspec.json.encode({"requestId": 0, "reason": "it is not asked any more"})
                self._courier.unask(link.session_of(exchange), number, reason)
        for question in asked:
            if question.key in remote.asked:
                continue
            if len(remote.open) >= self._desk.limits.task_questions_max or len(remote.asked) >= self._asked_max:
                self._desk.note("warning", "a task asks more than can be asked: left unanswered", link.plan.id)
                return
            remote.asked.add(question.key)
            try:
                self._ask(link, exchange, remote, question)
            except RemoteProtocolError as fault:
                self._desk.note("warning", f"a task asks what cannot be shown: {fault.message}", link.plan.id)

    def settle(self, link: Link, exchange: Exchange, remote: Remote) -> None:
        """It is over: a client that was asked in the course of a call is asked no more. Who knows the task hears so by
        that."""
        session = link.session_of(exchange)
        for number in list(remote.open):
            ask = session.asks.get(number)
            if ask is not None and ask.of_task is None and not session.is_stateless:
                self._courier.unask(session, number, OVER)

    @property
    def _asked_max(self) -> int:
        return self._desk.limits.task_questions_max * self._desk.limits.rounds_max

    def _ask(self, link: Link, exchange: Exchange, remote: Remote, question: Question) -> None:
        session = link.session_of(exchange)
        if question.method == "roots/list" and link.plan.owns_roots:
            self._answer(link, exchange, remote, question.key, self._roots_of(session))
            return
        who = exchange.leg or session.client
        if missing(who.capabilities, question.method, question.params) is not None:
            self._desk.note("info", f"a task asks for {question.method}, which its client does not offer", link.plan.id)
            return  # a refusal is an error, and there is no word for it here
        params = question.params
        if not session.is_stateless:
            able = session.client.capabilities
            visit = self._desk.mint()
            params = input_requests.shown(
                question.method, params, session.features, elicitation_id=visit, capabilities=able
            )
        number = session.last_ask + 1
        remote.open[number] = question
        ask = Ask(b"null", None, question.method, link.upstream.incarnation, None, exchange=exchange, number=number)
        self._courier.ask(session, ask, params, exchange)

    def receive_answer(self, link: Link, number: int, exchange: Exchange, answer: Frame) -> None:
        """The client answered a question, or could not be asked."""
        remote, session = exchange.remote, link.session_of(exchange)
        question = None if remote is None else remote.open.pop(number, None)
        if remote is None or question is None or exchange.state is not ExchangeState.TASKED:
            return
        result = answer.result
        if result is not None and not session.is_stateless:
            try:
                result = input_requests.answered(question.method, question.params, session.features, result)
                input_requests.check_response(question.method, result)
            except RemoteProtocolError as fault:
                self._desk.note("info", f"a client's answer cannot be given on: {fault.message}", link.plan.id)
                result = None
        if result is None:
            kind, said = input_requests.FALLBACKS.get(question.method, ("error", b""))
            if kind != "result":
                return  # there is no word for it: the server goes on without, or gives up
            result = said
        self._answer(link, exchange, remote, question.key, result)

    def _answer(self, link: Link, exchange: Exchange, remote: Remote, key: str, result: bytes) -> None:
        remote.answers[key] = result
        remote.pause_s = remote.poll_s
        self.send(link, exchange)
        if not remote.is_looked_at:
            self.looking.look_later(link, exchange)

    def send(self, link: Link, exchange: Exchange) -> None:
        remote = exchange.remote
        assert remote is not None
        if link.upstream.state is not State.READY:
            return
        for key, result in remote.answers.items():
            if key not in remote.sending:
                remote.sending.add(key)
                params = {"taskId": remote.id, "inputResponses": {key: msgspec.Raw(result)}}
                self.looking.run(link, exchange, UPDATE, "tasks/update", params, about=key)
