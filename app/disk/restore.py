"""What earlier runs left in the records: files and tasks, which outlive the process that made them."""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeVar

import msgspec

from ...core.files.store.records import StoredArtifact, StoredUpload
from ...core.tasks.record import PREFIX, StoredTask
from ...storage.interface import Records

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Left(NamedTuple):
    artifacts: tuple[StoredArtifact, ...] = ()
    tasks: tuple[StoredTask, ...] = ()
    uploads: tuple[StoredUpload, ...] = ()


async def left_behind(records: Records, *, now_unix: float, upload_ttl_s: float) -> Left:
    """All of it."""
    uploads = await stored_uploads(records, now_unix=now_unix, ttl_s=upload_ttl_s)
    return Left(await stored_artifacts(records), await stored_tasks(records), uploads)


async def stored_artifacts(records: Records) -> tuple[StoredArtifact, ...]:
    return await _stored(records, "artifact/", StoredArtifact, "an artifact")


async def stored_uploads(records: Records, *, now_unix: float, ttl_s: float) -> tuple[StoredUpload, ...]:
    """Where a record does not say how long it is kept, its time begins now."""
    found = await _stored(records, "upload/", StoredUpload, "an upload")
    at = now_unix + ttl_s
    return tuple(
        upload if upload.expires_at_unix else msgspec.structs.replace(upload, expires_at_unix=at) for upload in found
    )


async def stored_tasks(records: Records) -> tuple[StoredTask, ...]:
    """Oldest first: records are in the order of their keys, which are random."""
    found = await _stored(records, PREFIX, StoredTask, "a task")
    return tuple(sorted(found, key=lambda task: task.expires_at_unix - task.ttl_ms / 1000))


async def _stored(records: Records, prefix: str, kind: type[T], name: str) -> tuple[T, ...]:
    """A record that this version cannot read goes; the next start removes what it owned."""
    found: list[T] = []
    async for key, record in records.scan(prefix):
        try:
            found.append(msgspec.json.decode(record.value, type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("%s of an earlier run cannot be read, and is removed: %s", name, error)
            await records.delete(key)
    return tuple(found)
