"""The logins in shared records: one sealed record for each login, for all replicas and commands that use the store.

A login is written by compare-and-swap, under a lease that all share (`leases`). So a process that has lost its lease
cannot replace what another one wrote: it finds that, and takes it over.

The key of a record is `login/GROUP/DIGEST`: a replica lists the logins of one caller at one server without reading all.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import anyio
import msgspec

from ...storage.interface import Record, Records, StorageError, VersionConflict
from .interface import (
    KEPT_MAX,
    LOCK_TIMEOUT_S,
    RECORD_MAX_BYTES,
    RECORDS_MAX,
    SUFFIX,
    Content,
    ListedRecord,
    LoginKey,
    RecordLocked,
    WrittenMeanwhile,
)
from .leases import ENDED_UNIX, LEASE_POLL_S, Lease
from .sealing import Cipher, StoreError, UnreadableRecord, cipher_of_all

KIND: Final = "login"
"""The first segment of the key of each login."""
LEASE_KIND: Final = "login-lease"
WRITE_RETRY_S: Final = 0.5
"""Seconds after which a login that the store has refused is written again, as long as its lease is held: the token
that it replaces is used up."""


class SharedStore:
    """The logins in shared records.

    Args:
        records: returns the records, which it may open then.
        tell: called with the key of each login that was written or removed.
        environ: has `ISTHMUS_STORE_KEY`, as in `CredentialStore`.
        lock_timeout_s: seconds to wait for the lock of a record.
        clock: returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        records: Callable[[], Awaitable[Records]],
        tell: Callable[[str], Awaitable[None]],
        environ: Mapping[str, str] = os.environ,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._records = records
        self._tell = tell
        self._environ = environ
        self._lock_timeout_s = lock_timeout_s
        self._loaded: Cipher | None = None
        self._changes = 0

    async def read(self, key: LoginKey) -> bytes | None:
        with _as_store_errors():
            found = await (await self._records()).load(_key_of(key))
        return None if found is None else self._open(found, key)

    @asynccontextmanager
    async def lock(self, key: LoginKey, *, timeout_s: float | None = None) -> AsyncIterator[HeldLogin]:
        wait_s = self._lock_timeout_s if timeout_s is None else timeout_s
        with _as_store_errors():
            records = await self._records()
            lease = Lease(records, f"{LEASE_KIND}/{key.digest}", self._clock)
            is_taken = await lease.take()
            if not is_taken:
                with anyio.move_on_after(wait_s):
                    while not is_taken:
                        await anyio.sleep(LEASE_POLL_S)
                        is_taken = await lease.take()
        if not is_taken:
            raise RecordLocked(f"another process has been logging in or refreshing for {wait_s:g} s: end it")
        async with lease.kept():
            yield HeldLogin(self, records, lease, key)

    async def is_locked(self, key: LoginKey) -> bool:
        with _as_store_errors():
            return await (await self._records()).load(f"{LEASE_KIND}/{key.digest}") is not None

    async def records(self, about: LoginKey | None = None) -> list[ListedRecord]:
        found: list[ListedRecord] = []
        with _as_store_errors():
            records = await self._records()
            async for key, record in records.scan(f"{KIND}/" if about is None else f"{KIND}/{about.group}/"):
                try:
                    content = self.open(key, record.value)
                    found.append(ListedRecord(key, content.key, content.record))
                except UnreadableRecord as error:
                    found.append(ListedRecord(key, problem=str(error)))
                if len(found) == RECORDS_MAX:
                    break
        return found

    def changed_at(self) -> int:
        return self._changes

    def note_change(self) -> None:
        """Says that another process has written or removed a login, or may have."""
        self._changes += 1

    async def tell(self, key: str) -> None:
        """Tells others of a login that was written or removed here."""
        self.note_change()
        await self._tell(key)

    def seal(self, key: LoginKey, record: bytes) -> bytes:
        """Returns what is stored for a login.

        Raises:
            StoreError: it is too large, or there is no key to seal with.
        """
        if len(record) > RECORD_MAX_BYTES:
            raise StoreError(f"got a record of {len(record)} bytes, expected {RECORD_MAX_BYTES} at most")
        return self._cipher().seal(msgspec.json.encode(Content(key, record)), key.name)

    def open(self, key: str, value: bytes) -> Content:
        """Returns the content of what is stored at a key.

        Raises:
            UnreadableRecord: it cannot be read.
            StoreError: there is no key to open it with.
        """
        name = key.rpartition("/")[2].partition(".")[0] + SUFFIX
        try:
            return msgspec.json.decode(self._cipher().open(value, name), type=Content)
        except msgspec.DecodeError:
            raise UnreadableRecord(f"{key}: a later version of isthmus wrote it; it is kept") from None
        except UnreadableRecord as error:
            raise UnreadableRecord(f"{key}: {error}; it is kept") from None

    def _open(self, record: Record, key: LoginKey) -> bytes:
        content = self.open(_key_of(key), record.value)
        if content.key != key:
            raise UnreadableRecord(f"{_key_of(key)}: it is of another login; it is kept")
        return content.record

    def _cipher(self) -> Cipher:
        if self._loaded is None:
            self._loaded = cipher_of_all(self._environ)
        return self._loaded


class HeldLogin:
    """A login whose lease is held. It is replaced only if it still has the version that was seen first."""

    def __init__(self, store: SharedStore, records: Records, lease: Lease, key: LoginKey) -> None:
        self._store = store
        self._records = records
        self._lease = lease
        self._key = key
        self._stored_key = _key_of(key)
        self._version: int | None = None
        self._value = b""

    def check(self) -> None:
        if not self._lease.is_held:
            raise StoreError("the lease of the login could not be renewed in time: storage.records is slow, or away")

    async def read(self) -> bytes | None:
        with anyio.CancelScope(shield=True):
            await self._load()
        if not self._version:
            return None
        content = self._store.open(self._stored_key, self._value)
        if content.key != self._key:
            raise UnreadableRecord(f"{self._stored_key}: it is of another login; it is kept")
        return content.record

    async def write(self, record: bytes) -> None:
        sealed = self._store.seal(self._key, record)
        with anyio.CancelScope(shield=True):
            if self._version is None:
                await self._load()
            with _as_store_errors():
                await self._keep()
                await self._save(sealed)
            self._value = sealed
            await self._store.tell(self._stored_key)

    async def remove(self, seen: bytes) -> bool:
        is_removed = False
        with anyio.CancelScope(shield=True):
            if await self.read() == seen:
                with suppress(VersionConflict), _as_store_errors():
                    key, version = self._stored_key, self._version
                    await self._records.save(key, b"", expires_at_unix=ENDED_UNIX, if_version=version)
                    is_removed = True
            if is_removed:
                self._version = 0
                await self._store.tell(self._stored_key)
        return is_removed

    async def _load(self) -> None:
        with _as_store_errors():
            found = await self._records.load(self._stored_key)
        self._version, self._value = (0, b"") if found is None else (found.version, found.value)

    async def _save(self, sealed: bytes) -> None:
        while True:
            try:
                self._version = await self._records.save(self._stored_key, sealed, if_version=self._version)
                return
            except VersionConflict:
                found = await self._records.load(self._stored_key)
                if found is None or found.value != sealed:
                    raise WrittenMeanwhile("another process has written this login meanwhile") from None
                self._version = found.version  # an attempt whose answer was lost
                return
            except StorageError:
                if not self._lease.is_held:
                    raise
            await anyio.sleep(WRITE_RETRY_S)

    async def _keep(self) -> None:
        """Copies what is stored to another key if it cannot be read."""
        if not self._version:
            return
        try:
            self._store.open(self._stored_key, self._value)
            return
        except UnreadableRecord:
            pass
        for number in range(1, KEPT_MAX + 1):
            try:
                await self._records.save(f"{self._stored_key}.kept-{number}", self._value, if_version=0)
                return
            except VersionConflict:
                continue
        reason = f"{KEPT_MAX} unreadable records of this login are kept already"
        raise StoreError(f"{reason}: remove those you do not need, {self._stored_key}.kept-*")


def group_in(key: str) -> str:
    """Returns the group in the key of a login."""
    return key.split("/")[1]


def _key_of(key: LoginKey) -> str:
    return f"{KIND}/{key.group}/{key.digest}"


@contextmanager
def _as_store_errors() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise StoreError(f"the logins in storage.records cannot be used: {error}") from None
