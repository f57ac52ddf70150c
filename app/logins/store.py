"""The credentials of logins, on disk: one sealed file for each login, shared by all processes of one user.

A record is replaced by a rename, so it is read whole without a lock. The system frees a lock when its process ends in
any way. A record is on the disk before its lock is released.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

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
)
from .sealing import Cipher, StoreError, UnreadableRecord, load_cipher, sync_folder

LOCK_POLL_S: Final = 0.05

_T = TypeVar("_T")


class CredentialStore:
    """The records in one folder, which is made with the first of them.

    Args:
        folder: it and all in it are for their owner alone.
        environ: has `ISTHMUS_STORE_KEY`, 32 bytes as 64 hex digits or base64. Without it, the key is in the file
            `store.key` of the folder, which is made on first use.
        lock_timeout_s: seconds to wait for the lock of a record.
    """

    def __init__(
        self, folder: str, environ: Mapping[str, str] = os.environ, *, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self.folder = folder
        self._environ = environ
        self._lock_timeout_s = lock_timeout_s
        self._loaded: Cipher | None = None

    async def read(self, key: LoginKey) -> bytes | None:
        """Returns a record; None if there is none.

        Raises:
            UnreadableRecord: it cannot be read.
            StoreError: the folder or the key cannot be used.
        """
        return await self._in_thread(partial(self._read, key))

    @asynccontextmanager
    async def lock(self, key: LoginKey, *, timeout_s: float | None = None) -> AsyncIterator[HeldFile]:
        """Locks a record, for other processes and within this one, until the context is left.

        Args:
            timeout_s: seconds to wait for it; None: `lock_timeout_s`.

        Raises:
            RecordLocked: another has held it for that long.
            StoreError: the folder cannot be used.
        """
        wait_s = self._lock_timeout_s if timeout_s is None else timeout_s
        path = os.path.join(self.folder, key.name + ".lock")
        lock = await self._in_thread(partial(self._open_lock, path))
        try:
            with anyio.move_on_after(wait_s) as limit:
                while not _try_lock(lock):  # noqa: ASYNC110 - a thread that waits cannot be cancelled
                    await anyio.sleep(LOCK_POLL_S)
            if limit.cancelled_caught:
                seen = f"another process has been logging in or refreshing for {wait_s:g} s"
                raise RecordLocked(f"{seen}: end the one that has {path} open")
            yield HeldFile(self, key)
        finally:
            os.close(lock)

    async def is_locked(self, key: LoginKey) -> bool:
        """True if a process holds the lock of a record.

        Raises:
            StoreError: the folder cannot be used.
        """
        return await self._in_thread(partial(self._is_locked, os.path.join(self.folder, key.name + ".lock")))

    async def records(self, about: LoginKey | None = None) -> list[ListedRecord]:
        """Lists all records, `RECORDS_MAX` at most, and with them those that cannot be read.

        Raises:
            StoreError: the folder or the key cannot be used.
        """
        return await self._in_thread(self._list)

    def changed_at(self) -> int:
        try:
            return os.stat(self.folder).st_mtime_ns
        except OSError:
            return 0

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Does `work` to its end, even if the caller is cancelled."""
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as error:
            raise StoreError(f"cannot use the folder of credentials {self.folder}: {error.strerror or error}") from None

    # --- In threads -------------------------------------------------------------------------------------------------

    def _read(self, key: LoginKey) -> bytes | None:
        path = os.path.join(self.folder, key.name)
        sealed = _read_file(path)
        if sealed is None:
            return None
        return self._open(sealed, path, key).record

    def _open(self, sealed: bytes, path: str, key: LoginKey | None = None) -> Content:
        name = os.path.basename(path)
        try:
            content = msgspec.json.decode(self._cipher().open(sealed, name), type=Content)
        except msgspec.DecodeError:
            raise UnreadableRecord(f"{path}: a later version of isthmus wrote it; it is kept") from None
        except UnreadableRecord as error:
            raise UnreadableRecord(f"{path}: {error}; it is kept") from None
        if key is not None and content.key != key:
            raise UnreadableRecord(f"{path}: it is of another login; it is kept")
        return content

    def write(self, key: LoginKey, record: bytes) -> None:
        """Replaces a record. Blocks. Its lock must be held: use `HeldFile.write`."""
        if len(record) > RECORD_MAX_BYTES:
            raise StoreError(f"got a record of {len(record)} bytes, expected {RECORD_MAX_BYTES} at most")
        self._make_folder()
        path = os.path.join(self.folder, key.name)
        sealed = self._cipher().seal(msgspec.json.encode(Content(key, record)), key.name)
        made = path + ".new"  # left by a process that was killed, it is written over
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(made, flags, 0o600), "wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
        self._keep(key, path)
        os.replace(made, path)
        sync_folder(self.folder)

    def remove(self, key: LoginKey, seen: bytes) -> bool:
        """Removes a record if it still is `seen`. Blocks. Its lock must be held: use `HeldFile.remove`."""
        if self._read(key) != seen:
            return False
        os.unlink(os.path.join(self.folder, key.name))
        sync_folder(self.folder)
        return True

    def _keep(self, key: LoginKey, path: str) -> None:
        """Gives what is at `path` another name if it cannot be read."""
        try:
            self._read(key)
        except UnreadableRecord:
            for number in range(1, KEPT_MAX + 1):
                kept = f"{path}.kept-{number}"
                with contextlib.suppress(FileExistsError):
                    os.link(path, kept, follow_symlinks=False)
                    return
            reason = f"{KEPT_MAX} unreadable records of this login are kept already"
            raise StoreError(f"{reason}: remove those you do not need, {path}.kept-*") from None

    def _list(self) -> list[ListedRecord]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(SUFFIX) or ".kept-" in name)
        except FileNotFoundError:
            return []
        found = []
        for name in names[:RECORDS_MAX]:
            path = os.path.join(self.folder, name)
            try:
                sealed = _read_file(path)
                if sealed is not None:
                    content = self._open(sealed, path.partition(".kept-")[0])
                    found.append(ListedRecord(path, content.key, content.record))
            except UnreadableRecord as error:
                found.append(ListedRecord(path, problem=str(error)))
        return found

    def _cipher(self) -> Cipher:
        if self._loaded is None:
            self._make_folder()
            self._loaded = load_cipher(self.folder, self._environ)
        return self._loaded

    def _make_folder(self) -> None:
        """Makes the folder, or checks that it is its owner's alone."""
        parent = os.path.dirname(self.folder)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.folder, 0o700)
        found = os.stat(self.folder)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid():
            raise StoreError(
                f"{self.folder} belongs to another user, expected a folder of this one's: set XDG_STATE_HOME"
            )
        if mode & 0o077:
            seen = f"{self.folder} is open to others (mode {mode:04o})"
            raise StoreError(f"{seen}, expected 0700: chmod 700 {self.folder}")

    def _is_locked(self, path: str) -> bool:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            return not _try_lock(lock)
        finally:
            os.close(lock)

    def _open_lock(self, path: str) -> int:
        self._make_folder()
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class HeldFile:
    """A record whose lock is held. Each method ends its work even if its caller is cancelled."""

    def __init__(self, store: CredentialStore, key: LoginKey) -> None:
        self._store = store
        self._key = key

    def check(self) -> None:
        """The lock is held until it is released."""

    async def read(self) -> bytes | None:
        """Returns the record, as `CredentialStore.read`."""
        return await self._store.read(self._key)

    async def write(self, record: bytes) -> None:
        """Replaces the record. It is on the disk when this returns. One that cannot be read is kept under another name.

        Raises:
            StoreError: nothing was written.
        """
        await self._store._in_thread(partial(self._store.write, self._key, record))

    async def remove(self, seen: bytes) -> bool:
        """Removes the record if it still is `seen`. Returns False if it is another, or there is none.

        Raises:
            UnreadableRecord, StoreError: as `CredentialStore.read`. Nothing was removed.
        """
        return await self._store._in_thread(partial(self._store.remove, self._key, seen))


def default_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the folder of credentials. Source: XDG Base Directory Specification, where relative paths are ignored."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "isthmus", "credentials")


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_file(path: str) -> bytes | None:
    """Returns the content of a regular file; None if there is none.

    Raises:
        UnreadableRecord: it is something else, too large, or may not be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableRecord(f"{path}: {error.strerror}; it is kept") from None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableRecord(f"{path}: it is no file; it is kept")
        content = opened.read(2 * RECORD_MAX_BYTES + 1)
    if len(content) > 2 * RECORD_MAX_BYTES:
        raise UnreadableRecord(f"{path}: it is larger than a record; it is kept")
    return content
