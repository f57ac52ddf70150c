"""The protocols `Records` and `Blobs`, and the laws that every backend obeys.

*Records* are small values with a version and an expiry; *blobs* are files. Both are named by keys (see `keys`); a key
that breaks the grammar raises `ValueError` from every method before anything else happens. Times are seconds of wall
time, on the clock given to the backend.

Tasks of one process may use a backend concurrently. A store in memory has one opener. Any other is *shared*: it has any
number of openers, in any processes that reach it; files and SQLite are reached by those of one machine. A change that
has returned is seen by all of them, and the laws below hold among all of them. By default a shared store judges expiry
by its own clock, which is the same for all.

A backend raises any other failure (a full disk, a lost file) as `StorageError`, whose text names no path of the server.
After one, and after a crash at any point, each key holds what it held before or what was being written, whole. In
backends that outlive the process, everything that returned is durable, as far as `examine` says. A change that raised
`StorageError` because a shared store did not answer may take effect later, when the store goes on: a writer that must
not overwrite what others save meanwhile gives `if_version`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

Chunk: TypeAlias = bytes | bytearray
"""A piece of a blob that was read. The caller may keep it."""
CHUNK_SIZE_MAX: Final = 512 * 1024
"""Bytes of the longest chunk in which a blob is read. The overhead of each chunk (turns of the event loop, a write)
takes as long as moving 128 KiB, and each slow client holds one chunk."""


class StorageError(Exception):
    """Raised when the backend failed. The state is the old one or the new one, never a part of it."""


class StorageFull(StorageError):
    """Raised when there is no room: the blob's own limit, a quota or the disk is full."""


class NotStored(StorageError):
    """Raised when nothing is stored under the key."""


class VersionConflict(Exception):
    """Raised when the record is not at the version that the writer expects. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class Record:
    """One value as stored.

    Attributes:
        version: positive. Each save of a key gives a greater version than the key ever had, also after a delete.
        expires_at_unix: from this moment on the record does not exist; None: it does not expire.
    """

    value: bytes
    version: int
    expires_at_unix: float | None


@dataclass(frozen=True, slots=True)
class RecordsReport:
    """A store of records as its backend found it.

    Attributes:
        engine: the name of the software that stores.
        version: its version, as it gives it.
        durability: what is lost when it dies, in words.
        clock_skew_s: seconds by which the store's clock is ahead of this machine's, give or take half the time of a
            request. 0 where both are one clock.
        records: the number of records, with those that have expired and are not purged yet.
    """

    engine: str
    version: str
    durability: str
    clock_skew_s: float
    records: int


class Records(Protocol):
    """A map from keys to values, with versions and expiry. An expired record is treated as deleted, purged or not."""

    async def load(self, key: str) -> Record | None:
        """Returns the record, or None."""

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        """Replaces the record, expiry included, and returns its new version.

        Args:
            if_version: the version that must be stored now; 0: none may be; None: any.

        Raises:
            VersionConflict: another version is stored. Of several writers with the same `if_version`, at most one
                succeeds.
        """

    async def delete(self, key: str) -> bool:
        """Removes the record. Returns True if there was one."""

    async def delete_all(self, prefix: str) -> int:
        """Removes all records whose keys start with `prefix`. Returns how many of them had not expired.

        A record saved before the call is gone when it returns. One saved meanwhile may be gone or not. A shared store
        may remove them in several steps, each short, because one long step would hold up all that use the store: other
        openers then see some records gone and others not yet, and an error may leave a part of them.
        """

    def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        """Yields all records whose key starts with `prefix`, ordered by key (as ASCII).

        A record that exists from the first step to the last is yielded once; one saved or deleted meanwhile may be
        yielded.
        """

    async def purge(self, now_unix: float) -> int:
        """Removes for good the records that have expired at `now_unix`. Returns how many."""

    async def now_unix(self) -> float:
        """Returns the time by which expiry is judged. Openers of a shared store agree on it, whatever the clocks of
        their machines say, so the end of a lease is computed from it."""

    async def examine(self) -> RecordsReport:
        """Returns what the store says of itself."""

    async def aclose(self) -> None:
        """Closes the backend. Safe to call twice; other calls raise `StorageError` from now on."""


EVERYTHING: Final = "*"
"""A notice that stands for all topics: some may have been lost, so look at everything. No topic is written so."""


class Notices(Protocol):
    """A feed of changes among the openers of a store: short topics, written like keys, without content.

    Notices are hints. They can be lost, doubled and reordered, and a subscriber that was told nothing knows nothing:
    what has to be right is looked at from time to time as well. Whenever notices may have been lost, a subscriber gets
    `EVERYTHING`: once it has begun to listen, after each interruption, and when it did not keep up.
    """

    async def publish(self, topic: str) -> None:
        """Tells all subscribers of all openers, those of this one included.

        Raises:
            ValueError: the topic is not written like a key.
            StorageError: the store cannot be used. Whether anybody was told is unknown.
        """

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listens as long as the context is open. The iterator yields topics and `EVERYTHING`, and never ends by
        itself: when the store is lost it connects again."""


@dataclass(frozen=True, slots=True)
class BlobStat:
    """A blob's length, and the SHA-256 of its bytes in lower-case hexadecimal."""

    size_bytes: int
    sha256: str


class BlobWriter(Protocol):
    """A writer of a new blob, which readers do not see until `commit`. Used by one task.

    After a method has raised, the writer is spent and `commit` raises `StorageError`.
    """

    async def write(self, chunk: bytes) -> None:
        """Appends `chunk`.

        Raises:
            StorageFull: the blob would exceed its limit, or the disk is full.
        """

    async def copy_from(self, file: int, size_max_bytes: int) -> int:
        """Appends what the open, regular file holds from its current position, at most `size_max_bytes`, and returns
        how many bytes. The copy shares blocks with the file where the file system can; otherwise the two are
        independent, and a change of one does not change the other.

        Raises:
            StorageFull: as `write`, and if the blob's limit has no room for `size_max_bytes`.
        """

    async def commit(self) -> BlobStat:
        """Makes everything that was written the blob, in one step, replacing an older one. Called once, after all
        writes."""


class DraftWriter(Protocol):
    """A writer that appends to a draft. Used by one task.

    Attributes:
        size_bytes: the draft's length, including what this writer appended.
    """

    size_bytes: int

    async def write(self, chunk: bytes) -> None:
        """Appends `chunk`.

        Raises:
            StorageFull: the draft would exceed its limit, or the disk is full. The draft holds what it held before, or
                part of what this writer appended.
        """

    async def undo(self) -> None:
        """Removes everything that this writer wrote. It may write again."""

    async def commit(self) -> BlobStat:
        """Makes the draft the blob, in one step, replacing an older one; the draft no longer exists. Called once, at
        the end. If it raises, there may be no draft, and no new blob unless a shared store did not answer."""


class Blobs(Protocol):
    """A map from keys to file contents, streamed both ways.

    A *draft* is a blob that is written in several steps, unseen by readers until it is complete. It does not outlive
    the process.
    """

    def create(self, key: str, *, size_max_bytes: int) -> AbstractAsyncContextManager[BlobWriter]:
        """Writes a blob of at most `size_max_bytes`. Leaving the context without a commit leaves nothing behind.

        Of two writers of one key the later commit stays.
        """

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[Chunk]:
        """Yields the bytes `start:stop` in chunks of 1 to `CHUNK_SIZE_MAX` bytes; a `stop` beyond the end means the
        end.

        A reader that got its first chunk sees the blob as it was then, even if it is replaced or deleted meanwhile.

        Raises:
            NotStored: on the first step.
            ValueError: a bound is negative.
        """

    def extend(self, key: str, *, offset: int, size_max_bytes: int) -> AbstractAsyncContextManager[DraftWriter]:
        """Continues the draft of `key`, which holds `offset` bytes; at offset 0 it is created if there is none. It may
        grow to `size_max_bytes`. Leaving the context, in any way, keeps what was written as the draft.

        A draft has one writer at a time; others wait.

        Raises:
            NotStored: there is no such draft, or it does not hold `offset` bytes.
        """

    async def stat(self, key: str) -> BlobStat | None:
        """Returns what is known of the committed blob, or None."""

    async def delete(self, key: str) -> bool:
        """Removes the blob, and the draft once no writer has it. Returns True if there was a blob."""

    def keys(self) -> AsyncIterator[str]:
        """Yields the keys of all committed blobs, in order."""

    def path_for(self, key: str) -> str | None:
        """Returns the absolute path of a file with exactly the blob's bytes, to be read only and copied soon; None if
        the backend has no files, or not this blob."""

    async def sweep(self) -> int:
        """Removes what an earlier process left unfinished. Returns how many files. Open writers and the drafts of this
        process are not affected, nor in a shared store those of any other."""

    async def aclose(self) -> None:
        """Closes the backend. Safe to call twice."""
