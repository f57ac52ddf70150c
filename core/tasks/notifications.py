"""How tasks are shown, and who is told that one has changed.

Source: 2025-11-25 basic/utilities/tasks, "Task Status Notification"; the tasks extension, "Task Status Notifications".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..base.errors import RemoteProtocolError
from ..base.timestamps import format_time
from ..bridge import tasks
from ..downstream.responder import Courier
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.session import Session
from ..state.session import State as SessionState
from ..state.task import Outcome, State, Task
from .table import TaskTable


class Watched(Protocol):
    """The subscriptions of clients without sessions."""

    def tell_task(self, task: str, message: bytes) -> None: ...

    def is_watched(self, task: str) -> bool: ...


class TaskTelling:
    """
    Attributes:
        session_by: the session of a public name, if there still is one.
    """

    def __init__(self, desk: Desk, courier: Courier, table: TaskTable) -> None:
        self.watched: Watched
        self.session_by: Callable[[str], Session | None]
        self._desk = desk
        self._courier = courier
        self._table = table

    def touch(self, task: Task, *, at_unix: float | None = None) -> None:
        """By our own clock: the server's may be another, and what is shown of a time to live goes by ours."""
        task.updated_at_unix = self._desk.now_unix if at_unix is None else at_unix
        task.updated_at = format_time(task.updated_at_unix)

    def shape(self, task: Task, *, state: State | None = None) -> tasks.Task:
        return tasks.Task(
            id=task.id,
            status=(state or task.state).value,
            created_at=task.created_at,
            updated_at=task.updated_at,
            ttl_ms=task.ttl_ms,
            poll_ms=task.poll_ms,
            message=task.message or None,
        )

    def shown(self, task: Task) -> bytes:
        """A task as a client with a session is told it."""
        return tasks.legacy_task(self.shape(task))

    def detailed(self, task: Task, outcome: Outcome | None, *, is_result: bool) -> bytes:
        """A task as a client without one is told it."""
        shape = self.shape(task)
        is_failed = task.state is State.FAILED
        return tasks.modern_detailed(
            shape,
            questions={key: wanted.entry for key, wanted in task.questions.items()},
            result=outcome.data if outcome is not None and task.state is State.COMPLETED else None,
            error=outcome.data if outcome is not None and is_failed else None,
            is_result=is_result,
        )

    def tell_now(self, task: Task, outcome: Outcome | None) -> None:
        """Tell whoever listens to a task what is known of it."""
        if task.state in (State.COMPLETED, State.FAILED) and outcome is None:
            return
        if self.watched.is_watched(task.id):
            try:
                params = self.detailed(task, outcome, is_result=False)
            except RemoteProtocolError as fault:
                self._desk.note("warning", f"how a task ended cannot be told: {fault.message}", task.server)
                return
            self.watched.tell_task(task.id, envelope.encode_notification("notifications/tasks", params))

    def tell(self, task: Task) -> None:
        """Its state is another, or something is said of it."""
        run = self._table.runs.get(task.id)
        if run is not None and run.leg is not None:
            return  # its client does not know it yet
        if not task.is_legacy:
            self.tell_now(task, task.outcome)
            return
        session = self.session_by(task.counted_for)
        if session is not None and session.state is SessionState.READY:
            method = "notifications/tasks/status"
            message = envelope.encode_notification(method, self.shown(task))
            self._courier.deliver(session, method, message, None, about=task.id)
