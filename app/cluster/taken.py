"""Says whether another process has the tag of a configuration, without taking it."""

from __future__ import annotations

import anyio

from ...core.replicas.leases import RENEW_S
from ...core.replicas.records import decode, key_of
from ...storage.interface import StorageError
from ..config.settings import Settings
from ..stores.stores import open_records

WATCH_S = RENEW_S + 1.0
"""Seconds within which the holder of a lease renews it."""


async def taken_by(settings: Settings) -> str:
    """Returns a line that says which process renews a lease under `cluster.replica`; "" if none does."""
    tag = settings.cluster.replica
    if tag is None or not settings.storage.is_shared:
        return ""
    try:
        records = await open_records(settings.storage, calls_max=1)
        try:
            before = await records.load(key_of(tag))
            if before is None:
                return ""
            await anyio.sleep(WATCH_S)
            found = await records.load(key_of(tag))
        finally:
            await records.aclose()
    except StorageError:  # the store has a line of its own
        return ""
    if found is None or found.version == before.version:
        return ""
    lease = decode(found.value)
    where = f" at {lease.address}" if lease is not None and lease.address else ""
    return f"replica {tag} runs now{where}"
