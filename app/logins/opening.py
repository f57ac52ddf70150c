"""Opens the logins in shared records for a process that is no replica: a command, or a gateway on stdio."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from ...storage.interface import Records, StorageError
from ..cluster.changes import publish_once
from ..config.settings import Storage
from ..stores.stores import open_notices, open_records
from .interface import LoginStore
from .shared_store import SharedStore
from .store import CredentialStore, default_folder

CONNECTIONS: Final = 2
"""Connections to the records: a lease is renewed while a login is read or written."""

_log: Final = logging.getLogger("isthmus.logins")


@asynccontextmanager
async def opened_shared(storage: Storage) -> AsyncIterator[SharedStore]:
    """Opens the logins in the shared records of `storage`, when they are first used. Replicas are told of each change
    before it returns."""
    opened: list[Records] = []
    opening = anyio.Lock()

    async def records() -> Records:
        async with opening:
            if not opened:
                opened.append(await open_records(storage, calls_max=CONNECTIONS))
            return opened[0]

    async def tell(key: str) -> None:
        try:
            await publish_once(open_notices(await records()), key)
        except StorageError as error:
            _log.warning("replicas cannot be told of the change, and find it when they renew the login: %s", error)

    try:
        yield SharedStore(records, tell)
    finally:
        with anyio.CancelScope(shield=True):
            for each in opened:
                await each.aclose()


@asynccontextmanager
async def opened_logins(storage: Storage | None) -> AsyncIterator[LoginStore]:
    """Opens the logins of a configuration: in its shared records if it names some, else those of this user.

    Args:
        storage: that of the configuration; None: there is none.
    """
    if storage is None or not storage.is_shared:
        yield CredentialStore(default_folder())
        return
    async with opened_shared(storage) as store:
        yield store
