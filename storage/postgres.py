"""Records in one table of a PostgreSQL database, shared by any number of processes."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from .interface import Record, RecordsReport, StorageError, VersionConflict
from .keys import check_key, check_prefix
from .remote import ANSWER_TIMEOUT_S, CALLS_MAX, TURN_TIMEOUT_S, RemoteCalls

if TYPE_CHECKING:
    from .postgres_connections import Connection

FORMAT: Final = 1
"""The format of the table, which its comment says. A table of another format is refused."""
INSTALL: Final = "pip install 'isthmus[postgres]'"

_TABLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_PAGE_RECORDS: Final = 256
_BEFORE: Final = "\x01"
"""A character that sorts before all that a key may hold."""
_AFTER: Final = "\x7f"
"""A character that sorts after all that a key may hold."""

_NOW: Final = "coalesce(%(now)s::float8, extract(epoch from clock_timestamp())::float8)"
_LIVE: Final = f"(expires_at_unix is null or expires_at_unix > {_NOW})"
_SPAN: Final = "key >= %(start)s and key < %(end)s"
_TURN: Final = "with turn as materialized (select pg_advisory_xact_lock(%(lock)s))"
"""The beginning of a statement that does its work after it has the lock."""
_COMMENT: Final = "isthmus records, format "


class PostgresRecords:
    """Records in PostgreSQL 12 or newer. See `Records` for the laws.

    There is one table and one sequence, which gives the versions. They are created if they are missing, so a role that
    may not create tables can use those that another role has made. `delete_all` is one statement: other openers see all
    of its records or none.

    The constructor connects, and blocks meanwhile. Each call takes a connection, and makes one if none is free, so the
    store works again as soon as the server does.

    Args:
        dsn: a URL, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, or a string of keywords, as libpq reads it.
        table: the table's name: a lower-case letter or `_`, then up to 39 of `a-z 0-9 _`.
        now_unix: the clock that judges expiry; None: the server's.
        calls_max: the number of connections, at most.
        turn_timeout_s: seconds that a call waits for a connection while others use all of them.
        answer_timeout_s: seconds that the server may take for one answer; connecting may take 2 at least.

    Raises:
        StorageError: the database cannot be used, the table is of another format, or psycopg is not installed.
        ValueError: `table` is no such name.
    """

    def __init__(
        self,
        dsn: str,
        *,
        table: str = "isthmus_records",
        now_unix: Callable[[], float] | None = None,
        calls_max: int = CALLS_MAX,
        turn_timeout_s: float = TURN_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        if _TABLE.fullmatch(table) is None:
            raise ValueError(f"got the table name {table!r}, expected a-z, 0-9 and _, and at most 40 of them")
        try:
            from .postgres_connections import PostgresConnections
        except ImportError as error:
            raise StorageError(f"PostgreSQL needs a package that is not installed: {INSTALL}") from error
        self.table: Final = table
        self.connections: Final = PostgresConnections(dsn, answer_timeout_s=answer_timeout_s)
        self.calls: Final = RemoteCalls(calls_max=calls_max, turn_timeout_s=turn_timeout_s)
        self._now_unix = now_unix
        self._sql = _Statements(table)
        self.connections.call(self._open_table)

    async def load(self, key: str) -> Record | None:
        check_key(key)
        rows = await self._run(self._sql.load, key=key)
        return Record(*rows[0]) if rows else None

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        check_key(key)
        statement = self._sql.replace if if_version is None else self._sql.update if if_version else self._sql.insert
        rows = await self._run(
            statement,
            key=key,
            value=bytes(value),
            expires=expires_at_unix,
            version=if_version,
            lock=_lock_number(f"{self.table}/{key}"),
        )
        if not rows:
            raise VersionConflict(f"record {key} is not at version {if_version}")
        version = rows[0][0]
        assert isinstance(version, int)
        return version

    async def delete(self, key: str) -> bool:
        check_key(key)
        return any(was_live for (was_live,) in await self._run(self._sql.delete, key=key))

    async def delete_all(self, prefix: str) -> int:
        check_prefix(prefix)
        return await self._count(self._sql.delete_all, start=prefix, end=prefix + _AFTER, lock=_lock_number(self.table))

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        check_prefix(prefix)
        # Page by page, so that no connection is kept while a slow reader takes its time.
        start, end = prefix, prefix + _AFTER
        while True:
            page = await self._run(self._sql.page, start=start, end=end)
            for key, value, version, expires_at_unix in page:
                yield key, Record(value, version, expires_at_unix)
            if len(page) < _PAGE_RECORDS:
                return
            start = page[-1][0] + _BEFORE

    async def purge(self, now_unix: float) -> int:
        return await self._count(self._sql.purge, until=now_unix, lock=_lock_number(self.table))

    async def now_unix(self) -> float:
        ((now,),) = await self._run(self._sql.now)
        assert isinstance(now, float)
        return now

    async def examine(self) -> RecordsReport:
        def examine(connection: Connection) -> RecordsReport:
            before = time.time()
            ((now,),) = connection.execute(self._sql.now, {"now": None}, binary=True).fetchall()
            skew_s = now - (before + time.time()) / 2
            (row,) = connection.execute(self._sql.settings).fetchall()
            version, durability, count = row[0], _durability(*row[1:4]), row[4]
            return RecordsReport("PostgreSQL", version, durability, skew_s, count)

        return await self.calls.run(self.connections.call, examine)

    async def aclose(self) -> None:
        self.calls.close()
        await to_thread.run_sync(self.connections.close)

    async def _run(self, statement: bytes, **values: object) -> list[tuple[Any, ...]]:
        def run(connection: Connection) -> list[tuple[Any, ...]]:
            now = None if self._now_unix is None else self._now_unix()
            return connection.execute(statement, {**values, "now": now}, binary=True).fetchall()

        return await self.calls.run(self.connections.call, run)

    async def _count(self, statement: bytes, **values: object) -> int:
        ((count,),) = await self._run(statement, **values)
        assert isinstance(count, int)
        return count

    def _open_table(self, connection: Connection) -> None:
        """Creates the table if it is missing. Of several openers at the same time, the others wait for the first."""
        with connection.transaction():
            connection.execute(b"select pg_advisory_xact_lock(%s)", (_lock_number(self.table),))
            (row,) = connection.execute(self._sql.find, {"table": self.table}).fetchall()
            is_there, comment = row
            if not is_there:
                for statement in self._sql.create:
                    connection.execute(statement)
                return
        if comment is None or not comment.startswith(_COMMENT):
            raise StorageError(f"the table {self.table} holds no records of Isthmus: expected one that it has created")
        found = comment.removeprefix(_COMMENT)
        if found != str(FORMAT):
            raise StorageError(
                f"the table {self.table} is of format {found}, expected {FORMAT}: another version of Isthmus uses it"
            )


class _Statements:
    """The statements for one table.

    A version is drawn when the row is locked, or the key has a lock of its own while there may be no row. Otherwise a
    writer could draw a version, and store it after another writer has stored a greater one.
    """

    def __init__(self, table: str) -> None:
        version = f"nextval('{table}_version')"
        insert = (
            f"{_TURN} insert into {table} as old (key, value, version, expires_at_unix)"
            f" select %(key)s, %(value)s::bytea, {version}, %(expires)s::float8 from turn on conflict (key) do update"
            f" set value = excluded.value, version = {version}, expires_at_unix = excluded.expires_at_unix"
        )
        self.load = f"select value, version, expires_at_unix from {table} where key = %(key)s and {_LIVE}".encode()
        self.replace = f"{insert} returning version".encode()
        self.insert = f"{insert} where old.expires_at_unix <= {_NOW} returning version".encode()
        self.update = (
            f"update {table} set value = %(value)s, version = {version}, expires_at_unix = %(expires)s::float8"
            f" where key = %(key)s and version = %(version)s and {_LIVE} returning version"
        ).encode()
        self.delete = f"delete from {table} where key = %(key)s returning {_LIVE}".encode()
        # With a lock, as two that remove the same rows in another order would wait for each other.
        gone = f"{_TURN}, gone as (delete from {table} using turn where"
        self.delete_all = (
            f"{gone} {_SPAN} returning {_LIVE} as was_live) select count(*) filter (where was_live) from gone".encode()
        )
        self.purge = f"{gone} expires_at_unix <= %(until)s returning 1) select count(*) from gone".encode()
        self.page = (
            f"select key, value, version, expires_at_unix from {table} where {_SPAN} and {_LIVE}"
            f" order by key limit {_PAGE_RECORDS}"
        ).encode()
        self.now = f"select {_NOW}".encode()
        self.settings = (
            "select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),"
            f" current_setting('full_page_writes'), (select count(*) from {table})"
        ).encode()
        self.find = (
            b"select to_regclass(%(table)s) is not null, obj_description(to_regclass(%(table)s)::oid, 'pg_class')"
        )
        self.create = (
            f'create table {table} (key text collate "C" primary key, value bytea not null, version bigint not null,'
            " expires_at_unix double precision)".encode(),
            f"create sequence {table}_version".encode(),
            f"create index {table}_by_expiry on {table} (expires_at_unix) where expires_at_unix is not null".encode(),
            f"comment on table {table} is '{_COMMENT}{FORMAT}'".encode(),
        )


def _lock_number(name: str) -> int:
    """The number of an advisory lock. Two names with one number only wait for each other."""
    return int.from_bytes(hashlib.blake2b(f"isthmus/{name}".encode(), digest_size=8).digest(), "big", signed=True)


def _durability(fsync: str, synchronous_commit: str, full_page_writes: str) -> str:
    if fsync == "off":
        return "everything may be lost when the machine of PostgreSQL dies (fsync is off)"
    if synchronous_commit == "off":
        return "about a second of saves is lost when PostgreSQL dies (synchronous_commit is off)"
    if full_page_writes == "off":
        return "every answer is on disk, but a power failure may damage pages (full_page_writes is off)"
    return "every answer is on disk"
