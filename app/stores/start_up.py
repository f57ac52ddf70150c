"""The removal of what earlier runs left in the stores, before a gateway starts."""

from __future__ import annotations

import msgspec

from ...core.downstream import event_store
from ...storage.interface import Blobs, Records
from .stores import Stores


class _Owner(msgspec.Struct):
    """The part of a record's value that names the blob it owns."""

    blob: str | None = None


async def remove_leftovers(stores: Stores) -> None:
    """Removes what belongs to nobody any more. In shared stores nothing is removed: it may belong to other replicas,
    which are at work, and a sweep removes it later (`sweeper`).

    Raises:
        StorageError: the stores cannot be used.
    """
    # Stored events belong to sessions, which ended with the process that had them.
    await stores.own_records.delete_all(event_store.PREFIX)
    if stores.shared_blobs is not None:
        await stores.shared_blobs.sweep_drafts()
    elif stores.shared:
        await stores.blobs.sweep()
    else:
        await remove_unowned(stores.records, stores.blobs)


async def remove_unowned(records: Records, blobs: Blobs) -> None:
    """Removes expired records, blobs that no record owns, and records whose blob is gone. A record owns the blob that
    the member `blob` of its JSON object names. Nobody else may use the stores meanwhile.

    Raises:
        StorageError: the stores cannot be used.
    """
    await records.purge(await records.now_unix())
    await blobs.sweep()
    stored = {blob async for blob in blobs.keys()}  # noqa: SIM118 (not a mapping)
    owners = [(key, _owned_blob(record.value)) async for key, record in records.scan("")]
    for blob in stored.difference(blob for _, blob in owners if blob is not None):
        await blobs.delete(blob)
    for key, owned in owners:
        if owned is not None and owned not in stored:
            await records.delete(key)


def _owned_blob(value: bytes) -> str | None:
    try:
        return msgspec.json.decode(value, type=_Owner).blob
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # no JSON, no object, or no name of a blob
        return None
