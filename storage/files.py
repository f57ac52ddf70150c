"""Blobs as files in one folder, with all metadata in their names.

A committed blob is the file `<key>~<serial>~<sha256>`, with the key's slashes written as `+`. It is written under a
temporary name (`~…`), synced to disk, then renamed. So it exists whole or not at all, and its hash needs no second file
that could disagree. A commit takes a greater serial than any before. Of two files with one key the greater serial
counts; the other is left only by a crash between commit and removal, and the next `sweep` removes it.

Several processes may use the folder (`shared_folder`). Each keeps an index of it, and reads the names again when
another one has changed them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import cache
from typing import Final, NamedTuple

from anyio import CancelScope, Lock, to_thread
from anyio.lowlevel import checkpoint

from .file_drafts import WRITE_SIZE, FileDrafts, as_storage_errors
from .interface import CHUNK_SIZE_MAX, BlobStat, BlobWriter, Chunk, DraftWriter, NotStored, StorageError, StorageFull
from .kernel_copy import copy_in_kernel
from .keys import check_key
from .shared_folder import SharedFolder

_NAME: Final = re.compile(r"(?P<key>[A-Za-z0-9._+-]+)~(?P<serial>[0-9a-f]{1,16})~(?P<sha256>[0-9a-f]{64})")
_READ_SIZE: Final = 1024 * 1024
"""Bytes that a worker thread reads and hashes at a time."""
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
FLUSHERS_MAX: Final = 4
"""Threads that write uploads. A disk is not faster with more, and each hashes as fast as a core can."""
_COPY_SIZE: Final = 32 * 1024 * 1024
"""Bytes copied in one call into a worker thread. Between two calls the caller can be cancelled."""


class _Entry(NamedTuple):
    stat: BlobStat
    serial: int
    name: str


class FileBlobs:
    """Blobs in a folder of the file system. See `Blobs` for the laws.

    The folder is created with mode 0700 if it is missing; files have mode 0600. Files with names of another form are
    left alone. Any number of processes of this machine may use the folder.

    Args:
        root: the folder.

    Raises:
        OSError: the folder cannot be created or read.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        self._turn = Lock()  # one change of the folder's names, or look at them, at a time
        self._folder = SharedFolder(self._root)
        self._index: dict[str, _Entry] = {}
        with self._folder.reading() as count:
            self._index, _ = self._survey()
        serial_max = max((entry.serial for entry in self._index.values()), default=0)
        if count < serial_max:  # the count was lost, or an earlier version kept none
            with self._folder.changing(serial_max) as (_, own):
                self._index, _ = self._survey()
            count = own + 1
        self._count = count  # the folder's count that the index is true of
        self._temporary: set[str] = set()  # names of open writers
        self._drafts = FileDrafts(self._root, self.adopt, self._folder.temporary_name)

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncIterator[BlobWriter]:
        writer = FileWriter(self, check_key(key), size_max_bytes, self._folder.temporary_name())
        self._temporary.add(writer.name)
        try:
            with as_storage_errors():
                await to_thread.run_sync(writer.open)
            yield writer
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(writer.discard)
            self._temporary.discard(writer.name)

    def extend(self, key: str, *, offset: int, size_max_bytes: int) -> AbstractAsyncContextManager[DraftWriter]:
        return self._drafts.extend(key, offset, size_max_bytes)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[Chunk]:
        check_key(key)
        if start < 0 or (stop is not None and stop < 0):
            raise ValueError(f"got the range {start}:{stop}, expected bounds of 0 or more")
        entry, fd = await self._open(key)
        end = entry.stat.size_bytes if stop is None else min(stop, entry.stat.size_bytes)
        try:
            while start < end:
                size = min(CHUNK_SIZE_MAX, end - start)
                chunk: Chunk = _read_cached(fd, size, start)
                if chunk:
                    await checkpoint()  # else a reader of much cached data would keep others waiting
                else:
                    with as_storage_errors():
                        chunk = await to_thread.run_sync(os.pread, fd, size, start)
                if not chunk:
                    raise StorageError(f"blob {key} is shorter than the {entry.stat.size_bytes} bytes it had")
                start += len(chunk)
                yield chunk
        finally:
            os.close(fd)

    async def stat(self, key: str) -> BlobStat | None:
        entry = (await self._current()).get(check_key(key))
        return None if entry is None else entry.stat

    async def delete(self, key: str) -> bool:
        await self._drafts.delete(key)
        if key not in await self._current():
            return False
        # Shielded: the index and the folder change together. Each step is short.
        was_there = False
        with CancelScope(shield=True), as_storage_errors():
            async with self._turn:
                was_there = await to_thread.run_sync(self._delete, key)
        return was_there

    async def keys(self) -> AsyncIterator[str]:
        for key in sorted(list(await self._current())):  # noqa: C414 (a copy first: a thread may change the index)
            yield key

    def path_for(self, key: str) -> str | None:
        entry = self._index.get(check_key(key))
        return None if entry is None or self._folder.count() != self._count else self._path(entry.name)

    async def sweep(self) -> int:
        with as_storage_errors():
            async with self._turn:
                return await to_thread.run_sync(self._sweep)

    async def aclose(self) -> None:
        """Lets go of the folder. Drafts are leftovers from now on."""
        self._folder.close()

    async def adopt(self, key: str, name: str, stat: BlobStat) -> None:
        """Commits a file that is complete and synced under the temporary name `name`, as the blob of `key`."""
        with CancelScope(shield=True):
            async with self._turn:
                await to_thread.run_sync(self._commit, key, name, stat)

    async def _open(self, key: str) -> tuple[_Entry, int]:
        """Opens the file of a blob. Returns its entry and the descriptor."""
        while True:
            entry = (await self._current()).get(key)
            if entry is None:
                raise NotStored(f"there is no blob {key}")
            count = self._count
            with as_storage_errors():
                fd = await to_thread.run_sync(self._open_file, entry.name)
            if fd is not None:
                return entry, fd
            if self._folder.count() == count:
                raise NotStored(f"the file of blob {key} is gone")

    async def _current(self) -> dict[str, _Entry]:
        """Returns the index, read again if another process has changed the folder."""
        with as_storage_errors():
            if self._folder.count() != self._count:
                async with self._turn:
                    await to_thread.run_sync(self._refresh)
        return self._index

    # --- In a worker thread -------------------------------------------------------------------------------------------

    def _open_file(self, name: str) -> int | None:
        with suppress(FileNotFoundError):
            return os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _refresh(self) -> None:
        with self._folder.reading() as count:
            if count != self._count:
                self._index, _ = self._survey()
                self._count = count

    @contextmanager
    def _changing(self) -> Iterator[int]:
        """Lets this opener alone change the folder, with a true index. Returns the serial of the change. If it fails,
        the index is read again."""
        with self._folder.changing() as (before, own):
            if before != self._count:
                self._index, _ = self._survey()
            yield own
        self._count = own + 1

    def _commit(self, key: str, temporary: str, stat: BlobStat) -> None:
        with self._changing() as serial:
            entry = _Entry(stat, serial, f"{key.replace('/', '+')}~{serial:x}~{stat.sha256}")
            self._publish(temporary, entry.name)
            older = self._index.get(key)
            self._index[key] = entry
            if older is not None:
                # The new file counts already; an old one that cannot be removed now goes with the next sweep.
                with suppress(OSError):
                    os.unlink(self._path(older.name))

    def _delete(self, key: str) -> bool:
        with self._changing():
            entry = self._index.get(key)
            if entry is None:
                return False
            with suppress(FileNotFoundError):
                os.unlink(self._path(entry.name))
            del self._index[key]
            self._sync()
        return True

    def _sweep(self) -> int:
        with self._changing():
            self._index, older = self._survey()
            used = self._temporary | self._drafts.names
            doomed = [*self._folder.left(os.listdir(self._root), used), *older]
            self._remove(doomed)
        return len(doomed)

    def _publish(self, temporary: str, name: str) -> None:
        os.replace(self._path(temporary), self._path(name))
        try:
            self._sync()
        except OSError:
            # It is unknown whether the rename is on disk, and the caller is told that it failed: undo it if possible.
            with suppress(OSError):
                os.unlink(self._path(name))
            raise

    def _survey(self) -> tuple[dict[str, _Entry], list[str]]:
        """Reads the folder's names. Returns its blobs, and the names of files that a newer blob has replaced."""
        known = {entry.name: entry for entry in self._index.values()}
        index: dict[str, _Entry] = {}
        older: list[str] = []
        for name in os.listdir(self._root):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            entry = known.get(name)
            if entry is None:
                found = os.lstat(self._path(name))
                if not stat.S_ISREG(found.st_mode):
                    continue
                entry = _Entry(BlobStat(found.st_size, match["sha256"]), int(match["serial"], 16), name)
            key = match["key"].replace("+", "/")
            other = index.get(key)
            if other is not None:
                entry, replaced = (entry, other) if entry.serial > other.serial else (other, entry)
                older.append(replaced.name)
            index[key] = entry
        return index, older

    def _remove(self, names: list[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))

    def _sync(self) -> None:
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)


@cache
def flushers() -> ThreadPoolExecutor:
    """Returns the threads that write received data while more arrives."""
    return ThreadPoolExecutor(FLUSHERS_MAX, thread_name_prefix="isthmus-flush")


class FileWriter:
    """A writer of one file. See `BlobWriter` for the laws. `FileBlobs.create` calls `open` and `discard`, in a worker
    thread."""

    def __init__(self, blobs: FileBlobs, key: str, size_max_bytes: int, name: str) -> None:
        self.key = key
        self.name = name
        self._blobs = blobs
        self._path = blobs._path(name)
        self._size_max_bytes = size_max_bytes
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        self._gathered = bytearray()
        self._flushing: Future[None] | None = None
        self._fd = -1
        self._is_spent = False

    async def write(self, chunk: bytes) -> None:
        if self._size_bytes + len(chunk) > self._size_max_bytes:
            self._is_spent = True
            raise StorageFull(f"the blob would exceed its limit of {self._size_max_bytes} bytes")
        self._size_bytes += len(chunk)
        piece: bytes | bytearray = chunk
        if self._gathered or len(chunk) < WRITE_SIZE:
            piece = self._gathered
            piece += chunk
            if len(piece) < WRITE_SIZE:
                return
        await self._settle()
        if piece is self._gathered:
            self._gathered = bytearray()
        self._flushing = flushers().submit(self._flush, piece)

    async def copy_from(self, file: int, size_max_bytes: int) -> int:
        if self._size_bytes + size_max_bytes > self._size_max_bytes:
            self._is_spent = True
            raise StorageFull(f"the blob would exceed its limit of {self._size_max_bytes} bytes")
        await self._run_flush(is_last=False)
        was_spent, self._is_spent = self._is_spent, True
        before = self._size_bytes
        while missing := before + size_max_bytes - self._size_bytes:
            with as_storage_errors():
                count = await to_thread.run_sync(self._copy, file, min(missing, _COPY_SIZE))
            if not count:
                break
            self._size_bytes += count
        self._is_spent = was_spent
        return self._size_bytes - before

    async def commit(self) -> BlobStat:
        if self._is_spent:
            raise StorageError("the blob was committed before, or could not be written")
        await self._run_flush(is_last=True)
        self._is_spent = True
        stat = BlobStat(self._size_bytes, self._hash.hexdigest())
        with as_storage_errors():
            await self._blobs.adopt(self.key, self.name, stat)
        return stat

    async def _run_flush(self, *, is_last: bool) -> None:
        await self._settle()
        was_spent, self._is_spent = self._is_spent, True  # until the flush is known to have worked
        with as_storage_errors():
            await to_thread.run_sync(self._flush_gathered, is_last)
        self._is_spent = was_spent

    async def _settle(self) -> None:
        """Returns when the piece being written is written. At most one is, while the next is gathered."""
        if self._flushing is None:
            return
        was_spent, self._is_spent = self._is_spent, True
        with as_storage_errors():
            if self._flushing.done():
                self._flushing.result()
            else:
                await to_thread.run_sync(self._flushing.result)
        self._flushing, self._is_spent = None, was_spent

    def _copy(self, file: int, size_max_bytes: int) -> int:
        copied = copy_in_kernel(file, self._fd, size_max_bytes)
        if not copied:
            self._gathered += os.read(file, min(size_max_bytes, _READ_SIZE))
            count = len(self._gathered)
            self._flush_gathered(False)
            return count
        # Hash the copied bytes, since the source file may have changed by now.
        end = os.lseek(self._fd, 0, os.SEEK_CUR)
        for at in range(end - copied, end, _READ_SIZE):
            self._hash.update(os.pread(self._fd, min(_READ_SIZE, end - at), at))
        return copied

    def _flush_gathered(self, is_last: bool) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._flush(gathered)
        if is_last:
            os.fsync(self._fd)

    def _flush(self, piece: bytes | bytearray) -> None:
        self._hash.update(piece)
        with memoryview(piece) as rest:
            at = 0
            while at < len(rest):
                at += os.write(self._fd, rest[at:])

    def open(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def discard(self) -> None:
        """Closes the file, and removes it if it still has its temporary name."""
        if self._flushing is not None:
            wait([self._flushing])
        if self._fd >= 0:
            with suppress(OSError):  # committed data was synced before
                os.close(self._fd)
            with suppress(OSError):  # it was committed and renamed, or the next sweep removes it
                os.unlink(self._path)


def _read_cached(file: int, size: int, at: int) -> bytearray:
    """Returns those of the bytes, from the first on, that the kernel has in memory. Returns nothing where reading would
    wait for the disk, at the end of the file, and on systems without RWF_NOWAIT: a worker thread, a call into which
    costs as much as reading 1 MiB, has to read then.

    Source: Linux, preadv2(2): RWF_NOWAIT, "Do not wait for data which is not immediately available".
    """
    if _NOWAIT is None:
        return bytearray()
    chunk = bytearray(size)
    try:
        count = os.preadv(file, [chunk], at, _NOWAIT)
    except OSError:  # the worker thread will meet any other error too
        return bytearray()
    if count < size:
        del chunk[count:]
    return chunk
