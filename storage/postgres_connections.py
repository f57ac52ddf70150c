"""Connections to PostgreSQL: how they are made, kept and given up, and what their errors say. Needs psycopg."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from .interface import StorageError, StorageFull
from .remote import ANSWER_TIMEOUT_S, shown

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_KEEPALIVES: Final[dict[str, int]] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""Seconds, seconds and a count after which TCP notices that the machine of the server is gone."""


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which each request is answered within `answer_timeout_s`, or fails."""

    answer_timeout_s: float = ANSWER_TIMEOUT_S

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        return super().wait(_bounded(gen, self.answer_timeout_s), *args, **options)


def _bounded(steps: Generator[Any, Any, T], timeout_s: float) -> Generator[Any, Any, T]:
    """Goes through the steps of a request. psycopg makes a step ten times a second while there is no answer."""
    deadline = time.monotonic() + timeout_s
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise psycopg.OperationalError(f"PostgreSQL has not answered for {timeout_s:g} seconds")
            wanted = steps.send(ready)
    except StopIteration as done:
        result: T = done.value
        return result


class PostgresConnections:
    """Connections of one opener, kept between calls. All methods block; worker threads call them.

    There is no thread that connects in the background: a call that finds no connection makes one. So the first call
    after an outage succeeds, and a call during one says at once why it failed.

    Args:
        dsn: a URL or a string of keywords, as libpq reads it.

    Raises:
        StorageError: `dsn` cannot be read.
    """

    def __init__(self, dsn: str, *, answer_timeout_s: float) -> None:
        self._answer_timeout_s = answer_timeout_s
        self._idle: list[PatientConnection] = []
        self._is_closed = False
        try:
            self._options = conninfo_to_dict(dsn)
        except psycopg.Error:
            raise StorageError(  # from nothing, because libpq quotes the part that it did not understand
                "the address of the records cannot be read: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            ) from None
        self._secrets = [str(value) for key, value in self._options.items() if "password" in key and value]
        connect_timeout_s = max(2, round(answer_timeout_s))
        self._options = {
            "application_name": "isthmus",
            "client_encoding": "utf8",
            "connect_timeout": connect_timeout_s,
            "target_session_attrs": "read-write",
            **_KEEPALIVES,
            **self._options,
        }

    def call(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on a connection of its own.

        Raises:
            StorageError: it raised an error of psycopg, or there is no connection.
        """
        try:
            connection = self._take()
            try:
                return work(connection)
            finally:
                self._put_back(connection)
        except psycopg.Error as error:
            if isinstance(error, errors.ReadOnlySqlTransaction):
                self._drop_idle()  # this server is a standby now, and a new connection may find the primary
            raise self.translated(error) from error

    def connect(self) -> PatientConnection:
        """Returns a new connection, which the caller closes.

        Raises:
            psycopg.Error: there is none.
        """
        connection = PatientConnection.connect(autocommit=True, **self._options)  # type: ignore[arg-type]
        connection.answer_timeout_s = self._answer_timeout_s
        return connection

    def listen(self, channel: str) -> PostgresListener:
        """Returns a connection of its own that listens on `channel`, which is a table's name.

        Raises:
            StorageError: there is none.
        """
        try:
            connection = self.connect()
            try:
                connection.execute(f"listen {channel}".encode())
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise self.translated(error) from error
        return PostgresListener(self, connection)

    def translated(self, error: psycopg.Error) -> StorageError:
        if isinstance(error, errors.DiskFull):
            return StorageFull("the disk of PostgreSQL is full")
        return StorageError(f"the records cannot be used: {shown(error, self._secrets)}")

    def close(self) -> None:
        """Closes the connections that no call uses, and each other one when its call ends."""
        self._is_closed = True
        self._drop_idle()

    def _take(self) -> PatientConnection:
        while self._idle:
            with suppress(IndexError):  # another thread took the last one
                connection = self._idle.pop()
                if not _has_news(connection):
                    return connection
                connection.close()
        return self.connect()

    def _put_back(self, connection: PatientConnection) -> None:
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            # The server or the way to it is gone, or it does not answer. The other connections are no better.
            connection.close()
            self._drop_idle()
        elif self._is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


class PostgresListener:
    """A connection that listens on a channel. See `Listener`."""

    def __init__(self, connections: PostgresConnections, connection: PatientConnection) -> None:
        self._connections = connections
        self._connection = connection

    def read(self, timeout_s: float) -> list[str]:
        try:
            return [notice.payload for notice in self._connection.notifies(timeout=timeout_s, stop_after=1)]
        except psycopg.Error as error:
            raise self._connections.translated(error) from error

    def ask(self) -> None:
        try:
            self._connection.execute(b"select 1")
        except psycopg.Error as error:
            raise self._connections.translated(error) from error

    def close(self) -> None:
        self._connection.close()


def _has_news(connection: Connection) -> bool:
    """True if the server has closed the connection, or has sent something that nobody asked for."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
