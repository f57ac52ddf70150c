"""The pool of connections to one origin, and the queue of requests that wait for one."""

from __future__ import annotations

import functools
from collections import deque
from typing import TYPE_CHECKING

from ...core.base.events import Cause, End
from ..base.dialer import Dialer
from ..base.endpoint import Address, Endpoint
from .connection import Connection
from .http1_connection import Http1Connection

if TYPE_CHECKING:
    from .client import HttpClient
    from .exchange import Exchange
    from .http2_connection import Http2Connection


class Pool:
    """The connections to one origin. While exchanges wait, no connection is idle and as many are open as allowed.

    Event streams that last have a limit of their own, `Limits.upstream_streams_max`, for all origins together:
    `HttpClient` admits them, and then they never wait. Their connections do not count against the limit here, so that
    calls keep all of theirs.

    A server is spoken to in HTTP/1.1. One that refuses it is spoken to in HTTP/2 from then on, until it refuses that.
    """

    def __init__(self, client: HttpClient, endpoint: Endpoint, address: Address) -> None:
        self.address = address
        self.client = client
        self.dialer = Dialer(endpoint, address, client.limits)
        self.waiting: deque[Exchange] = deque()
        self._kind: type[Http1Connection | Http2Connection] = Http1Connection
        self.idle: list[Connection] = []  # last in, first out
        self._connections = 0
        self._lasting = 0  # event streams that last, with a connection or about to get one

    def dispatch(self, exchange: Exchange) -> None:
        """Gives `exchange` a connection, now or later, or ends it if too many wait."""
        limit = self.client.limits.upstream_connections_max
        if self.idle:
            connection = self.idle.pop()
            del self.client.unheld[connection]
            connection.take(exchange)
        elif exchange.is_lasting or self._connections - self._lasting < limit:
            self._connections += 1
            connection = self._kind(self)
            self.client.start(connection, self.dialer)
            connection.take(exchange)
        elif len(self.waiting) < limit:
            self.waiting.append(exchange)
        else:
            detail = f"overloaded: {limit} connections to this server are busy and as many requests wait"
            self.client.end_soon(exchange, Cause(End.UNREACHABLE, detail, unsent=True))

    def take_back(self, connection: Connection) -> bool:
        """Takes back a connection that can be used again. Returns False if it is not needed."""
        if self._connections - self._lasting > self.client.limits.upstream_connections_max:
            return False  # it carried an event stream, and calls have enough connections
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
        """Removes a connection that cannot be used again, closed or not."""
        if connection in self.idle:
            self.idle.remove(connection)
        self.client.unheld.pop(connection, None)

    @property
    def has_http2(self) -> bool:
        """True if the package for HTTP/2 is installed."""
        return _find_http2() is not None

    def leave(self, kind: type[Connection]) -> bool:
        """Opens further connections with the other version of HTTP than that of `kind`, which the server refused.
        Returns False if there is no other: the package is not installed, or a proxy is told the whole URL."""
        other = _find_http2() if kind is Http1Connection else Http1Connection
        if other is None or self.dialer.target_prefix:
            return False
        if self._kind is kind:
            self._kind = other
        return True

    def forget_idle(self) -> None:
        """Closes all idle connections."""
        for connection in list(self.idle):
            connection.give_up()

    def release(self) -> None:
        """Records that a connection is closed, so another may be opened."""
        self._connections -= 1

    def note_lasting(self, change: int) -> None:
        """Adds `change`, which may be negative, to the number of event streams that last."""
        self._lasting += change
        self.client.lasting += change

    def dispatch_waiting(self) -> None:
        if self.waiting and self._connections - self._lasting < self.client.limits.upstream_connections_max:
            self.dispatch(self.waiting.popleft())


@functools.cache
def _find_http2() -> type[Http2Connection] | None:
    """Returns the connection that speaks HTTP/2, if its package is installed. It is imported when a server first wants
    it."""
    try:
        from .http2_connection import Http2Connection
    except ModuleNotFoundError:
        return None
    return Http2Connection
