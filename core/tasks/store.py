"""The storage of tasks: one record for each, and a blob for an outcome that is too large for the record.

Records of one task are written one after the other, so that the last one stays: a storage may carry out orders
concurrently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..base.storage import (
    Collect,
    Collected,
    Conflicted,
    Discard,
    Fetch,
    Fetched,
    Forget,
    InlineSource,
    Load,
    Loaded,
    Save,
    Saved,
    StorageAnswer,
    StorageFailed,
)
from ..base.timestamps import format_time
from ..state.context import Context
from ..state.records import StoredTask, read
from ..state.storage_orders import StorageOrders, reason_of
from ..state.task import Outcome, Task, TaskState

Done = Callable[[str], None]
"""Called with the reason of the failure; "" on success."""

MOVED: Final = "another replica has taken the task over"
"""The reason why the record of a task cannot be saved that is at another replica now."""

GONE: Final = "the task is gone"
"""The reason why a record is not saved any more."""

LOOKS_MAX: Final = 2
"""Looks at a record that was changed meanwhile, by saves of this replica whose answers have not come. There is hardly
ever more than one of these. At it: the save has failed."""

OUTCOME_NAME: Final = "outcome.json"


class TaskStore:
    """The records and outcomes of all tasks."""

    def __init__(self, context: Context, storage_orders: StorageOrders) -> None:
        self._context = context
        self._storage_orders = storage_orders
        self._is_shared = context.plan.replica is not None
        self._saving: dict[str, list[tuple[StoredTask, Done]]] = {}
        self._gone: dict[str, Callable[[], None] | None] = {}  # called once the record is deleted
        self._versions: dict[str, int] = {}  # of the records, where other replicas may write them

    def __len__(self) -> int:
        return len(self._saving) + len(self._versions)

    # --- Records ----------------------------------------------------------------------------------------------------

    def save(self, record: StoredTask, then: Done) -> None:
        """Saves a record, after those of the same task that are still being saved. `then` is called when it is stored,
        or could not be."""
        waiting = self._saving.get(record.key)
        if waiting is not None:
            waiting.append((record, then))
            return
        self._saving[record.key] = []
        self._save(record, then)

    def _save(self, record: StoredTask, then: Done, looks: int = LOOKS_MAX) -> None:
        key = record.key

        def saved(answer: StorageAnswer) -> None:
            if isinstance(answer, Saved) and self._is_shared:
                self._versions[key] = answer.version
            if isinstance(answer, Conflicted) and looks:
                self._look(record, then, looks - 1)
            elif isinstance(answer, Conflicted):
                self._finish(key, StorageFailed("the record is changed again and again"), then)
            else:
                self._finish(key, answer, then)

        value = msgspec.json.encode(record)
        version = self._versions.get(key, 0) if self._is_shared else None
        self._storage_orders.order(
            lambda ticket: Save(ticket, key, value, record.expires_at_unix, if_version=version), saved
        )

    def _look(self, record: StoredTask, then: Done, looks: int) -> None:
        """Looks whose a record is that has another version than was expected. If it is our own, a save was carried out
        whose answer has not come; then this one is repeated."""

        def loaded(answer: StorageAnswer) -> None:
            if not isinstance(answer, Loaded):
                self._finish(record.key, answer, then)
                return
            found = read(answer.value, StoredTask)
            if found is not None and found.replica == record.replica:
                self._versions[record.key] = answer.version
                self._save(record, then, looks)
            else:
                self._finish(record.key, Conflicted(), then)

        self._storage_orders.order(lambda ticket: Load(ticket=ticket, key=record.key), loaded)

    def _finish(self, key: str, answer: StorageAnswer, then: Done) -> None:
        """Handles the end of a save, and begins the next one of the same task."""
        waiting = self._saving[key]
        # Of a task that was forgotten meanwhile no further record is written, and this one is deleted.
        dropped = list(waiting) if key in self._gone else []
        if dropped:
            waiting.clear()
        if waiting:
            self._save(*waiting.pop(0))
        else:
            del self._saving[key]
            if key in self._gone:
                self._forget(key)
                gone = self._gone.pop(key)
                if gone is not None:
                    gone()
        moved = MOVED if isinstance(answer, Conflicted) else ""
        then("" if isinstance(answer, Saved) else moved or reason_of(answer))
        for _, other in dropped:
            other(GONE)

    def receive_version(self, key: str, version: int) -> None:
        """Takes the version of a record that this replica has written."""
        self._versions[key] = version

    def leave(self, task: Task) -> None:
        """Leaves a task's record to the replica that has the task."""
        self._versions.pop(StoredTask.key_of(task.id), None)

    def _forget(self, key: str) -> None:
        self._versions.pop(key, None)
        self._context.order(Forget(key=key))

    def forget(self, task: Task, then: Callable[[], None] | None = None) -> None:
        """Deletes a task's record, after the save that is under way, and its blob. Calls `then` when the record is
        deleted."""
        record_key = StoredTask.key_of(task.id)
        if record_key in self._saving:
            self._gone[record_key] = then
        else:
            self._forget(record_key)
            if then is not None:
                then()
        if task.blob is not None:
            self._context.order(Discard(blob=task.blob))

    # --- Outcomes ---------------------------------------------------------------------------------------------------

    def put(self, task: Task, outcome: Outcome, then: Callable[[str | None, str], None]) -> None:
        """Stores an outcome as a blob. `then` gets the name of the blob, or None and the reason of the failure."""
        blob = self._context.mint()
        size_bytes = len(outcome.data)

        def collected(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected) and len(answer.files) == 1 and not answer.files[0].problem:
                then(blob, "")
            else:
                problem = answer.files[0].problem if isinstance(answer, Collected) and answer.files else ""
                then(None, problem or reason_of(answer))

        def late(answer: StorageAnswer) -> None:  # `then` has been told of a failure already
            if isinstance(answer, Collected):
                self._context.order(Discard(blob=blob))

        # `bytes` for a result whose members were located: the effects of a trace are encoded, and hold plain values.
        source = InlineSource(data=bytes(outcome.data), filename=OUTCOME_NAME, mime_type="application/json")
        self._storage_orders.order(
            lambda ticket: Collect(
                ticket=ticket,
                server=task.server,
                workspace="",
                sources=(source,),
                blobs=(blob,),
                size_max_bytes=size_bytes,
                total_size_max_bytes=size_bytes,
            ),
            collected,
            late=late,
        )

    def drop(self, blob: str) -> None:
        """Deletes a blob that no task needs."""
        self._context.order(Discard(blob=blob))

    def get(self, task: Task, then: Callable[[Outcome | None, str], None]) -> None:
        """Fetches the outcome of a task that is over. `then` gets it, or None and the reason of the failure; at once if
        it is in memory."""
        if task.blob is None:
            then(task.outcome, "it has none")
            return
        is_error, size_bytes, blob = task.is_error, task.size_bytes, task.blob

        def fetched(answer: StorageAnswer) -> None:
            if isinstance(answer, Fetched):
                then(Outcome(answer.data, is_error), "")
            else:
                then(None, reason_of(answer))

        self._storage_orders.order(lambda ticket: Fetch(ticket=ticket, blob=blob, size_max_bytes=size_bytes), fetched)


def record_of(
    task: Task, *, state: TaskState | None = None, outcome: Outcome | None = None, blob: str | None = None
) -> StoredTask:
    """Returns the record of a task.

    Args:
        state, outcome, blob: those that the task is about to get, in place of its own.
    """
    known = outcome or task.outcome
    is_over = state is not None and state is not task.state
    return StoredTask(
        id=task.id,
        server=task.server,
        tool=task.tool,
        era="handshake" if task.is_legacy else "stateless",
        owner=task.owner,
        payer=task.payer,
        sid=task.sid,
        status=state or task.state,
        message=task.message,
        created_at=task.created_at,
        updated_at=task.updated_at,
        expires_at_unix=task.expires_at_unix,
        ttl_ms=task.ttl_ms,
        poll_ms=task.poll_ms,
        upstream_task=task.upstream_task,
        is_remote=task.is_remote,
        upstream_session=task.upstream_session[0],
        upstream_revision=task.upstream_session[1],
        upstream_address=task.upstream_session[2],
        outcome="" if blob is not None or task.blob is not None or known is None else known.data.decode(),
        is_error=outcome.is_error if outcome is not None else task.is_error,
        blob=blob or task.blob,
        size_bytes=len(outcome.data) if outcome is not None and is_over else task.size_bytes,
        replica=task.replica,
    )


def restored(record: StoredTask, *, ordinal: int, now_unix: float) -> Task:
    """Returns a task from the record of an earlier run. One that was not over is `working`, without its questions.

    Args:
        now_unix: the wall time that it counts as updated at.
    """
    created_at_unix = record.expires_at_unix - record.ttl_ms / 1000
    task = Task(
        record.id,
        ordinal=ordinal,
        server=record.server,
        tool=record.tool,
        owner=record.owner,
        payer=record.payer,
        sid=record.sid,
        principal="",
        is_legacy=record.era == "handshake",
        created_at=record.created_at or format_time(created_at_unix),
        created_at_unix=created_at_unix,
        ttl_ms=record.ttl_ms,
        poll_ms=record.poll_ms,
        replica=record.replica,
    )
    task.restore(record, now_unix)
    return task
