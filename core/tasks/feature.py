"""The parts of this room, constructed in order, as one feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..base.ids import ChannelId
from ..downstream.downstream import Downstream
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.feature import Feature
from ..state.records import StoredTask, TaskStatus
from ..state.session import Session
from ..state.storage_orders import StorageOrders
from ..state.task import Task
from ..subscriptions.subscriptions import Subscriptions
from ..upstream.upstream import Upstream
from .augmentation import TaskAugmentation, TaskRoom, TaskWishes
from .foreign_tasks import ForeignTasks
from .local_tasks import LocalTasks
from .notifications import TaskNotifications
from .ownership import is_shown, owner_of
from .quota import SHARE_TIMER
from .requests import TaskRequests
from .store import TaskStore
from .table import TaskTable
from .upstream_tasks import UpstreamTasks


class Tasks(Feature):
    """Tasks, ours and servers'.

    Args:
        stored: the records of tasks that earlier runs left.
    """

    def __init__(
        self,
        context: Context,
        storage_orders: StorageOrders,
        downstream: Downstream,
        upstream: Upstream,
        subscriptions: Subscriptions,
        stored: Iterable[StoredTask],
    ) -> None:
        responder, while_open = downstream.responder, downstream.sessions.while_open
        self._table = table = TaskTable()
        store = TaskStore(context, storage_orders)
        notifications = TaskNotifications(context, downstream, subscriptions.client_listens, table)
        self._local_tasks = local_tasks = LocalTasks(context, storage_orders, responder, store, table, notifications)
        upstream_tasks = UpstreamTasks(context, upstream.writer, responder, upstream.handshaker, local_tasks)
        self._foreign_tasks = foreign_tasks = ForeignTasks(context, storage_orders, local_tasks, store, table)
        self._requests = requests = TaskRequests(context, local_tasks, store, table, upstream_tasks, foreign_tasks)
        self._wishes = wishes = TaskWishes(context, responder, local_tasks)
        self.interceptors = (
            requests,
            TaskRoom(context, local_tasks),
            wishes,
            TaskAugmentation(context, local_tasks, upstream.tool_discovery),
            upstream_tasks,
        )
        self.timers = {
            "adopt": while_open(local_tasks.handle_adopt),
            "look": while_open(upstream_tasks.handle_look),
            "task": local_tasks.handle_expiry,
            SHARE_TIMER: local_tasks.task_quota.handle_share,
            "task-tick": local_tasks.task_questions.handle_tick,
            "task-save": local_tasks.handle_unsaved,
            "task-look": requests.handle_look,
            "task-elsewhere": foreign_tasks.handle_elsewhere,
        }
        local_tasks.restore(stored, context.servers)

    def report(self) -> tuple[TaskStatus, ...]:
        """All tasks, the oldest first."""
        return self._local_tasks.report()

    def status_of(self, id: str) -> TaskStatus | None:
        """The task of this id; None if there is none."""
        return self._local_tasks.status_of(id)

    def list_of(self, session: Session, exchange: Exchange, legs: Mapping[str, str]) -> None:
        """See `TaskDirectory`."""
        self._requests.list_tasks(session, exchange, lambda task: is_shown(session, task, legs))

    def wait_for_task(self, id: str, then: Callable[[str], None]) -> bool:
        """See `TaskDirectory`."""
        return self._foreign_tasks.wait_for_task(id, then)

    def server_of(self, session: Session, id: str) -> str | None:
        """See `TaskDirectory`."""
        task = self._table.tasks.get(id)
        return None if task is None or task.owner != owner_of(session, task.server) else task.server

    def receive_call(self, session: Session, exchange: Exchange) -> None:
        """See `TaskDirectory`."""
        self._wishes.receive_own(session, exchange)

    def receive_request(self, session: Session, exchange: Exchange) -> None:
        """See `TaskDirectory`."""
        self._requests.receive_own(session, exchange)

    def receive_record(self, key: str, value: bytes | None) -> None:
        self._foreign_tasks.receive_record(key, value)

    def find(self, id: str) -> Task | None:
        """Returns a task by its id."""
        return self._table.tasks.get(id)

    def cancel(self, task: Task, why: str) -> None:
        """Cancels a task that is not over, or has the replica that runs it do so."""
        if self._local_tasks.is_own(task):
            self._local_tasks.cancel(task, why)
        else:
            self._foreign_tasks.cancel_by_operator(task, why)

    def receive_stop(self) -> None:
        self._local_tasks.stop()

    def receive_closing(self, session: Session) -> None:
        self._local_tasks.close_session(session)

    def owes(self, channel: ChannelId) -> bool:
        return self._local_tasks.owes(channel)
