"""Notices through LISTEN and NOTIFY of PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from .keys import check_key
from .notices import Listener, listen
from .postgres import PostgresRecords

if TYPE_CHECKING:
    from .postgres_connections import Connection


class PostgresNotices:
    """Notices among all openers of one table. See `Notices`.

    A subscriber has a connection of its own, beside those of the records. A pooler between Isthmus and PostgreSQL has
    to give it one for good: LISTEN does not work where connections change with each transaction.

    Args:
        records: the opener; its connections publish, and not after it is closed.
    """

    def __init__(self, records: PostgresRecords) -> None:
        self._records = records

    async def publish(self, topic: str) -> None:
        check_key(topic)

        def publish(connection: Connection) -> None:
            connection.execute(b"select pg_notify(%s, %s)", (self._records.table, topic))

        await self._records.calls.run(self._records.connections.call, publish)

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return listen(self._connect)

    def _connect(self) -> Listener:
        return self._records.connections.listen(self._records.table)
