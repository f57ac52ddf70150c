"""Two protocols, what is kept in them, and the laws that every backend obeys.

*Records* are small values with a version and an expiry; *blobs* are files. Both are named by keys (see `keys`); a key
that breaks the grammar raises `ValueError` from every method before anything else happens. Times are seconds of wall
time, on the clock a backend was made with. One process at a time uses a store; its tasks may use it at once.

Whatever else a backend meets (a full disk, a lost file) it raises as `StorageError`, whose text names no server path.
After one, and after a crash at any point, each key holds what it held before or what was being written, whole.
Everything that returned lasts, in backends that outlive the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

Chunk: TypeAlias = bytes | bytearray
"""A piece of a blob that was read: whoever has it may keep it."""
CHUNK_SIZE_MAX: Final = 512 * 1024
"""Bytes: the longest chunk a blob is read in. What is done for each beside moving it (turns of the event loop, a write)
takes as long as moving 128 KiB, and each client that takes its time holds one."""


class StorageError(Exception):
    """The backend could not do it. The state is the old one or the new one, never a part of it."""


class StorageFull(StorageError):
    """There is no room: the blob's own limit, a quota or the disk."""


class NotStored(StorageError):
    """There is nothing under this key."""


class VersionConflict(Exception):
    """The record is not at the version the writer has seen. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class Record:
    """One value as stored.

    Attributes:
        version: positive. Each save of a key gives a greater one than it ever had, also after a delete.
        expires_at_unix: from this moment on the record does not exist; None keeps it.
    """

    value: bytes
    version: int
    expires_at_unix: float | None


class Records(Protocol):
    """Key to value, with versions and expiry. An expired record is as if deleted, purged or not."""

    async def load(self, key: str) -> Record | None:
        """The record, or None."""

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        """Replace the record, expiry included, and return its new version.

        Args:
            if_version: the version that must be there now; 0: none must be; None: whatever is.

        Raises:
            VersionConflict: it was not so. Of several writers with one `if_version`, one at most succeeds.
        """

    async def delete(self, key: str) -> bool:
        """Remove the record. Returns whether there was one."""

    async def delete_all(self, prefix: str) -> int:
        """Remove all records whose keys start with `prefix`, in one step. Returns how many of them were live."""

    def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        """All records whose key starts with `prefix`, in the order of their keys (as ASCII).

        A record that lives from the first step to the last is given once; one saved or deleted meanwhile may be given.
        """

    async def purge(self, now_unix: float) -> int:
        """Remove for good what has expired at `now_unix`. Returns how many that were."""

    async def aclose(self) -> None:
        """Let go of the backend. Safe to call twice; other calls raise `StorageError` from now on."""


@dataclass(frozen=True, slots=True)
class BlobStat:
    """What is known of a blob: its length, and the SHA-256 of its bytes in lower-case hexadecimal."""

    size_bytes: int
    sha256: str


class BlobWriter(Protocol):
    """A blob in the making, unseen by readers until `commit`. Used by one task.

    Once a method raised, the writer is spent and `commit` raises `StorageError`.
    """

    async def write(self, chunk: bytes) -> None:
        """Append.

        Raises:
            StorageFull: the blob would exceed its limit, or the disk is full.
        """

    async def copy_from(self, file: int, size_max_bytes: int) -> int:
        """Append what the open, regular file holds from where it stands, at most `size_max_bytes`; returns how much
        that was. The copy shares blocks with the file where it can, and nothing else: it changes with no other.

        Raises:
            StorageFull: as `write`, and if the blob's limit has no room for `size_max_bytes`.
        """

    async def commit(self) -> BlobStat:
        """Make all that was written the blob, in one step, replacing an older one. Called once, after the writes."""


class DraftWriter(Protocol):
    """More of a draft. Used by one task.

    Attributes:
        size_bytes: what the draft has, this writer's part included.
    """

    size_bytes: int

    async def write(self, chunk: bytes) -> None:
        """Append.

        Raises:
            StorageFull: the draft would exceed its limit, or the disk is full. It has what it had before, or somewhat
                less of what this writer gave it.
        """

    async def undo(self) -> None:
        """Take back all that this writer wrote. It goes on from there."""

    async def commit(self) -> BlobStat:
        """Make the draft the blob, in one step, replacing an older one; then it is no draft any more. Called once, at
        last. Where it raises, there is no new blob, and there may be no draft."""


class Blobs(Protocol):
    """Key to file content, streamed both ways.

    A *draft* is a blob that is made in several goes, unseen by readers until it is complete. It does not outlive the
    process.
    """

    def create(self, key: str, *, size_max_bytes: int) -> AbstractAsyncContextManager[BlobWriter]:
        """Write a blob of at most `size_max_bytes`. Leaving the context without a commit leaves nothing behind.

        Of two writers of one key the later commit stays.
        """

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[Chunk]:
        """The bytes `start:stop` in chunks of 1 to `CHUNK_SIZE_MAX` bytes; a `stop` beyond the end means the end.

        A reader that got its first chunk sees the blob as it was then, replaced or deleted meanwhile or not.

        Raises:
            NotStored: on the first step.
            ValueError: a bound is negative.
        """

    def extend(self, key: str, *, offset: int, size_max_bytes: int) -> AbstractAsyncContextManager[DraftWriter]:
        """Go on with the draft of `key`, which has `offset` bytes; at 0 it is made if there is none. It may grow to
        `size_max_bytes`. Leaving the context, in whatever way, leaves what was written as the draft.

        Of one draft there is one writer at a time; others wait.

        Raises:
            NotStored: there is no such draft, or it has not `offset` bytes.
        """

    async def stat(self, key: str) -> BlobStat | None: ...

    async def delete(self, key: str) -> bool:
        """Remove the blob, and the draft once nobody writes it. Returns whether there was a blob."""

    def keys(self) -> AsyncIterator[str]:
        """The keys of all committed blobs, in order."""

    def path_for(self, key: str) -> str | None:
        """The absolute path of a file with exactly the blob's bytes, to be read only and copied soon; None where the
        backend has no files, or not this blob."""

    async def sweep(self) -> int:
        """Remove what an earlier process left unfinished. Returns how many files that were. Open writers go on, and the
        drafts of this process stay."""

    async def aclose(self) -> None:
        """Let go of the backend. Safe to call twice."""
