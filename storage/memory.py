"""Records and blobs in memory: for tests, demonstrations, and gateways that need not remember."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from anyio import Lock, to_thread

from .interface import (
    CHUNK_SIZE_MAX,
    BlobStat,
    BlobWriter,
    Chunk,
    DraftWriter,
    NotStored,
    Record,
    RecordsReport,
    StorageError,
    StorageFull,
    VersionConflict,
)
from .keys import check_key, check_prefix

_READ_SIZE: Final = 1024 * 1024
"""Bytes of a file read in one call into a worker thread."""


class MemoryRecords:
    """Records in a dictionary. See `Records` for the laws."""

    def __init__(self, now_unix: Callable[[], float] = time.time) -> None:
        self._now_unix = now_unix
        self._records: dict[str, Record] = {}
        self._last_version = 0
        self._is_closed = False

    async def load(self, key: str) -> Record | None:
        check_key(key)
        self._check_open()
        return self._live(key)

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        check_key(key)
        self._check_open()
        found = self._live(key)
        version = found.version if found is not None else 0
        if if_version is not None and if_version != version:
            raise VersionConflict(f"record {key} is at version {version}, expected {if_version}")
        self._last_version += 1
        self._records[key] = Record(bytes(value), self._last_version, expires_at_unix)
        return self._last_version

    async def delete(self, key: str) -> bool:
        check_key(key)
        self._check_open()
        was_live = self._live(key) is not None
        self._records.pop(key, None)
        return was_live

    async def delete_all(self, prefix: str) -> int:
        check_prefix(prefix)
        self._check_open()
        gone = [key for key in self._records if key.startswith(prefix)]
        live = sum(self._live(key) is not None for key in gone)
        for key in gone:
            del self._records[key]
        return live

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        check_prefix(prefix)
        self._check_open()
        for key in sorted(key for key in self._records if key.startswith(prefix)):
            record = self._live(key)
            if record is not None:
                yield key, record

    async def purge(self, now_unix: float) -> int:
        self._check_open()
        expired = [key for key, record in self._records.items() if _is_expired(record, now_unix)]
        for key in expired:
            del self._records[key]
        return len(expired)

    async def now_unix(self) -> float:
        return self._now_unix()

    async def examine(self) -> RecordsReport:
        self._check_open()
        durability = "everything is forgotten when the process ends"
        return RecordsReport("memory", f"Python {platform.python_version()}", durability, 0.0, len(self._records))

    async def aclose(self) -> None:
        self._is_closed = True
        self._records.clear()

    def _live(self, key: str) -> Record | None:
        record = self._records.get(key)
        return None if record is None or _is_expired(record, self._now_unix()) else record

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError("the records are closed")


def _is_expired(record: Record, now_unix: float) -> bool:
    return record.expires_at_unix is not None and record.expires_at_unix <= now_unix


class MemoryBlobs:
    """Blobs in a dictionary. See `Blobs` for the laws."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[bytes, BlobStat]] = {}
        self._drafts: dict[str, MemoryDraft] = {}

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncIterator[BlobWriter]:
        yield MemoryWriter(self._blobs, check_key(key), size_max_bytes)

    @asynccontextmanager
    async def extend(self, key: str, *, offset: int, size_max_bytes: int) -> AsyncIterator[DraftWriter]:
        draft = self._drafts.setdefault(check_key(key), MemoryDraft()) if offset == 0 else self._drafts.get(key)
        if draft is None:
            raise NotStored(f"there is no draft {key}")
        async with draft.turn:
            if self._drafts.get(key) is not draft or len(draft.content) != offset:
                raise NotStored(f"there is no draft {key} of {offset} bytes")
            yield MemoryDraftWriter(self._blobs, self._drafts, key, draft, size_max_bytes)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[Chunk]:
        check_key(key)
        if start < 0 or (stop is not None and stop < 0):
            raise ValueError(f"got the range {start}:{stop}, expected bounds of 0 or more")
        if key not in self._blobs:
            raise NotStored(f"there is no blob {key}")
        content, stat = self._blobs[key]
        end = stat.size_bytes if stop is None else min(stop, stat.size_bytes)
        for at in range(start, end, CHUNK_SIZE_MAX):
            yield content[at : min(at + CHUNK_SIZE_MAX, end)]

    async def stat(self, key: str) -> BlobStat | None:
        found = self._blobs.get(check_key(key))
        return None if found is None else found[1]

    async def delete(self, key: str) -> bool:
        draft = self._drafts.get(check_key(key))
        if draft is not None:
            async with draft.turn:
                self._drafts.pop(key, None)
        return self._blobs.pop(key, None) is not None

    async def keys(self) -> AsyncIterator[str]:
        for key in sorted(self._blobs):
            yield key

    def path_for(self, key: str) -> str | None:
        check_key(key)
        return None

    async def sweep(self) -> int:
        return 0

    async def aclose(self) -> None:
        self._blobs.clear()
        self._drafts.clear()


class MemoryWriter:
    """A writer of one blob. See `BlobWriter` for the laws."""

    def __init__(self, blobs: dict[str, tuple[bytes, BlobStat]], key: str, size_max_bytes: int) -> None:
        self._blobs = blobs
        self._key = key
        self._size_max_bytes = size_max_bytes
        self._content = bytearray()
        self._is_spent = False

    async def write(self, chunk: bytes) -> None:
        if len(self._content) + len(chunk) > self._size_max_bytes:
            self._is_spent = True
            raise StorageFull(f"the blob would exceed its limit of {self._size_max_bytes} bytes")
        self._content += chunk

    async def copy_from(self, file: int, size_max_bytes: int) -> int:
        if len(self._content) + size_max_bytes > self._size_max_bytes:
            self._is_spent = True
            raise StorageFull(f"the blob would exceed its limit of {self._size_max_bytes} bytes")
        before = len(self._content)
        while size_max_bytes and (piece := await to_thread.run_sync(os.read, file, min(size_max_bytes, _READ_SIZE))):
            self._content += piece
            size_max_bytes -= len(piece)
        return len(self._content) - before

    async def commit(self) -> BlobStat:
        if self._is_spent:
            raise StorageError("the blob was committed before, or could not be written")
        self._is_spent = True
        content = bytes(self._content)
        stat = BlobStat(len(content), hashlib.sha256(content).hexdigest())
        self._blobs[self._key] = (content, stat)
        return stat


class MemoryDraft:
    """A draft: its bytes so far, and the lock of its writer."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.turn = Lock()


class MemoryDraftWriter:
    """A writer of a `MemoryDraft`. See `DraftWriter` for the laws."""

    def __init__(
        self,
        blobs: dict[str, tuple[bytes, BlobStat]],
        drafts: dict[str, MemoryDraft],
        key: str,
        draft: MemoryDraft,
        size_max_bytes: int,
    ) -> None:
        self.size_bytes = self._offset = len(draft.content)
        self._blobs = blobs
        self._drafts = drafts
        self._key = key
        self._draft = draft
        self._size_max_bytes = size_max_bytes

    async def write(self, chunk: bytes) -> None:
        if self.size_bytes + len(chunk) > self._size_max_bytes:
            raise StorageFull(f"the draft would exceed its limit of {self._size_max_bytes} bytes")
        self._draft.content += chunk
        self.size_bytes += len(chunk)

    async def undo(self) -> None:
        del self._draft.content[self._offset :]
        self.size_bytes = self._offset

    async def commit(self) -> BlobStat:
        del self._drafts[self._key]
        content = bytes(self._draft.content)
        stat = BlobStat(len(content), hashlib.sha256(content).hexdigest())
        self._blobs[self._key] = (content, stat)
        return stat
