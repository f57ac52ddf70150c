"""The protocol of a store of logins, and what all its backends have in common.

A record is read without a lock. It is written only under its lock, which a process holds over a whole refresh: a
refresh token may be used once, so a second process waits, reads what the first one wrote, and has no need of a refresh
of its own.

Nothing that cannot be read is ever deleted. It may be of another key, of a later version or damaged, and its refresh
token may be the only one there is. A new record is written beside it.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from .sealing import StoreError

RECORD_MAX_BYTES: Final = 256 * 1024
"""The largest record: some tokens, each of which came in a response of 64 KiB at most."""
RECORDS_MAX: Final = 10_000
"""The most records that are listed."""
KEPT_MAX: Final = 8
"""The most unreadable records of one login that are kept beside a new one. At it: nothing more is written."""
LOCK_TIMEOUT_S: Final = 30.0
"""Seconds to wait for a lock: longer than two attempts to refresh take."""
SUFFIX: Final = ".credential"
GROUP_CHARS: Final = 32
"""Half a SHA-256, so that a key of the storage has room for a group and a login in it."""


class LoginKey(msgspec.Struct, frozen=True):
    """The login that a record belongs to.

    Args:
        issuer: the authorization server.
        client: the client id of the configuration there; "" if the proxy registers itself.
        resource: the server that the tokens are for.
        principal: the client who logged in; "": the proxy, for all its clients.
    """

    issuer: str
    client: str
    resource: str
    principal: str = ""

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.digest + SUFFIX

    @property
    def digest(self) -> str:
        """The SHA-256 of the key, in hexadecimal."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(self))).hexdigest()

    @property
    def group(self) -> str:
        """The name of all logins of its client, resource and principal, of whatever issuer."""
        parts = msgspec.json.encode((self.client, self.resource, self.principal))
        return hashlib.sha256(parts).hexdigest()[:GROUP_CHARS]


class ListedRecord(msgspec.Struct, frozen=True):
    """A record in a listing: its login and its content, or why it cannot be read."""

    path: str
    key: LoginKey | None = None
    record: bytes = b""
    problem: str = ""


class Content(msgspec.Struct, frozen=True):
    """The content of a sealed record. The login is in it so that a listing can name it."""

    key: LoginKey
    record: bytes


class RecordLocked(StoreError):
    """Raised when another process has held the lock of a record for too long."""


class WrittenMeanwhile(StoreError):
    """Raised when another process has written a record whose lock was held here, but was lost. What that one wrote
    holds."""


class HeldRecord(Protocol):
    """A record whose lock is held. Each method ends its work even if its caller is cancelled."""

    def check(self) -> None:
        """Checks that the lock is still held, before something is done that may be done once.

        Raises:
            StoreError: it may be another's by now.
        """

    async def read(self) -> bytes | None:
        """Returns the record, as `LoginStore.read`."""

    async def write(self, record: bytes) -> None:
        """Replaces the record. It is durable when this returns. One that cannot be read is kept under another name.

        Raises:
            WrittenMeanwhile: the lock was lost, and another process has written.
            StoreError: nothing was written.
        """

    async def remove(self, seen: bytes) -> bool:
        """Removes the record if it still is `seen`. Returns False if it is another, or there is none.

        Raises:
            UnreadableRecord, StoreError: as `LoginStore.read`. Nothing was removed.
        """


class LoginStore(Protocol):
    """The records of logins, for all processes that use the store."""

    async def read(self, key: LoginKey) -> bytes | None:
        """Returns a record; None if there is none.

        Raises:
            UnreadableRecord: it cannot be read.
            StoreError: the store or its key cannot be used.
        """

    def lock(self, key: LoginKey, *, timeout_s: float | None = None) -> AbstractAsyncContextManager[HeldRecord]:
        """Locks a record, for other processes and within this one, until the context is left.

        Args:
            timeout_s: seconds to wait for it; None: those of the store.

        Raises:
            RecordLocked: another has held it for that long.
            StoreError: the store cannot be used.
        """

    async def is_locked(self, key: LoginKey) -> bool:
        """True if a process holds the lock of a record.

        Raises:
            StoreError: the store cannot be used.
        """

    async def records(self, about: LoginKey | None = None) -> list[ListedRecord]:
        """Lists records, `RECORDS_MAX` at most, and with them those that cannot be read.

        Args:
            about: those of this client, resource and principal are wanted, of any issuer. Others may be among them.
                None: all.

        Raises:
            StoreError: the store or its key cannot be used.
        """

    def changed_at(self) -> int:
        """Returns another number than before if records may have changed that were listed then."""
