"""What servers ask in the course of tasks, and what clients answer.

A client with a session is asked on the stream of its request for the outcome (`tasks/result`), as it expects; until it
waits for that, the question waits. One without is shown the question with the task (`tasks/get`), and answers with
another request (`tasks/update`).

Source: 2025-11-25 basic/utilities/tasks, "Input Required Status"; the tasks extension, "Task Update Requests".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from ..base.effects import Headers
from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..bridge import input_requests, related_task
from ..bridge.capabilities import missing
from ..bridge.input_shapes import METHODS
from ..downstream.responder import Courier
from ..input_required.suspended_calls import NOT_ASKED, fallback, refusal_of
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.session import Ask, Session
from ..state.task import State, Task, Wanted
from .notifications import TaskTelling
from .table import TaskTable


class Upward(Protocol):
    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None: ...

    def expect_reply(self, session: Session, exchange: Exchange) -> None: ...


class TaskAsking:
    """The questions of all tasks."""

    def __init__(self, desk: Desk, courier: Courier, table: TaskTable, telling: TaskTelling) -> None:
        self.up: Upward
        self._desk = desk
        self._courier = courier
        self._table = table
        self._telling = telling

    def ask(self, session: Session, ask: Ask, params: bytes | None, exchange: Exchange) -> None:
        """The server asks in the course of a task."""
        task = exchange.task
        assert task is not None
        try:
            refused = self._ask(session, ask, params, exchange, task)
        except RemoteProtocolError as fault:
            refused = Frame(error=envelope.error_object(fault.rpc_code, fault.message))
        if refused is not None:
            number = session.record_ask(ask)
            del session.asks[number]
            self.up.reply(session, ask._replace(number=number), refused, session.headers)

    def _ask(self, session: Session, ask: Ask, params: bytes | None, exchange: Exchange, task: Task) -> Frame | None:
        """Returns what the server is told if nobody can be asked."""
        if len(task.questions) >= self._desk.limits.task_questions_max or task.is_over:
            text = f"{len(task.questions)} questions of one task are open, the most allowed"
            return Frame(error=envelope.error_object(INTERNAL_ERROR, text))
        bare = related_task.without_related(params)
        if session.is_stateless:
            if ask.method not in METHODS:
                return Frame(error=NOT_ASKED)
            able = b"{}" if exchange.leg is None else exchange.leg.capabilities
            if missing(able, ask.method, params) is not None:
                return refusal_of(ask.method)
            entry = input_requests.embed(ask.method, bare, capabilities=able)
        else:
            entry = related_task.with_related(bare, task.id)
        number = session.record_ask(ask._replace(of_task=exchange))
        if not session.is_stateless:
            if ask.token_raw is not None:
                entry = envelope.replace_progress_token(entry, b"%d" % number)
            entry = envelope.encode_request(b"%d" % number, ask.method, entry)
        before = task.state
        task.receive_question(Wanted(number, ask.method, entry))
        self._desk.timers.cancel(("reply", (session.sid, exchange.key)))
        if ask.token_raw is not None:
            self._tick_later(task)
        if before is not task.state:
            self._telling.touch(task)
            self._telling.tell(task)
        self.put_questions(session, task)
        return None

    def put_questions(self, session: Session, task: Task) -> None:
        """The client waits for the outcome: on that request's stream it is asked what has not reached it yet."""
        waiter = self._table.waiter_of(task)
        if not task.is_legacy or waiter is None or waiter.sid != session.sid:
            return
        for wanted in list(task.questions.values()):
            ask = session.asks.get(wanted.number)
            if ask is None:
                continue
            is_lost = (
                ask.stream is not None and ask.stream.number is None and not self._desk.is_open(ask.stream.channel)
            )
            if wanted.number not in task.told or is_lost:
                task.told.add(wanted.number)
                self._courier.put_question(session, wanted.number, wanted.entry, waiter)

    def receive_settled_ask(self, exchange: Exchange, number: int) -> None:
        """A question was answered, or withdrawn."""
        task = exchange.task
        if task is None or not task.receive_answer(number):
            return
        if task.state is State.WORKING:
            self._telling.touch(task)
            self._telling.tell(task)
            run = self._table.runs.get(task.id)
            if run is not None:
                self.up.expect_reply(run.session, exchange)

    def answer_questions(self, task: Task, responses: Mapping[str, bytes], headers: Headers) -> None:
        """A client without a session answers some of them.

        Raises:
            RemoteProtocolError: an answer has not the form it must have. Nothing has changed.
        """
        run = self._table.runs.get(task.id)
        found = [(task.questions[key], response) for key, response in responses.items() if key in task.questions]
        for wanted, response in found:
            input_requests.check_response(wanted.method, response)
        for wanted, response in found:
            ask = None if run is None else run.session.asks.pop(wanted.number, None)
            if ask is None or run is None:
                continue
            self.receive_settled_ask(run.exchange, wanted.number)
            self.up.reply(run.session, ask, Frame(result=response), headers or run.session.headers)

    def withdraw(self, session: Session, number: int) -> bool:
        """The server withdrew a question to a client without a session. False if it is none of a task."""
        ask = session.asks.get(number)
        if ask is None or ask.of_task is None:
            return False
        del session.asks[number]
        self.receive_settled_ask(ask.of_task, number)
        return True

    def _tick_later(self, task: Task) -> None:
        at = self._desk.now + self._desk.limits.park_tick_s
        self._desk.timers.set(("task-tick", task.id), at, "sign of life")

    def handle_tick(self, id: str, tick: Callable[[Session, Ask, int], None]) -> None:
        """Servers give up on a question after a minute or so, unless they hear of progress."""
        task, run = self._table.tasks.get(id), self._table.runs.get(id)
        if task is None or run is None or not task.questions:
            return
        for wanted in task.questions.values():
            ask = run.session.asks.get(wanted.number)
            if ask is not None and ask.token_raw is not None:
                task.ticks += 1
                tick(run.session, ask, task.ticks)
        self._tick_later(task)

    def leave_all(self, session: Session, exchange: Exchange) -> None:
        """The server goes on without us: nobody answers in its client's stead."""
        for number in [n for n, ask in session.asks.items() if ask.of_task is exchange]:
            self._courier.forget_ask(session, number)

    def drop_all(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Whoever asked hears what a client would say that closes the form."""
        for number, ask in [(n, a) for n, a in session.asks.items() if a.of_task is exchange]:
            self._courier.unask(session, number, msgspec.json.encode({"requestId": 0, "reason": "the task is over"}))
            if ask.exchange is None:  # else whoever made it a question of the client's is told that the call is over
                self.up.reply(session, ask, fallback(ask.method), session.headers)
