"""Blobs in S3, shared by any number of processes.

A committed blob is a *pointer*, the object `blobs/KEY`: a line of JSON that names a *content*, with its length and its
hash. The content is the objects `data/KEY!CONTENT/000000`, `…/000001` and so on, pieces of `PIECE_SIZE` bytes. CONTENT
is drawn at random, and its pieces are written once. So:

- A commit is one PUT of the pointer. S3 replaces objects in one step, and a read that begins later sees the new one.
  Nothing rests on conditions such as If-None-Match, which some servers ignore.
- A reader asks for the pointer once, and reads the content it names. That content stays for `GRACE_S` or longer after
  the blob was replaced or deleted. A reader that takes longer gets a `StorageError`, never other bytes.
- A crash leaves pieces without a pointer, which nobody sees. There are no multipart uploads, which a crash would leave
  where no listing of objects shows them. Piece by piece also costs two requests less.
- A pointer is written after its content, and a content is removed after its pointer. See `s3_sweep` for when.

A writer is refused if more than `PAUSE_MAX_S` passed since its last piece, because a sweep of another process may take
its pieces for leftovers. Drafts are local files (see `file_drafts`), uploaded by their commit.

The credentials have to allow GetObject, PutObject, DeleteObject and ListBucket. A bucket with versions keeps what is
removed, until a rule of the bucket erases it.

Requests, for a blob of n pieces (n is 1 up to 8 MiB):

    write       n + 1       the pieces, the pointer
    read        1 + 4 n     the pointer, windows of 2 MiB; one window for a smaller blob or range
    stat        1           the pointer
    delete      2           the pointer, and its removal
    keys        1 for each 1,000 blobs
    leave       1           the removal of the pieces of a writer without a commit
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from time import monotonic
from typing import Final, NamedTuple

from anyio import CancelScope, to_thread

from .file_drafts import FileDrafts, as_storage_errors
from .interface import CHUNK_SIZE_MAX, BlobStat, BlobWriter, Chunk, DraftWriter, NotStored, StorageError, StorageFull
from .keys import check_key
from .s3_objects import S3Objects
from .s3_report import BlobsReport, examine_objects
from .s3_sweep import GRACE_S, content_folder, pointer_name, pointers, remove_orphans

PIECE_SIZE: Final = 8 * 1024 * 1024
"""Bytes of a piece. A request takes 20 to 100 ms of waiting, in which a connection moves about this much. An upload
holds one in memory."""
WINDOW_SIZE: Final = 2 * 1024 * 1024
"""Bytes that a reader asks for at a time, and holds in memory. No connection waits for a slow client."""
PAUSE_MAX_S: Final = GRACE_S / 2
"""Seconds between two pieces of a writer, at most: 4.7 KB/s for an upload of more than a piece. A request that is made
before this limit has been carried out, or never will be, when `GRACE_S` has passed."""

POINTER_SIZE_MAX: Final = 1024
"""Bytes of a pointer that are read. It has about 200."""

_CONTENT: Final = re.compile(r"[0-9a-f]{32}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Pointer(NamedTuple):
    """The value of a pointer."""

    content: str
    piece_size: int
    stat: BlobStat


class S3Blobs:
    """Blobs in a bucket. See `Blobs` for the laws, and the module for the form.

    Any number of processes may use the same location. The order of changes of one key is the order in which S3 carries
    them out; where two processes delete a blob at once, both may be told that there was one. Each call waits for S3 for
    a bounded time (see `s3_objects`). A commit that S3 did not answer raises `StorageError`; the key holds the old blob
    or the new one then.

    Args:
        objects: the location.
        drafts: the folder for drafts, created with mode 0700 if it is missing; no other process may use it.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(self, objects: S3Objects, drafts: str) -> None:
        self._objects = objects
        self._root = os.path.abspath(drafts)
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        self._drafts = FileDrafts(self._root, self._upload)

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncIterator[BlobWriter]:
        writer = S3Writer(self._objects, check_key(key), size_max_bytes)
        try:
            yield writer
        finally:
            with CancelScope(shield=True):
                await writer.discard()

    def extend(self, key: str, *, offset: int, size_max_bytes: int) -> AbstractAsyncContextManager[DraftWriter]:
        return self._drafts.extend(key, offset, size_max_bytes)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[Chunk]:
        check_key(key)
        if start < 0 or (stop is not None and stop < 0):
            raise ValueError(f"got the range {start}:{stop}, expected bounds of 0 or more")
        pointer = await self._find(key)
        if pointer is None:
            raise NotStored(f"there is no blob {key}")
        end = pointer.stat.size_bytes if stop is None else min(stop, pointer.stat.size_bytes)
        is_first = True
        while start < end:
            index, at = divmod(start, pointer.piece_size)
            size = min(WINDOW_SIZE, pointer.piece_size - at, end - start)
            window = await self._objects.get(piece_name(key, pointer.content, index), at, at + size)
            if window is None and is_first:
                raise NotStored(f"the content of blob {key} is gone")
            if window is None:
                raise StorageError(f"the content of blob {key} is gone: it was replaced or deleted long ago")
            if len(window) != size:
                raise StorageError(f"the content of blob {key} is shorter than it was")
            for offset in range(0, size, CHUNK_SIZE_MAX):
                yield bytes(window[offset : offset + CHUNK_SIZE_MAX])
            start += size
            is_first = False

    async def stat(self, key: str) -> BlobStat | None:
        pointer = await self._find(check_key(key))
        return None if pointer is None else pointer.stat

    async def delete(self, key: str) -> bool:
        await self._drafts.delete(key)
        name = pointer_name(check_key(key))
        if await self._objects.get(name, 0, POINTER_SIZE_MAX) is None:
            return False
        await self._objects.delete([name])
        return True

    async def keys(self) -> AsyncIterator[str]:
        async for key in pointers(self._objects):
            yield key

    def path_for(self, key: str) -> str | None:
        check_key(key)
        return None

    async def sweep(self) -> int:
        """Removes leftovers of all processes that are older than `GRACE_S`, and local drafts of earlier ones. What a
        replaced or deleted blob leaves takes two sweeps, `GRACE_S` apart. Several processes may sweep at once."""
        count = await self.sweep_drafts()
        return count + await remove_orphans(self._objects, self._content)

    async def sweep_drafts(self) -> int:
        """Removes the local drafts of earlier processes. Returns how many."""
        with as_storage_errors():
            return await to_thread.run_sync(self._remove_drafts)

    async def old_keys(self, age_s: float) -> AsyncGenerator[str, None]:
        """Yields, in order, the keys of all blobs that were committed at least `age_s` seconds ago, on the server's
        clock."""
        async with aclosing(pointers(self._objects, min_age_s=age_s)) as keys:
            async for key in keys:
                yield key

    async def examine(self) -> BlobsReport:
        """Returns what the store says of itself, after it was tried: objects are written, listed, read and removed, in
        9 requests.

        Raises:
            StorageError: the store cannot be used, or lacks what the laws of blobs rest on.
        """
        return await examine_objects(self._objects)

    async def aclose(self) -> None:
        """Does nothing: no resource is held between calls."""

    async def _find(self, key: str) -> Pointer | None:
        found = await self._objects.get(pointer_name(key), 0, POINTER_SIZE_MAX)
        return None if found is None else decode_pointer(bytes(found))

    async def _content(self, key: str) -> str | None:
        pointer = await self._find(key)
        return None if pointer is None else pointer.content

    async def _upload(self, key: str, name: str, stat: BlobStat) -> None:
        """Commits a draft's file."""
        file = await to_thread.run_sync(os.open, os.path.join(self._root, name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            async with self.create(key, size_max_bytes=stat.size_bytes) as writer:
                await writer.copy_from(file, stat.size_bytes)
                await writer.commit()
        finally:
            os.close(file)

    def _remove_drafts(self) -> int:
        names = [name for name in os.listdir(self._root) if name.startswith("~") and name not in self._drafts.names]
        for name in names:
            os.unlink(os.path.join(self._root, name))
        return len(names)


class S3Writer:
    """A writer of one blob. See `BlobWriter` for the laws. `S3Blobs.create` calls `discard`."""

    def __init__(self, objects: S3Objects, key: str, size_max_bytes: int) -> None:
        self._objects = objects
        self._key = key
        self._content = secrets.token_hex(16)
        self._size_max_bytes = size_max_bytes
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        self._gathered = bytearray()
        self._count = 0
        self._last_sent_at: float | None = None
        self._is_spent = False
        self._is_left = False
        """True if the pieces are not to be removed: a pointer may name them, or S3 failed and a sweep has to."""

    async def write(self, chunk: bytes) -> None:
        self._admit(len(chunk))
        with memoryview(chunk) as rest:
            at = 0
            while at < len(rest):
                room = PIECE_SIZE - len(self._gathered)
                self._gathered += rest[at : at + room]
                at += room
                if len(self._gathered) == PIECE_SIZE:
                    await self._send()
        self._size_bytes += len(chunk)

    async def copy_from(self, file: int, size_max_bytes: int) -> int:
        self._admit(size_max_bytes)
        before = self._size_bytes
        while missing := before + size_max_bytes - self._size_bytes:
            room = PIECE_SIZE - len(self._gathered)
            was_spent, self._is_spent = self._is_spent, True
            with as_storage_errors():
                piece = await to_thread.run_sync(os.read, file, min(room, missing))
            self._is_spent = was_spent
            if not piece:
                break
            self._gathered += piece
            self._size_bytes += len(piece)
            if len(self._gathered) == PIECE_SIZE:
                await self._send()
        return self._size_bytes - before

    async def commit(self) -> BlobStat:
        if self._is_spent:
            raise StorageError("the blob was committed before, or could not be written")
        if self._gathered:
            await self._send()
        self._is_spent = True
        stat = BlobStat(self._size_bytes, self._hash.hexdigest())
        await self._objects.run(self._point, encode_pointer(Pointer(self._content, PIECE_SIZE, stat)))
        return stat

    async def discard(self) -> None:
        """Removes the pieces, unless a pointer may name them. What cannot be removed now is left to a sweep."""
        if not self._is_left:
            with suppress(StorageError):
                await self._objects.delete([piece_name(self._key, self._content, n) for n in range(self._count)])

    def _admit(self, size_bytes: int) -> None:
        if self._size_bytes + size_bytes > self._size_max_bytes:
            self._is_spent = True
            raise StorageFull(f"the blob would exceed its limit of {self._size_max_bytes} bytes")

    async def _send(self) -> None:
        """Sends the gathered bytes."""
        piece, self._gathered = self._gathered, bytearray()
        name = piece_name(self._key, self._content, self._count)
        self._count += 1
        was_spent, self._is_spent = self._is_spent, True
        try:
            await self._objects.run(self._put, name, piece)
        except StorageError:
            self._is_left = True
            raise
        self._is_spent = was_spent

    def _put(self, name: str, piece: bytearray) -> None:
        self._check_pause()
        self._hash.update(piece)
        self._objects.put_now(name, piece)
        self._last_sent_at = monotonic()

    def _point(self, pointer: bytes) -> None:
        self._check_pause()
        self._is_left = True
        self._objects.put_now(pointer_name(self._key), pointer)

    def _check_pause(self) -> None:
        if self._last_sent_at is not None and monotonic() - self._last_sent_at > PAUSE_MAX_S:
            raise StorageError(f"less than {PIECE_SIZE} bytes came in {PAUSE_MAX_S:g} s, expected more")


def piece_name(key: str, content: str, index: int) -> str:
    return f"{content_folder(key, content)}/{index:06d}"


def encode_pointer(pointer: Pointer) -> bytes:
    return json.dumps(
        {
            "content": pointer.content,
            "piece_size": pointer.piece_size,
            "size_bytes": pointer.stat.size_bytes,
            "sha256": pointer.stat.sha256,
        }
    ).encode()


def decode_pointer(value: bytes) -> Pointer:
    """Returns what `encode_pointer` was given.

    Raises:
        StorageError: the value is none of ours.
    """
    try:
        match json.loads(value):
            case {"content": str(content), "piece_size": int(piece), "size_bytes": int(size), "sha256": str(sha256)}:
                if piece > 0 and size >= 0 and _CONTENT.fullmatch(content) and _SHA256.fullmatch(sha256):
                    return Pointer(content, piece, BlobStat(size, sha256))
    except ValueError:
        pass
    raise StorageError("an object where a blob's pointer belongs is none: nothing else may write to the prefix")
