"""Records in one SQLite file: the default of the gateway."""

from __future__ import annotations

import functools
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, Generic, NoReturn, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, Lock, to_thread

from .interface import Record, RecordsReport, StorageError, StorageFull, VersionConflict
from .keys import check_key, check_prefix

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FORMAT: Final = 1
"""The file's `user_version`. A file of another format is refused."""

# The version of a record is its row number: AUTOINCREMENT never assigns one twice, not even after a delete.
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS records (
        version INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL UNIQUE,
        value BLOB NOT NULL,
        expires_at_unix REAL
    );
    CREATE INDEX IF NOT EXISTS records_by_expiry ON records (expires_at_unix) WHERE expires_at_unix IS NOT NULL;
"""
_LIVE: Final = "(expires_at_unix IS NULL OR expires_at_unix > :now)"
_PAGE_RECORDS: Final = 256
_LOCK_WAIT_S: Final = 20.0
"""Seconds that a change waits for those of other processes. Each takes the time of a write to disk, and a process that
was stopped meanwhile is not waited for longer than `Limits.storage_timeout_s` lets a client wait."""
_BATCH_MAX: Final = 256
"""Changes in one transaction, at most."""
_OPEN_RETRY_S: Final = 0.02

_BEFORE: Final = "\x01"
"""A character that sorts before all that a key may hold."""
_AFTER: Final = "\x7f"
"""A character that sorts after all that a key may hold."""


class SqliteRecords:
    """Records in one SQLite file. See `Records` for the laws.

    Any number of processes of this machine may use the file. Each has one connection, used by one worker thread at a
    time, so that the event loop never waits for the disk. Changes requested at the same time share a transaction. The
    folder is created with mode 0700 if it is missing; the file has mode 0600.

    Args:
        path: the file; created if it is missing.

    Raises:
        StorageError: the file cannot be used: it is no database, or has another format.
        OSError: the file or its folder cannot be created.
    """

    def __init__(self, path: str, *, now_unix: Callable[[], float] = time.time) -> None:
        self._now_unix = now_unix
        self._turn = CapacityLimiter(1)
        self._writing = Lock()
        self._writes: list[_Write[Any]] = []
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # The file first, with its mode: SQLite gives the -wal and -shm files the same one. One that is there is not
        # opened: closing it would free the locks that another connection of this process has on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.chmod(path, 0o600)
        try:
            self._db = _open(path)
        except sqlite3.Error as error:
            raise StorageError(f"the records cannot be opened: {error}") from error

    async def load(self, key: str) -> Record | None:
        check_key(key)
        return await self._run(self._find, key)

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        check_key(key)
        value = bytes(value)

        def save() -> int:
            if if_version is not None:
                found = self._find(key)
                version = found.version if found is not None else 0
                if version != if_version:
                    raise VersionConflict(f"record {key} is at version {version}, expected {if_version}")
            inserted = self._db.execute(
                "INSERT OR REPLACE INTO records (key, value, expires_at_unix) VALUES (?, ?, ?)",
                (key, value, expires_at_unix),
            )
            assert inserted.lastrowid is not None
            return inserted.lastrowid

        return await self._write(save)

    async def delete(self, key: str) -> bool:
        check_key(key)

        def delete() -> bool:
            was_live = self._find(key) is not None
            self._db.execute("DELETE FROM records WHERE key = ?", (key,))
            return was_live

        return await self._write(delete)

    async def delete_all(self, prefix: str) -> int:
        check_prefix(prefix)

        def delete_all() -> int:
            span = {"start": prefix, "end": prefix + _AFTER, "now": self._now_unix()}
            where = "WHERE key >= :start AND key < :end"
            live = self._db.execute(f"SELECT COUNT(*) FROM records {where} AND {_LIVE}", span).fetchone()[0]
            self._db.execute(f"DELETE FROM records {where}", span)
            assert isinstance(live, int)
            return live

        return await self._write(delete_all)

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        check_prefix(prefix)
        # Page by page, so that no transaction stays open between two steps of a slow reader.
        start, end = prefix, prefix + _AFTER
        while True:
            page = await self._run(self._page, start, end)
            for key, record in page:
                yield key, record
            if len(page) < _PAGE_RECORDS:
                return
            start = page[-1][0] + _BEFORE

    async def purge(self, now_unix: float) -> int:
        def purge() -> int:
            return self._db.execute("DELETE FROM records WHERE expires_at_unix <= ?", (now_unix,)).rowcount

        return await self._run(purge)

    async def now_unix(self) -> float:
        return self._now_unix()

    async def examine(self) -> RecordsReport:
        count = await self._run(lambda: self._db.execute("SELECT COUNT(*) FROM records").fetchone()[0])
        assert isinstance(count, int)
        return RecordsReport("SQLite", sqlite3.sqlite_version, "every answer is on disk", 0.0, count)

    async def aclose(self) -> None:
        await self._run(self._db.close)

    def _find(self, key: str) -> Record | None:
        row = self._db.execute(
            f"SELECT value, version, expires_at_unix FROM records WHERE key = :key AND {_LIVE}",
            {"key": key, "now": self._now_unix()},
        ).fetchone()
        return None if row is None else Record(*row)

    def _page(self, start: str, end: str) -> list[tuple[str, Record]]:
        rows = self._db.execute(
            "SELECT key, value, version, expires_at_unix FROM records"
            f" WHERE key >= :start AND key < :end AND {_LIVE} ORDER BY key LIMIT {_PAGE_RECORDS}",
            {"start": start, "end": end, "now": self._now_unix()},
        )
        return [(row[0], Record(*row[1:])) for row in rows]

    async def _write(self, work: Callable[[], T]) -> T:
        """Runs `work` in a transaction, together with other changes that were requested while an earlier transaction
        was being written to disk: writing to disk is what takes the time."""
        write = _Write(work)
        self._writes.append(write)
        try:
            async with self._writing:
                while not write.is_done:
                    batch, self._writes = self._writes[:_BATCH_MAX], self._writes[_BATCH_MAX:]
                    try:
                        await self._run(self._commit, batch)
                    finally:  # a transaction cancelled before it began leaves its changes to the next one
                        self._writes[:0] = [other for other in batch if not other.is_done]
        finally:
            if not write.is_done and write in self._writes:  # cancelled before its turn
                self._writes.remove(write)
        return write.outcome()

    def _commit(self, batch: list[_Write[Any]]) -> None:
        """Commits all changes of a batch, or none. A change that raises `VersionConflict` writes nothing, and the
        others are committed."""
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for write in batch:
                    write.run()
        except BaseException as error:
            for write in batch:
                write.outcome = functools.partial(_raise, _translated(error))
        for write in batch:
            write.is_done = True

    async def _run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await to_thread.run_sync(work, *args, limiter=self._turn)
        except sqlite3.Error as error:
            raise _translated(error) from error


class _Write(Generic[T]):
    """One change that waits for its transaction."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.is_done = False
        self.outcome: Callable[[], T]

    def run(self) -> None:
        try:
            result = self._work()
            self.outcome = lambda: result
        except VersionConflict as conflict:
            self.outcome = functools.partial(_raise, conflict)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _translated(error: BaseException) -> BaseException:
    if not isinstance(error, sqlite3.Error):
        return error
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        full = StorageFull("the disk is full")
        full.__cause__ = error
        return full
    failed = StorageError(f"the records cannot be used: {error}")
    failed.__cause__ = error
    return failed


def _open(path: str) -> sqlite3.Connection:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            return _connect(path)
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself where another process opens or closes the file at the same moment.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_OPEN_RETRY_S)


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, FORMAT):
            raise StorageError(f"the records are of format {found}, expected {FORMAT}")
        db.execute("PRAGMA journal_mode = WAL")
        # FULL: what was saved survives a power failure, not only a crash of the process.
        db.execute("PRAGMA synchronous = FULL")
        if found == 0:
            db.executescript(_SCHEMA)
            db.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        db.close()
        raise
    return db
