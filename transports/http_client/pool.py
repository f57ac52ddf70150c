"""The connections to one origin, and who waits for one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...core.base.effects import Cause, End
from ..base.dialer import Dialler
from ..base.endpoint import Address, Endpoint
from .connection import Connection

if TYPE_CHECKING:
    from .client import HttpClient
    from .exchange import Exchange


class Pool:
    """The connections to one origin. While exchanges wait, none is idle and there are as many as may be.

    Streams that last have a share of their own, of all origins: `HttpClient` admits them, and then they wait no more.
    What they hold is not counted here, so that however many there are, calls have all of theirs.
    """

    def __init__(self, client: HttpClient, endpoint: Endpoint, address: Address) -> None:
        self.address = address
        self.client = client
        self.dialler = Dialler(endpoint, address, client.limits)
        self.waiting: deque[Exchange] = deque()
        self.idle: list[Connection] = []  # the last used is the first used again
        self._connections = 0
        self._lasting = 0  # exchanges that last, with a connection or about to have one

    def dispatch(self, exchange: Exchange) -> None:
        """Find `exchange` a connection, now or later."""
        limit = self.client.limits.upstream_connections_max
        if self.idle:
            connection = self.idle.pop()
            del self.client.unheld[connection]
            connection.take(exchange)
        elif exchange.is_lasting or self._connections - self._lasting < limit:
            self._connections += 1
            connection = Connection(self)
            self.client.start(connection, self.dialler)
            connection.take(exchange)
        elif len(self.waiting) < limit:
            self.waiting.append(exchange)
        else:
            detail = f"overloaded: {limit} connections to this server are busy and as many requests wait"
            self.client.end_soon(exchange, Cause(End.UNREACHABLE, detail, unsent=True))

    def take_back(self, connection: Connection) -> bool:
        """A connection can be used again. False if there is no use for it."""
        if self._connections - self._lasting > self.client.limits.upstream_connections_max:
            return False  # it had a stream that lasts, and there are enough for calls
        if self.waiting:
            self.client.unheld.pop(connection, None)
            connection.take(self.waiting.popleft())
            return True
        if len(self.idle) >= self.client.limits.pool_idle_max:
            return False
        self.idle.append(connection)
        self.client.note_unheld(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection cannot be used again; whether it is closed yet does not matter."""
        if connection in self.idle:
            self.idle.remove(connection)
        self.client.unheld.pop(connection, None)

    def forget_idle(self) -> None:
        """Close all connections that nobody uses."""
        for connection in list(self.idle):
            connection.give_up()

    def release(self) -> None:
        """A connection is closed: another may be opened."""
        self._connections -= 1

    def note_lasting(self, change: int) -> None:
        """So many exchanges more are streams that last, or fewer."""
        self._lasting += change
        self.client.lasting += change

    def dispatch_waiting(self) -> None:
        if self.waiting and self._connections - self._lasting < self.client.limits.upstream_connections_max:
            self.dispatch(self.waiting.popleft())
