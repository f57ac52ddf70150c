"""A lease on a job that one of several processes is to do, kept as a record.

The holder saves the record anew every `LOOK_S`. A process that has seen the record unchanged for `LEASE_S` takes the
lease. Each counts on its own clock, and each change names the version that it replaces, so of several that take it at
once one succeeds. A holder that was away too long notices at its next save.

Two processes may take themselves for the holder for a moment, so the lease is for jobs that two may do at once.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from anyio import current_time

from ...storage.interface import Records, StorageError, VersionConflict

LOOK_S: Final = 60.0
"""Seconds between two looks at a lease. Each takes one operation of the store."""
LEASE_S: Final = 200.0
"""Seconds after which an unchanged lease is free: three saves of its holder have failed by then."""

_log = logging.getLogger(__name__)


class Lease:
    """A lease, as one process sees it.

    Args:
        key: of the record.
    """

    def __init__(self, records: Records, key: str) -> None:
        self._records = records
        self._key = key
        self._value = b'{"run":"%s"}' % secrets.token_hex(16).encode()
        self._own_version = 0  # 0: another process holds the lease, or none
        self._seen_version = 0
        self._seen_at = 0.0

    async def look(self) -> bool:
        """Renews the lease, or takes it if it is free. Returns True if it is held now. To be called every `LOOK_S`."""
        try:
            version = self._own_version or await self._free_version()
            if version is None:
                return False
            self._own_version = await self._records.save(self._key, self._value, if_version=version)
        except VersionConflict:
            self._own_version = 0
            return False
        except StorageError as error:
            self._seen_version = 0  # how long it stayed unchanged is not known any more
            _log.info("the lease %s could not be looked at: %s", self._key, error)
            return False
        return True

    async def _free_version(self) -> int | None:
        """Returns the version of a lease that is free, 0 if there is no record; None: it is held."""
        found = await self._records.load(self._key)
        if found is None:
            return 0
        if found.version != self._seen_version:
            self._seen_version, self._seen_at = found.version, current_time()
        return found.version if current_time() - self._seen_at >= LEASE_S else None
