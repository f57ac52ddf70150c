"""Drafts as files under temporary names: each writer appends to the file, and the last one makes it the blob.

A draft's length and the hash of its bytes are kept in memory only, so that nothing is read again, and another process
treats the file as a leftover. After a failed write the file may be longer than the draft for a while, never shorter.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

from anyio import CancelScope, Lock, to_thread

from .interface import BlobStat, DraftWriter, NotStored, StorageError, StorageFull
from .keys import check_key

WRITE_SIZE: Final = 256 * 1024
"""Bytes gathered for one call into a worker thread, since network chunks are small."""


class FileDrafts:
    """The drafts of a backend, in one folder. See `Blobs.extend` and `Blobs.delete` for the laws.

    Args:
        root: the folder, which exists.
        finish: makes a complete, synced file the blob of a key. Called with the key, the file's name and the blob's
            `BlobStat`. A file that is still there afterwards is removed.
        make_name: returns a fresh name for a draft's file.
    """

    def __init__(
        self,
        root: str,
        finish: Callable[[str, str, BlobStat], Awaitable[None]],
        make_name: Callable[[], str] = lambda: f"~{secrets.token_hex(16)}",
    ) -> None:
        self._root = root
        self._make_name = make_name
        self._finish_blob = finish
        self._drafts: dict[str, FileDraft] = {}

    @property
    def names(self) -> set[str]:
        """The names of the drafts' files."""
        return {draft.name for draft in self._drafts.values()}

    @asynccontextmanager
    async def extend(self, key: str, offset: int, size_max_bytes: int) -> AsyncIterator[DraftWriter]:
        draft = self._drafts.get(check_key(key))
        if draft is None and offset == 0:
            draft = self._drafts[key] = FileDraft(key, self._make_name())
        if draft is None:
            raise NotStored(f"there is no draft {key}")
        async with draft.turn:
            if self._drafts.get(key) is not draft or draft.size_bytes != offset:
                raise NotStored(f"there is no draft {key} of {offset} bytes")
            writer = FileDraftWriter(draft, self._path(draft), size_max_bytes, partial(self._finish, draft))
            try:
                with as_storage_errors():
                    await to_thread.run_sync(writer.open)
                yield writer
            finally:
                with CancelScope(shield=True):
                    await to_thread.run_sync(writer.close)

    async def delete(self, key: str) -> None:
        """Removes the draft of `key`, if there is one, once no writer has it."""
        draft = self._drafts.get(check_key(key))
        if draft is not None:
            async with draft.turn:
                if self._drafts.get(key) is draft:
                    with CancelScope(shield=True):
                        await self._drop(draft)

    async def _finish(self, draft: FileDraft, stat: BlobStat) -> None:
        try:
            await self._finish_blob(draft.key, draft.name, stat)
        finally:
            with CancelScope(shield=True):
                await self._drop(draft)

    async def _drop(self, draft: FileDraft) -> None:
        """Ends a draft, and removes its file if that still has its temporary name."""
        with suppress(OSError):
            await to_thread.run_sync(os.unlink, self._path(draft))
        del self._drafts[draft.key]

    def _path(self, draft: FileDraft) -> str:
        return os.path.join(self._root, draft.name)


class FileDraft:
    """A draft between writers. The first `size_bytes` of the file `name` belong to it, and `sha256` is their hash."""

    def __init__(self, key: str, name: str) -> None:
        self.key = key
        self.name = name
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()
        self.turn = Lock()


class FileDraftWriter:
    """A writer of a `FileDraft`. See `DraftWriter` for the laws. The backend calls `open` and `close`, in a worker
    thread.

    Args:
        finish: makes the complete, synced file the blob, and ends the draft, whether or not that succeeds.
    """

    def __init__(
        self, draft: FileDraft, path: str, size_max_bytes: int, finish: Callable[[BlobStat], Awaitable[None]]
    ) -> None:
        self.size_bytes = draft.size_bytes
        self._draft = draft
        self._path = path
        self._size_max_bytes = size_max_bytes
        self._finish = finish
        self._began = draft.size_bytes, draft.sha256.copy()
        self._gathered = bytearray()
        self._fd = -1
        self._is_spent = False

    async def write(self, chunk: bytes) -> None:
        if self._is_spent:
            raise StorageError("the draft could not be written")
        if self.size_bytes + len(chunk) > self._size_max_bytes:
            raise StorageFull(f"the draft would exceed its limit of {self._size_max_bytes} bytes")
        self._gathered += chunk
        self.size_bytes += len(chunk)
        if len(self._gathered) >= WRITE_SIZE:
            await self._run(self._flush)

    async def undo(self) -> None:
        self._gathered.clear()
        self._draft.size_bytes, self._draft.sha256 = self._began[0], self._began[1].copy()
        self.size_bytes = self._draft.size_bytes

    async def commit(self) -> BlobStat:
        if self._is_spent:
            raise StorageError("the draft could not be written")
        with CancelScope(shield=True):  # a draft that became half a blob would be neither
            await self._run(self._flush_all)
        self._is_spent = True
        stat = BlobStat(self._draft.size_bytes, self._draft.sha256.hexdigest())
        with as_storage_errors():
            await self._finish(stat)
        return stat

    async def _run(self, flush: Callable[[], None]) -> None:
        try:
            with as_storage_errors():
                await to_thread.run_sync(flush)
        except StorageError:
            self._is_spent = True
            self.size_bytes = self._draft.size_bytes
            raise

    def _flush(self) -> None:
        """Writes the gathered bytes. Either all of them count from now on, or none."""
        gathered, self._gathered = self._gathered, bytearray()
        at = 0
        with memoryview(gathered) as rest:
            while at < len(rest):
                at += os.pwrite(self._fd, rest[at:], self._draft.size_bytes + at)
        self._draft.sha256.update(gathered)
        self._draft.size_bytes += len(gathered)

    def _flush_all(self) -> None:
        self._flush()
        os.ftruncate(self._fd, self._draft.size_bytes)
        os.fsync(self._fd)

    def open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def close(self) -> None:
        """Closes the file. Gathered bytes are written first if possible, and then count too."""
        if self._fd < 0:
            return
        if not self._is_spent:
            with suppress(OSError):
                self._flush()
        self.size_bytes = self._draft.size_bytes
        with suppress(OSError):
            os.close(self._fd)


@contextmanager
def as_storage_errors() -> Iterator[None]:
    """Translates `OSError` into the exceptions of `storage.interface`."""
    try:
        yield
    except OSError as error:
        # Not the error's own text, because that names the path.
        reason = os.strerror(error.errno) if error.errno is not None else "unknown error"
        kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
        raise kind(f"the file cannot be stored or read: {reason}") from error
