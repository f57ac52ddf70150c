"""The lock of the pins as a record that replicas share, where there is no lock file.

`isthmus pin` writes it, and replicas are told of it. A lock file counts instead of the record, so that a lock which is
deployed with the configuration is the only one there is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from ...core.base.governance import Pinned
from ...core.governance.lock import RECORD_KEY, LockError, format_lock, parse_lock
from ...storage.interface import Record, Records, StorageError, VersionConflict
from ..base.errors import ConfigError, StartError
from ..config.settings import Settings, Storage
from ..stores.stores import failure, open_notices, open_records
from .changes import publish_once

KIND: Final = RECORD_KEY.partition("/")[0]
"""The first segment of the key of the record."""
PLACE: Final = f"{RECORD_KEY} in storage.records"
"""The place of the record, for people."""

Lock = Mapping[str, tuple[Pinned, ...]]

_log: Final = logging.getLogger("isthmus.config")


def is_recorded(settings: Settings) -> bool:
    """True if the lock is a record: the records are shared, and there is no lock file."""
    path = settings.pins.file
    return settings.storage.is_shared and os.path.isabs(path) and not os.path.lexists(path)


async def stored_lock(settings: Settings, records: Records | None) -> dict[str, tuple[Pinned, ...]] | None:
    """Returns the lock that replicas share; None if there is none.

    Args:
        records: the shared records; None: they are not open.

    Raises:
        ConfigError: it cannot be used.
        StartError: the records cannot be used, and `pins.mode` says what happens by a lock.
    """
    try:
        if records is not None:
            return _parsed(await records.load(RECORD_KEY))
        async with aclosing(await open_records(settings.storage, calls_max=1)) as opened:
            return _parsed(await opened.load(RECORD_KEY))
    except StorageError as error:
        said = _unusable(settings.storage, error)
        if settings.pins.mode is not None:
            raise StartError(said) from error
        _log.warning("nothing is pinned: %s", said)
        return None


class LockRecord:
    """The lock in the shared records, as it was read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._version = 0

    async def read(self) -> dict[str, tuple[Pinned, ...]] | None:
        """Returns the lock; None if there is none.

        Raises:
            ConfigError: it cannot be used, or the records cannot.
        """
        try:
            async with aclosing(await open_records(self._storage, calls_max=1)) as records:
                found = await records.load(RECORD_KEY)
        except StorageError as error:
            raise ConfigError(_unusable(self._storage, error)) from error
        self._version = 0 if found is None else found.version
        return _parsed(found)

    async def write(self, lock: Lock) -> None:
        """Replaces the lock, and tells all replicas.

        Raises:
            ConfigError: it was changed since it was read, or the records cannot be used.
        """
        try:
            async with aclosing(await open_records(self._storage, calls_max=1)) as records:
                value = format_lock(lock).encode()
                self._version = await records.save(RECORD_KEY, value, if_version=self._version)
                await publish_once(open_notices(records), RECORD_KEY)
        except VersionConflict:
            raise ConfigError(f"{PLACE}: another command has changed it meanwhile: run this one again") from None
        except StorageError as error:
            raise ConfigError(_unusable(self._storage, error)) from error


def _parsed(record: Record | None) -> dict[str, tuple[Pinned, ...]] | None:
    if record is None:
        return None
    try:
        return parse_lock(record.value.decode())
    except (UnicodeDecodeError, LockError) as error:
        raise ConfigError(f"{PLACE}: {error}. Nothing is served by a lock that cannot be read: remove it") from error


def _unusable(storage: Storage, error: StorageError) -> str:
    assert storage.records is not None
    return failure("storage.records", storage.records, error)
