"""Records in one SQLite file, which the embedded default keeps."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread

from .interface import Record, StorageError, StorageFull, VersionConflict
from .keys import check_key, check_prefix

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FORMAT: Final = 1
"""The file's `user_version`. A file of another format is refused, never guessed at."""

# The version of a record is its row number: AUTOINCREMENT never gives one out twice, also after a delete.
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


class SqliteRecords:
    """See `Records` for the laws.

    One connection, used by one worker thread at a time, so that the event loop never waits for the disk. The folder is
    made with mode 0700 if it is missing, the file has 0600.

    Args:
        path: the file; made if it is missing.

    Raises:
        StorageError: the file cannot be used: not a database, or of another format.
        OSError: it, or its folder, cannot be made.
    """

    def __init__(self, path: str, *, now_unix: Callable[[], float] = time.time) -> None:
        self._now_unix = now_unix
        self._turn = CapacityLimiter(1)
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # The file first, with its mode: SQLite gives the -wal and -shm files the same one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
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

        def save() -> int:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                if if_version is not None:
                    found = self._find(key)
                    version = found.version if found is not None else 0
                    if version != if_version:
                        raise VersionConflict(f"record {key} is at version {version}, expected {if_version}")
                inserted = self._db.execute(
                    "INSERT OR REPLACE INTO records (key, value, expires_at_unix) VALUES (?, ?, ?)",
                    (key, bytes(value), expires_at_unix),
                )
            assert inserted.lastrowid is not None
            return inserted.lastrowid

        return await self._run(save)

    async def delete(self, key: str) -> bool:
        check_key(key)

        def delete() -> bool:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                was_live = self._find(key) is not None
                self._db.execute("DELETE FROM records WHERE key = ?", (key,))
            return was_live

        return await self._run(delete)

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        check_prefix(prefix)
        # Page by page, so that no transaction stays open between two steps of a slow reader. DEL follows, and SOH
        # precedes, every character that a key may hold.
        start, end = prefix, prefix + "\x7f"
        while True:
            page = await self._run(self._page, start, end)
            for key, record in page:
                yield key, record
            if len(page) < _PAGE_RECORDS:
                return
            start = page[-1][0] + "\x01"

    async def purge(self, now_unix: float) -> int:
        def purge() -> int:
            return self._db.execute("DELETE FROM records WHERE expires_at_unix <= ?", (now_unix,)).rowcount

        return await self._run(purge)

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

    async def _run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        try:
            return await to_thread.run_sync(work, *args, limiter=self._turn)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise StorageFull("the disk is full") from error
            raise StorageError(f"the records cannot be used: {error}") from error


def _open(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, FORMAT):
            raise StorageError(f"the records are of format {found}, expected {FORMAT}")
        db.execute("PRAGMA journal_mode = WAL")
        # FULL: what was saved survives a power failure, not only a crash of the process.
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        db.close()
        raise
    return db
