"""Tasks of other replicas (`Plan.replica`): whichever replica a client asks finds a task by its record.

- A task that is over is answered from its record.
- A task that an HTTP server works on is taken over: the replica that is asked writes its own name into the record, over
  the version that it has read, and goes on polling the server. The replica that had the task notices at its next save,
  which conflicts, and drops it.
- A task that runs in a replica itself stays there. Another replica shows what the record says. Once the replica is gone
  (it has no lease any more), the task is failed in the same way: over the version that was read.

So two replicas never both end a task, however long one of them was paused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR
from ..base.replica import LEASE_PREFIX, ReplicaName, is_minted_or_tagged, tag_of
from ..base.storage import Conflicted, Load, Loaded, Save, Saved, StorageAnswer
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.records import CANCEL_PREFIX, TASK_PREFIX, StoredTask, read
from ..state.session import Session
from ..state.storage_orders import StorageOrders, reason_of
from ..state.task import Task, TaskState
from .local_tasks import BY_CLIENT, NOT_CANCELLED, LocalTasks, lost
from .store import TaskStore
from .table import TaskTable

MIRRORS_MAX: Final = 1024
"""Tasks of other replicas that are kept in memory. A client polls a few. At it: the one that was loaded first is
dropped, and loaded again when a client names it."""
CANCEL_TTL_S: Final = 60.0
"""Lifetime of the record by which a replica asks another one to cancel a task. Its client has an answer long before."""
TRIES_MAX: Final = 3
"""Attempts to take a task over, each on a newer record. At it: the client is told to try again."""
BUSY: Final = "other replicas are changing the task: try again"

_FINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})

Then = Callable[[str], None]
"""Called at the end with the problem of the storage; "" if there is none."""


class _Lease(msgspec.Struct, frozen=True):
    """The part of a replica's lease that names its process. Other parts may be of another release."""

    run: str


class _CancelOrder(msgspec.Struct, frozen=True):
    """The record by which a replica asks another one to cancel a task. `why` is for people."""

    why: str = BY_CLIENT


class ForeignTasks:
    """Loads the tasks that this replica does not have."""

    def __init__(
        self,
        context: Context,
        storage_orders: StorageOrders,
        local_tasks: LocalTasks,
        store: TaskStore,
        table: TaskTable,
    ) -> None:
        self._context = context
        self._storage_orders = storage_orders
        self._local_tasks = local_tasks
        self._store = store
        self._table = table
        self._mirrors: dict[str, None] = {}
        self._own = "" if context.plan.replica is None else context.plan.replica.owner

    def __len__(self) -> int:
        return len(self._mirrors)

    def wait_for_task(self, id: str, then: Then) -> bool:
        """True if the task of this id is looked for in the storage now, and calls `then` at the end. False if it is
        known here, or cannot be in the storage."""
        if not self._own or not is_minted_or_tagged(id):
            return False
        task = self._table.tasks.get(id)
        if task is not None and self._local_tasks.is_unsaved(task):
            self._look_at_end(id, then)
        elif task is not None and (task.is_over or self._local_tasks.is_own(task)):
            return False
        else:
            self._load(id, then, TRIES_MAX)
        return True

    def _look_at_end(self, id: str, then: Then) -> None:
        """Looks whether the end of a task of this replica is stored: other replicas show it from then on."""

        def loaded(answer: StorageAnswer) -> None:
            if not isinstance(answer, Loaded):
                then(reason_of(answer))
                return
            record = _record_in(id, answer.value)
            if record is not None and record.replica == self._own and record.status in _FINAL:
                self._local_tasks.receive_stored_end(id)
            then("")

        self._storage_orders.order(lambda ticket: Load(ticket=ticket, key=StoredTask.key_of(id)), loaded)

    def watch(self, task: Task) -> None:
        """Looks at the record of a task that another replica runs until it is over, while requests wait for it."""
        if not task.is_over and not self._local_tasks.is_own(task):
            at = self._context.now + task.poll_ms / 1000
            self._context.timers.set(("task-elsewhere", task.id), at, "task of another replica")

    def cancel(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Has the replica that runs a task cancel it, by a record that this replica is told of. The request waits until
        the task is over, for at most `Limits.task_look_s`."""

        def saved(answer: StorageAnswer) -> None:
            if exchange.is_over:
                return
            if not isinstance(answer, Saved):
                self._local_tasks.answers.refuse(session, exchange, INTERNAL_ERROR, f"{NOT_CANCELLED}: try again")
                return
            seen = self._table.tasks.get(task.id, task)  # a newer record of it may have been reported meanwhile
            self._local_tasks.answers.wait(session, exchange, seen)
            if seen.is_over or seen.id not in self._table.tasks:
                self._local_tasks.answer_waiting(seen)
            self.watch(seen)

        self._ask_to_cancel(task, BY_CLIENT, saved)

    def cancel_by_operator(self, task: Task, why: str) -> None:
        """Has the replica that runs a task cancel it, as `cancel` does."""

        def saved(answer: StorageAnswer) -> None:
            if not isinstance(answer, Saved):
                text = f"a task could not be cancelled, try again: {reason_of(answer)}"
                self._context.note("warning", text, task.server)

        self._ask_to_cancel(task, why, saved)

    def _ask_to_cancel(self, task: Task, why: str, then: Callable[[StorageAnswer], None]) -> None:
        key, at_unix = CANCEL_PREFIX + task.id, self._context.now_unix + CANCEL_TTL_S
        value = msgspec.json.encode(_CancelOrder(why))
        self._storage_orders.order(lambda ticket: Save(ticket, key, value, at_unix), then)

    def handle_elsewhere(self, id: str) -> None:
        """Looks at the record of a task that requests wait for."""

        def seen(problem: str) -> None:
            task = self._table.tasks.get(id)
            if task is not None and self._table.waiters.get(id):
                self._local_tasks.answer_waiting(task)
                self.watch(task)

        task = self._table.tasks.get(id)
        if task is not None and self._table.waiters.get(id):
            self._load(id, seen, TRIES_MAX)

    def receive_record(self, key: str, value: bytes | None) -> None:
        """Handles a record that another replica has written or removed."""
        if key.startswith(CANCEL_PREFIX) and value is not None:
            task = self._table.tasks.get(key.removeprefix(CANCEL_PREFIX))
            order = read(value, _CancelOrder)
            if order is not None and task is not None and self._local_tasks.is_own(task) and not task.is_over:
                self._local_tasks.cancel(task, order.why)
        if not key.startswith(TASK_PREFIX):
            return
        id = key.removeprefix(TASK_PREFIX)
        task, record = self._table.tasks.get(id), _record_in(id, value)
        if task is not None and self._local_tasks.is_own(task):
            return  # if it is another's now, the next save conflicts
        if record is not None and record.replica != self._own:
            self._mirror(record)
            self._local_tasks.answer_waiting(self._table.tasks[id])
        elif value is None and task is not None:
            self._local_tasks.drop(task)

    # --- Records ----------------------------------------------------------------------------------------------------

    def _load(self, id: str, then: Then, tries: int) -> None:
        self._storage_orders.order(
            lambda ticket: Load(ticket=ticket, key=StoredTask.key_of(id)), partial(self._loaded, id, then, tries)
        )

    def _loaded(self, id: str, then: Then, tries: int, answer: StorageAnswer) -> None:
        task = self._table.tasks.get(id)
        if not isinstance(answer, Loaded):
            then(reason_of(answer))
            return
        if task is not None and (task.is_over or self._local_tasks.is_own(task)):
            then("")  # another request has taken it over meanwhile
            return
        record = _record_in(id, answer.value)
        if record is None:
            if task is not None:
                self._local_tasks.drop(task)
            then("")
        elif record.status in _FINAL:
            if record.replica == self._own:  # a save was carried out whose answer has not come
                self._store.receive_version(record.key, answer.version)
            self._mirror(record)
            then("")
        elif record.is_remote and record.server in self._context.servers:
            self._take(msgspec.structs.replace(record, replica=self._own), answer.version, then, tries)
        elif record.replica == self._own:  # its making was given up
            then("")
        else:
            self._look_at_owner(record, answer.version, then, tries)

    def _look_at_owner(self, record: StoredTask, version: int, then: Then, tries: int) -> None:
        tag = tag_of(record.replica)

        def loaded(answer: StorageAnswer) -> None:
            if not isinstance(answer, Loaded):
                then(reason_of(answer))
                return
            lease = read(answer.value, _Lease)
            if lease is not None and ReplicaName(tag, lease.run).owner == record.replica:
                self._mirror(record)
                then("")
            else:
                self._take(lost(record, self._own, self._context.now_unix), version, then, tries)

        self._storage_orders.order(lambda ticket: Load(ticket=ticket, key=LEASE_PREFIX + tag), loaded)

    def _take(self, record: StoredTask, version: int, then: Then, tries: int) -> None:
        """Takes a task over, by a record that replaces the one that was read."""

        def saved(answer: StorageAnswer) -> None:
            if isinstance(answer, Saved):
                self._store.receive_version(record.key, answer.version)
                self._mirrors.pop(record.id, None)
                self._local_tasks.receive_record(record)
                then("")
            elif isinstance(answer, Conflicted):
                if tries > 1:
                    self._load(record.id, then, tries - 1)
                else:
                    then(BUSY)
            else:
                then(reason_of(answer))

        self._storage_orders.order(
            lambda ticket: Save(
                ticket=ticket,
                key=record.key,
                value=msgspec.json.encode(record),
                expires_at_unix=record.expires_at_unix,
                if_version=version,
            ),
            saved,
        )

    def _mirror(self, record: StoredTask) -> None:
        self._mirrors.pop(record.id, None)
        self._mirrors[record.id] = None
        self._local_tasks.receive_record(record)
        for id in list(self._mirrors):
            task = self._table.tasks.get(id)
            if task is None or self._local_tasks.is_own(task):
                del self._mirrors[id]
            elif len(self._mirrors) > MIRRORS_MAX and not self._table.waiters.get(id):
                del self._mirrors[id]
                self._local_tasks.drop(task)
            else:
                break


def _record_in(id: str, value: bytes | None) -> StoredTask | None:
    """Returns the record of a task; None if there is none, or it is of another release."""
    record = read(value, StoredTask)
    return record if record is not None and record.id == id else None
