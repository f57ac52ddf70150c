"""The removal of files in shared stores that no record names: left by a process that ended, or by an expired record.

A file is stored before its record, so a new file without a record may be one that is just being taken in. Only age
tells the two apart. All ages are differences of times that the store says.

One replica sweeps: the first of those that have a lease. For a moment two may take themselves for the first. Then both
sweep, which does no harm.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from anyio import current_time, sleep

from ...core.base.ids import is_minted
from ...storage.interface import Records, StorageError
from ...storage.s3 import S3Blobs

LOOK_S: Final = 60.0
"""Seconds between two looks whether a sweep is due, and for this process to make."""
SWEEP_EVERY_S: Final = 3600.0
"""Seconds between two sweeps. A sweep lists all files and all records, which takes a second for some ten thousand."""
ORPHAN_AGE_S: Final = 86_400.0
"""Seconds for which a file without a record is kept. The first file of an upload has its record when the last one has
come, and no more than a day of waiting is allowed for (as with `upload_draft_max_s`)."""
BATCH_BLOBS: Final = 20_000
"""Names of files that are looked up in the records at a time, which takes 3 MB of memory. More need another scan."""

_NAME: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")

_log = logging.getLogger(__name__)


class Sweeper:
    """The sweeps of one process.

    Args:
        is_first: returns True while this replica is the one that sweeps.
        orphan_age_s: see `ORPHAN_AGE_S`.
    """

    def __init__(
        self, records: Records, blobs: S3Blobs, is_first: Callable[[], bool], *, orphan_age_s: float = ORPHAN_AGE_S
    ) -> None:
        self._records = records
        self._blobs = blobs
        self._orphan_age_s = orphan_age_s
        self._is_first = is_first

    async def run(self) -> None:
        """Sweeps every `SWEEP_EVERY_S`, until it is cancelled. A failure is logged, and the next sweep tries again."""
        next_at = current_time()
        while True:
            if self._is_first() and current_time() >= next_at:
                next_at = current_time() + SWEEP_EVERY_S
                try:
                    await self.sweep()
                except StorageError as error:
                    _log.warning("files that nobody needs could not be removed: %s", error)
            await sleep(LOOK_S)

    async def sweep(self) -> int:
        """Removes the old files that no record names, and what is left of files that were removed before. Returns how
        many files were removed.

        A file counts as named if its name stands anywhere in any record, also in one that this release cannot read.

        Raises:
            StorageError: the stores cannot be used. A part may be done.
        """
        count = 0
        async with aclosing(self._blobs.old_keys(self._orphan_age_s)) as keys:
            while batch := await _some(keys, BATCH_BLOBS):
                async for _, record in self._records.scan(""):
                    for name in _NAME.findall(record.value):
                        batch.discard(name.decode())
                for blob in batch:
                    count += await self._blobs.delete(blob)
        await self._blobs.sweep()
        if count:
            _log.info("removed %d files that no record names", count)
        return count


async def _some(keys: AsyncGenerator[str, None], count: int) -> set[str]:
    """Returns the next keys that are names of ours, at most `count`; none at the end."""
    found: set[str] = set()
    async for key in keys:
        if is_minted(key):
            found.add(key)
            if len(found) == count:
                break
    return found
