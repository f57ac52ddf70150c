"""Removal of records that have expired, while the proxy runs."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from ...storage.interface import Records, StorageError

PURGE_EVERY_S: Final = 600.0
"""Time between two removals. An expired record is not found any more, so what it takes is room alone."""

_log = logging.getLogger(__name__)


async def keep_purged(records: Records) -> None:
    """Removes expired records every `PURGE_EVERY_S`, until it is cancelled. The store's own clock says which have
    expired. A failure is logged, and tried again."""
    while True:
        await anyio.sleep(PURGE_EVERY_S)
        try:
            await records.purge(await records.now_unix())
        except StorageError as error:
            _log.warning("expired records could not be removed: %s", error)
