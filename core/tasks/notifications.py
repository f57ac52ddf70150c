"""Formats of tasks for both eras, and the notifications of their status.

Source: 2025-11-25 basic/utilities/tasks, "Task Status Notification"; the tasks extension, "Task Status Notifications".
"""

from __future__ import annotations

from ..base.errors import RemoteProtocolError
from ..bridge import tasks
from ..downstream.downstream import Downstream
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.session import SessionState
from ..state.task import Outcome, Task, TaskState
from ..subscriptions.client_listens import ClientListens
from .table import TaskTable


class TaskNotifications:
    """Formats tasks for clients, and notifies them of changes."""

    def __init__(
        self, context: Context, downstream: Downstream, client_listens: ClientListens, table: TaskTable
    ) -> None:
        self._context = context
        self._responder = downstream.responder
        self._sessions = downstream.sessions
        self._client_listens = client_listens
        self._table = table

    def is_watched(self, task: Task) -> bool:
        """True if a subscription of a stateless client names the task."""
        return self._client_listens.is_watched(task.id)

    def shape(self, task: Task, *, state: TaskState | None = None) -> tasks.TaskFields:
        return tasks.TaskFields(
            id=task.id,
            status=(state or task.state).value,
            created_at=task.created_at,
            updated_at=task.updated_at,
            ttl_ms=task.ttl_ms,
            poll_ms=task.poll_ms,
            message=task.message or None,
        )

    def shown(self, task: Task) -> bytes:
        """Returns the JSON of a `Task` of 2025-11-25."""
        return tasks.legacy_task(self.shape(task))

    def detailed(self, task: Task, outcome: Outcome | None, *, is_result: bool) -> bytes:
        """Returns the JSON of a `DetailedTask` of the extension, with its open questions, its result or its error.

        Args:
            is_result: for the result of `tasks/get`, not for a notification.
        """
        shape = self.shape(task)
        is_failed = task.state is TaskState.FAILED
        return tasks.modern_detailed(
            shape,
            questions={key: wanted.entry for key, wanted in task.questions.items()},
            result=outcome.data if outcome is not None and task.state is TaskState.COMPLETED else None,
            error=outcome.data if outcome is not None and is_failed else None,
            is_result=is_result,
        )

    def tell_now(self, task: Task, outcome: Outcome | None) -> None:
        """Sends the present state of a task to the subscriptions that name it. If it is over, `outcome` must be known,
        or nothing is sent."""
        if task.state in (TaskState.COMPLETED, TaskState.FAILED) and outcome is None:
            return
        if self.is_watched(task):
            try:
                params = self.detailed(task, outcome, is_result=False)
            except RemoteProtocolError as fault:
                self._context.note("warning", f"how a task ended cannot be told: {fault.message}", task.server)
                return
            self._client_listens.tell_task(task.id, envelope.encode_notification("notifications/tasks", params))

    def tell(self, task: Task) -> None:
        """Notifies the client of a change in a task's status or status message."""
        run = self._table.runs.get(task.id)
        if run is not None and run.request is not None:
            return  # its client has no handle yet
        if not task.is_legacy:
            self.tell_now(task, task.outcome)
            return
        session = self._sessions.by_sid(task.counted_for)
        if session is not None and session.state is SessionState.READY:
            method = "notifications/tasks/status"
            message = envelope.encode_notification(method, self.shown(task))
            self._responder.deliver(session, method, message, None, about=task.id)
