"""Responses to the requests of clients about tasks, and the requests that wait for a change of a task."""

from __future__ import annotations

from typing import Final

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteProtocolError
from ..bridge import related_task
from ..bridge.discovery import server_info_of
from ..bridge.results import named
from ..bridge.tasks import UNKNOWN
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import Session
from ..state.task import Outcome, Task, TaskState
from .notifications import TaskNotifications
from .store import TaskStore
from .table import TaskTable

ACKNOWLEDGED: Final = b'{"resultType":"complete"}'

CANCELLED: Final = "the task was cancelled"


class TaskAnswers:
    """Answers requests about tasks."""

    def __init__(
        self,
        context: Context,
        responder: Responder,
        store: TaskStore,
        table: TaskTable,
        task_notifications: TaskNotifications,
    ) -> None:
        self._context = context
        self._responder = responder
        self._store = store
        self._table = table
        self._task_notifications = task_notifications

    # --- Requests that wait -----------------------------------------------------------------------------------------

    def wait(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Lets a request wait for a change of a task: a `tasks/result` until that is over, any other for at most
        `Limits.task_look_s`."""
        self._table.add_waiter(task, session, exchange)
        if exchange.method != "tasks/result":
            at = self._context.now + self._context.limits.task_look_s
            self._context.timers.set(("task-look", task.id), at, "look at a task")

    def waiting(self, task: Task) -> list[tuple[Session, Exchange]]:
        """Returns the requests that can be answered now: the task's state is known, it is over, or it was removed. A
        `tasks/result` waits until it is over."""
        is_ended = task.is_over or self._is_gone(task)
        return [
            (session, exchange)
            for session, exchange in self._table.waiters.get(task.id, ())
            if is_ended or exchange.method != "tasks/result"
        ]

    def forget(self, exchange: Exchange) -> None:
        """Removes a request from those that wait for a task."""
        id = exchange.stop_waiting()
        if id is None:
            return
        kept = self._table.remove_waiter(id, exchange)
        if all(other.method == "tasks/result" for _, other in kept):
            self._context.timers.cancel(("task-look", id))

    def _is_gone(self, task: Task) -> bool:
        return self._table.tasks.get(task.id) is not task

    # --- Responses --------------------------------------------------------------------------------------------------

    def answer(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Answers a `tasks/get` or a `tasks/result`."""
        if self._is_gone(task):
            self.refuse(session, exchange, INVALID_PARAMS, UNKNOWN)
        elif exchange.method == "tasks/result":
            self._send_outcome(session, exchange, task)
        else:
            self._show(session, exchange, task)

    def _show(self, session: Session, exchange: Exchange, task: Task) -> None:
        if not session.is_stateless:
            self.send(session, exchange, self._task_notifications.shown(task))
            return

        def show(outcome: Outcome | None, fault: str) -> None:
            if exchange.is_over:
                return
            if outcome is None and task.state in (TaskState.COMPLETED, TaskState.FAILED):
                self.refuse(session, exchange, INTERNAL_ERROR, f"what task {task.id} came to cannot be read: {fault}")
                return
            try:
                shown = self._task_notifications.detailed(task, outcome, is_result=True)
            except RemoteProtocolError as error:
                self.refuse(session, exchange, INTERNAL_ERROR, f"the result cannot be shown: {error.message}")
                return
            self.send(session, exchange, shown)

        self._store.get(task, show)

    def _send_outcome(self, session: Session, exchange: Exchange, task: Task) -> None:
        if task.state is TaskState.CANCELLED:
            self.refuse(session, exchange, INTERNAL_ERROR, f"{CANCELLED}: {task.message}")
            return

        def send(outcome: Outcome | None, fault: str) -> None:
            if exchange.is_over:
                return
            if outcome is None:
                self.refuse(session, exchange, INTERNAL_ERROR, f"the result of task {task.id} cannot be had: {fault}")
            elif outcome.is_error:
                self._responder.answer(session, exchange, envelope.encode_error_raw(exchange.id_raw, outcome.data))
            else:
                self._send_related(session, exchange, task, outcome.data)

        self._store.get(task, send)

    def _send_related(self, session: Session, exchange: Exchange, task: Task, result: bytes) -> None:
        try:
            self.send(session, exchange, related_task.with_related(result, task.id))
        except RemoteProtocolError as fault:
            text = f"the result of task {task.id} cannot be shown: {fault.message}"
            self.refuse(session, exchange, INTERNAL_ERROR, text)

    def acknowledge_cancel(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Answers a `tasks/cancel` that was carried out."""
        shown = ACKNOWLEDGED if session.is_stateless else self._task_notifications.shown(task)
        self.send(session, exchange, shown)

    def send(self, session: Session, exchange: Exchange, result: bytes) -> None:
        """Answers a request with a result. A stateless client is told the server's name with it."""
        if session.is_stateless:
            result = named(result, server_info_of(session.greeting))
        self._responder.answer(session, exchange, envelope.encode_result(exchange.id_raw, result))

    def refuse(self, session: Session, exchange: Exchange, code: int, text: str, data: object = None) -> None:
        """Answers a request with an error."""
        self._responder.answer(session, exchange, envelope.encode_error(exchange.id_raw, code, text, data))
