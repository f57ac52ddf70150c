"""Reads artifacts, uploads and tasks of earlier runs from the records."""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeVar

import msgspec

from ...core.state.records import TASK_PREFIX, StoredArtifact, StoredTask, StoredUpload
from ...storage.interface import Records

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Restored(NamedTuple):
    artifacts: tuple[StoredArtifact, ...] = ()
    tasks: tuple[StoredTask, ...] = ()
    uploads: tuple[StoredUpload, ...] = ()


async def restore(records: Records, *, upload_ttl_s: float) -> Restored:
    """Returns all artifacts, tasks and uploads of earlier runs. No other process may use the records."""
    uploads = await stored_uploads(records, now_unix=await records.now_unix(), ttl_s=upload_ttl_s)
    return Restored(await stored_artifacts(records), await stored_tasks(records), uploads)


async def stored_artifacts(records: Records) -> tuple[StoredArtifact, ...]:
    return await _stored(records, "artifact/", StoredArtifact, "an artifact")


async def stored_uploads(records: Records, *, now_unix: float, ttl_s: float) -> tuple[StoredUpload, ...]:
    """Returns the stored uploads. Those without an expiry time, as old records are, expire `ttl_s` from now."""
    found = await _stored(records, "upload/", StoredUpload, "an upload")
    at = now_unix + ttl_s
    return tuple(
        upload if upload.expires_at_unix else msgspec.structs.replace(upload, expires_at_unix=at) for upload in found
    )


async def stored_tasks(records: Records) -> tuple[StoredTask, ...]:
    """Returns the stored tasks, oldest first: the records are in the order of their keys, which are random."""
    found = await _stored(records, TASK_PREFIX, StoredTask, "a task")
    return tuple(sorted(found, key=lambda task: task.expires_at_unix - task.ttl_ms / 1000))


async def _stored(records: Records, prefix: str, kind: type[T], name: str) -> tuple[T, ...]:
    """Reads the records with a prefix. One that cannot be decoded is left as it is: another version may read it."""
    found: list[T] = []
    async for _, record in records.scan(prefix):
        try:
            found.append(msgspec.json.decode(record.value, type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("%s of an earlier run cannot be read, and is left alone: %s", name, error)
    return tuple(found)
