"""What is stored of tasks: a record each, and the outcomes that are too large for one.

Records of one task are written one after the other, so that the last one stays: storages may carry out orders at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..base.effects import (
    Collect,
    Collected,
    Discard,
    Fetch,
    Fetched,
    Forget,
    InlineSource,
    Save,
    Saved,
    StorageAnswer,
)
from ..base.timestamps import format_time
from ..state.context import Desk
from ..state.storage_orders import Waiting, reason_of
from ..state.task import Outcome, State, Task
from .record import StoredTask

Done = Callable[[str], None]
"""Told why it failed; "" if it did not."""

OUTCOME_NAME: Final = "outcome.json"


class TaskStore:
    """The records and outcomes of all tasks.

    Attributes:
        held_bytes: of outcomes that are in memory for want of storage.
    """

    def __init__(self, desk: Desk, waiting: Waiting) -> None:
        self._desk = desk
        self._waiting = waiting
        self._saving: dict[str, list[tuple[StoredTask, Done]]] = {}
        self._gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._saving)

    # --- Records ----------------------------------------------------------------------------------------------------

    def save(self, record: StoredTask, then: Done) -> None:
        """Write a task's record; `then` is called when it lasts, or cannot be made to."""
        waiting = self._saving.get(record.key)
        if waiting is not None:
            waiting.append((record, then))
            return
        self._saving[record.key] = []
        self._save(record, then)

    def _save(self, record: StoredTask, then: Done) -> None:
        key = record.key

        def saved(answer: StorageAnswer) -> None:
            waiting = self._saving[key]
            dropped = list(waiting) if key in self._gone else []
            if dropped:
                waiting.clear()
            if waiting:
                self._save(*waiting.pop(0))
            else:
                del self._saving[key]
                if key in self._gone:
                    self._gone.discard(key)
                    self._desk.order(Forget(key=key))
            then("" if isinstance(answer, Saved) else reason_of(answer))
            for _, other in dropped:
                other("the task is gone")

        value = msgspec.json.encode(record)
        expires_at_unix = record.expires_at_unix
        self._waiting.order(
            lambda ticket: Save(ticket=ticket, key=key, value=value, expires_at_unix=expires_at_unix), saved
        )

    def forget(self, task: Task) -> None:
        """Nothing of a task is wanted any more."""
        record_key = StoredTask.key_of(task.id)
        if record_key in self._saving:
            self._gone.add(record_key)
        else:
            self._desk.order(Forget(key=record_key))
        if task.blob is not None:
            self._desk.order(Discard(blob=task.blob))

    # --- Outcomes ---------------------------------------------------------------------------------------------------

    def put(self, task: Task, outcome: Outcome, then: Callable[[str | None, str], None]) -> None:
        """Store an outcome on its own. `then` gets the name of its blob, or None and why there is none."""
        blob = self._desk.mint()
        size_bytes = len(outcome.data)

        def collected(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected) and len(answer.files) == 1 and not answer.files[0].problem:
                then(blob, "")
            else:
                problem = answer.files[0].problem if isinstance(answer, Collected) and answer.files else ""
                then(None, problem or reason_of(answer))

        def late(answer: StorageAnswer) -> None:
            if isinstance(answer, Collected):
                self._desk.order(Discard(blob=blob))

        source = InlineSource(data=outcome.data, filename=OUTCOME_NAME, mime_type="application/json")
        self._waiting.order(
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
        """An outcome that was stored in vain."""
        self._desk.order(Discard(blob=blob))

    def get(self, task: Task, then: Callable[[Outcome | None, str], None]) -> None:
        """The outcome of a task that is over: `then` gets it, or None and why it cannot be had."""
        if task.blob is None:
            then(task.outcome, "it has none")
            return
        is_error, size_bytes, blob = task.is_error, task.size_bytes, task.blob

        def fetched(answer: StorageAnswer) -> None:
            if isinstance(answer, Fetched):
                then(Outcome(answer.data, is_error), "")
            else:
                then(None, reason_of(answer))

        self._waiting.order(lambda ticket: Fetch(ticket=ticket, blob=blob, size_max_bytes=size_bytes), fetched)


def record_of(
    task: Task, *, state: State | None = None, outcome: Outcome | None = None, blob: str | None = None
) -> StoredTask:
    """A task as it is saved; with what it is about to come to, if that is given."""
    said = outcome or task.outcome
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
        outcome="" if blob is not None or task.blob is not None or said is None else said.data.decode(),
        is_error=outcome.is_error if outcome is not None else task.is_error,
        blob=blob or task.blob,
        size_bytes=len(outcome.data) if outcome is not None and is_over else task.size_bytes,
    )


def restored(record: StoredTask, *, ordinal: int, now_unix: float) -> Task:
    """A task as an earlier run saved it."""
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
    )
    task.expires_at_unix = record.expires_at_unix
    task.updated_at = record.updated_at
    task.updated_at_unix = now_unix
    task.message = record.message
    task.upstream_task, task.is_remote = record.upstream_task, record.is_remote
    task.upstream_session = record.upstream_session, record.upstream_revision
    task.is_error, task.size_bytes, task.blob = record.is_error, record.size_bytes, record.blob
    if record.status not in (State.WORKING, State.INPUT_REQUIRED):
        task.state = record.status
        if record.outcome:
            task.outcome = Outcome(record.outcome.encode(), record.is_error)
    return task
