"""Questions of servers in the course of the proxy's tasks, and clients' answers to them.

A client with a session gets the question as a server request, on the stream of its request for the outcome
(`tasks/result`). Until it sends that, the question waits. A stateless client sees the question in the task
(`tasks/get`), and answers with another request (`tasks/update`).

Source: 2025-11-25 basic/utilities/tasks, "Input Required Status"; the tasks extension, "Task Update Requests".
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..base.events import Headers
from ..bridge import input_requests, related_task
from ..bridge.capabilities import missing
from ..bridge.input_shapes import METHODS
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import PendingQuestion, Session
from ..state.task import Task, TaskQuestion, TaskState
from .notifications import TaskNotifications
from .table import TaskTable


class TaskQuestions:
    """The open questions of all tasks."""

    def __init__(
        self, context: Context, responder: Responder, table: TaskTable, task_notifications: TaskNotifications
    ) -> None:
        self._context = context
        self._responder = responder
        self._table = table
        self._task_notifications = task_notifications

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, exchange: Exchange) -> None:
        """Handles a question of a server in the course of a task. One that cannot be asked is refused at once."""
        task = exchange.task
        assert task is not None
        try:
            refused = self._ask(session, question, params, exchange, task)
        except RemoteProtocolError as fault:
            refused = Frame(error=envelope.error_object(fault.rpc_code, fault.message))
        if refused is not None:
            number = session.record_question(question)
            session.settle_question(number)
            session.router.reply(session, question._replace(number=number), refused, session.headers)

    def _ask(
        self, session: Session, question: PendingQuestion, params: bytes | None, exchange: Exchange, task: Task
    ) -> Frame | None:
        """Returns the refusal for the server if the client cannot be asked; None: the question is open now."""
        if len(task.questions) >= self._context.limits.task_questions_max or task.is_over:
            text = f"{len(task.questions)} questions of one task are open, the most allowed"
            return Frame(error=envelope.error_object(INTERNAL_ERROR, text))
        bare = related_task.without_related(params)
        if session.is_stateless:
            if question.method not in METHODS:
                return Frame(error=input_requests.NOT_ASKED)
            capabilities = b"{}" if exchange.request is None else exchange.request.capabilities
            if missing(capabilities, question.method, params) is not None:
                return input_requests.refusal_of(question.method)
            entry = input_requests.embed(question.method, bare, capabilities=capabilities)
        else:
            entry = related_task.with_related(bare, task.id)
        number = session.record_question(question._replace(of_task=exchange))
        if not session.is_stateless:
            if question.token_raw is not None:
                entry = envelope.replace_progress_token(entry, b"%d" % number)
            entry = envelope.encode_request(b"%d" % number, question.method, entry)
        before = task.state
        task.receive_question(TaskQuestion(number, question.method, entry))
        self._context.timers.cancel(("reply", (session.sid, exchange.key)))
        if question.token_raw is not None:
            self._tick_later(task)
        if before is not task.state:
            task.touch(self._context.now_unix)
            self._task_notifications.tell(task)
        self.put_questions(session, task)
        return None

    def put_questions(self, session: Session, task: Task) -> None:
        """Sends the open questions that have not reached the client on the stream of its `tasks/result`, if it waits
        for one."""
        waiter = self._table.waiter_of(task)
        if not task.is_legacy or waiter is None or waiter.sid != session.sid:
            return
        for wanted in list(task.questions.values()):
            question = session.questions.get(wanted.number)
            if question is None:
                continue
            is_lost = (
                question.stream is not None
                and question.stream.number is None
                and not self._context.is_open(question.stream.channel)
            )
            if wanted.number not in task.told or is_lost:
                task.mark_told(wanted.number)
                self._responder.put_question(session, wanted.number, wanted.entry, waiter)

    def receive_settled_question(self, exchange: Exchange, number: int) -> None:
        """Removes a question that was answered or withdrawn. The last one sets the task back to `working`."""
        task = exchange.task
        if task is None or not task.receive_answer(number):
            return
        if task.state is TaskState.WORKING:
            task.touch(self._context.now_unix)
            self._task_notifications.tell(task)
            run = self._table.runs.get(task.id)
            if run is not None:
                run.session.router.expect_reply(run.session, exchange)

    def answer_questions(self, task: Task, responses: Mapping[str, bytes], headers: Headers) -> None:
        """Sends the answers of a `tasks/update` to the server. Unknown keys are ignored.

        Raises:
            RemoteProtocolError: an answer is malformed. Nothing has changed.
        """
        run = self._table.runs.get(task.id)
        found = [(task.questions[key], response) for key, response in responses.items() if key in task.questions]
        for wanted, response in found:
            input_requests.check_response(wanted.method, response)
        for wanted, response in found:
            question = None if run is None else run.session.settle_question(wanted.number)
            if question is None or run is None:
                continue
            self.receive_settled_question(run.exchange, wanted.number)
            run.session.router.reply(run.session, question, Frame(result=response), headers or run.session.headers)

    def _tick_later(self, task: Task) -> None:
        at = self._context.now + self._context.limits.suspended_call_tick_s
        self._context.timers.set(("task-tick", task.id), at, "sign of life")

    def handle_tick(self, id: str) -> None:
        """Sends progress for the open questions of a task: servers give up on a question after a minute or so without
        it."""
        task, run = self._table.tasks.get(id), self._table.runs.get(id)
        if task is None or run is None or not task.questions:
            return
        for wanted in task.questions.values():
            question = run.session.questions.get(wanted.number)
            if question is not None and question.token_raw is not None:
                run.session.router.tick(run.session, question, task.tick())
        self._tick_later(task)

    def leave_all(self, session: Session, exchange: Exchange) -> None:
        """Forgets the questions of a task that its server goes on with while the proxy stops. They get no answer."""
        for number in [n for n, question in session.questions.items() if question.of_task is exchange]:
            self._responder.forget_question(session, number)

    def drop_all(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Ends the questions of a task that is over: the client's are withdrawn, and the server gets the fallback
        answer, as from a user who closes the form."""
        for number, question in [(n, a) for n, a in session.questions.items() if a.of_task is exchange]:
            self._responder.cancel_question(
                session, number, msgspec.json.encode({"requestId": 0, "reason": "the task is over"})
            )
            # A question with an exchange came from `UpstreamQuestions` or `Rounds`, which end it with the call.
            if question.exchange is None:
                session.router.reply(session, question, input_requests.fallback(question.method), session.headers)
