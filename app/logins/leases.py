"""The lock of a login in shared records: a lease that its holder renews.

A lease is a record that expires, by the clock of the store, so no two clocks are compared. A process that saves it
while there is none holds it. A holder that dies or is cut off from the store does not renew it, and another takes it.
The first one then finds out by its own monotonic clock that it may have lost the lease, before it sends what may be
sent once.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio

from ...storage.interface import Records, StorageError, VersionConflict

LEASE_S: Final = 15.0
"""Seconds after which a lease ends that is not renewed. An answer of the store may take 10 seconds."""
RENEW_S: Final = 4.0
"""Seconds after which a lease is renewed: two renewals may fail before it ends."""
LEASE_POLL_S: Final = 0.2
"""Seconds after which a lease that another holds is looked at again. A refresh takes some tenths of a second."""
ENDED_UNIX: Final = 1.0
"""The expiry of a record that is removed: unlike a deletion, a save can name the version that it replaces."""


class Lease:
    """A lease of this process, held or not.

    Args:
        clock: returns seconds of a monotonic clock.
    """

    def __init__(self, records: Records, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._records = records
        self._key = key
        self._clock = clock
        self._mark = os.urandom(16)
        self._version = 0
        self._ends_at = -1.0

    @property
    def is_held(self) -> bool:
        """True if no other process can hold the lease now."""
        return self._clock() < self._ends_at

    async def take(self) -> bool:
        """Takes the lease. Returns False if another holds it.

        Raises:
            StorageError: the store cannot be used. The lease may be taken, and then ends by itself.
        """
        with anyio.CancelScope(shield=True):
            try:
                await self._save(0)
            except VersionConflict:
                return False
        return True

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renews the lease that was taken until the context is left, and gives it back then."""
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._renew)
                try:
                    yield
                except Exception as error:  # raised below: a task group would put it into a group
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._give_back()
        if failure is not None:
            raise failure

    async def _renew(self) -> None:
        while self._ends_at > 0:
            await anyio.sleep(RENEW_S)
            with anyio.CancelScope(shield=True), suppress(StorageError):
                try:
                    await self._save(self._version)
                except VersionConflict:
                    found = await self._records.load(self._key)
                    if found is None or found.value != self._mark:
                        self._ends_at = -1.0
                    else:  # saved by a renewal whose answer was lost
                        self._version = found.version

    async def _save(self, version: int) -> None:
        began_at = self._clock()
        expires_at_unix = await self._records.now_unix() + LEASE_S
        self._version = await self._records.save(
            self._key, self._mark, expires_at_unix=expires_at_unix, if_version=version
        )
        self._ends_at = began_at + LEASE_S

    async def _give_back(self) -> None:
        is_held, self._ends_at = self._ends_at > 0, -1.0
        if is_held:
            with suppress(StorageError, VersionConflict):  # it ends by itself
                await self._records.save(self._key, b"", expires_at_unix=ENDED_UNIX, if_version=self._version)
