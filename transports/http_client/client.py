"""HTTP to upstream servers: requests on pooled connections, with responses reported as they are read.

`HttpClient` takes orders, an `Exchange` is one request and its response, a `Pool` has the connections to one origin,
and a `Connection` is one of them, in HTTP/1.1 or HTTP/2. A driver carries its bytes: over an anyio stream, or as an
asyncio protocol. None of them limits how long a response may take or be silent: the engine does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Final

import anyio
from anyio.abc import ByteStream, TaskGroup, TaskStatus

from ...core.base.budget import Budget
from ...core.base.effects import Delete, Listen, Post
from ...core.base.errors import LocalProtocolError
from ...core.base.events import Cause, End
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.wire.http.coded_response import Reader
from ...core.wire.http.egress import Proxy
from ...core.wire.http.request import RequestForms
from ..base.clock import loop_clock
from ..base.dialer import Dialer
from ..base.driver import uses_protocols
from ..base.endpoint import Endpoint
from ..base.port import Port
from ..base.tokens import UpstreamTokens
from ..base.transport_stream import transport_of
from .anyio_driver import StreamDriver
from .asyncio_connect import ConnectingDriver
from .asyncio_driver import ProtocolDriver
from .authorized_exchange import AuthorizedExchange
from .connection import Connection
from .exchange import Exchange, Route, stopped
from .pool import Pool

WARN_EVERY_S: Final = 60.0
"""Seconds between two warnings that streams are refused: each of thousands of sessions tries again and again."""

_log: Final = logging.getLogger("isthmus.http")


class HttpClient:
    """Carries out `Dial` orders to HTTP servers while its context is open. Use it once.

    Leaving the context closes every connection and reports the end of every open channel. Memory is bounded by `limits`
    for each origin; there are as many origins as the endpoints ever dialled have.

    Args:
        protocols: True to use asyncio protocols, where a connection can be one, False for streams; None: protocols if
            the event loop is asyncio's.
        only_h11: h11 reads and writes all of HTTP.
        replies: takes the bytes of messages that are arriving and are larger than most, for their server; None: this
            client alone has as much as the limits say.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        protocols: bool | None = None,
        only_h11: bool = False,
        replies: Budget | None = None,
    ) -> None:
        self.limits = limits
        self.replies = replies or Budget(limits.replies_max_bytes, limits.replies_per_server_max_bytes)
        self.only_h11 = only_h11
        self.unheld: dict[Connection, float] = {}
        """Connections that no exchange holds, with the time since when, oldest first."""
        self.lasting = 0
        """The number of open event streams that last as long as a session, to all origins."""
        self.queued: dict[Exchange, None] = {}
        """Event streams that wait for a place, longest waiting first."""
        self._warned_at = float("-inf")  # the last warning of too many streams
        self._routes: dict[Endpoint, Route] = {}
        self._pools: dict[tuple[str, str, int, bool, str | None, Proxy | None], Pool] = {}
        self._protocols = protocols
        self._uses_protocols = False
        self._drivers: set[ConnectingDriver | ProtocolDriver] = set()  # drivers with an open transport, or connecting
        self._all_lost = anyio.Event()  # set when the client stops and no driver is left
        self._has_unheld = anyio.Event()
        self._now: Callable[[], float]
        self._tasks: TaskGroup | None = None
        self._is_stopping = False

    async def __aenter__(self) -> HttpClient:
        self._now = loop_clock()
        self._uses_protocols = uses_protocols(self._protocols)
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        tasks.start_soon(self._close_unused)
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._is_stopping = True
        for pool in self._pools.values():
            while pool.waiting:
                pool.waiting.popleft().end(stopped(is_unsent=True))
        while self.queued:
            self._next_queued().end(stopped(is_unsent=True))
        self._tasks.cancel_scope.cancel()
        for driver in list(self._drivers):
            driver.stop()
        try:
            return await self._tasks.__aexit__(kind, error, traceback)
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                while self._drivers:
                    await self._all_lost.wait()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Opens the context and keeps it open until cancelled, to be run as a task."""
        async with self:
            task_status.started()
            await anyio.sleep_forever()

    def dial(
        self,
        endpoint: Endpoint,
        target: Post | Listen | Delete,
        channel: ChannelId,
        port: Port,
        *,
        reader: Reader | None = None,
        path: bytes | None = None,
        when_written: Callable[[], None] | None = None,
        tokens: UpstreamTokens | None = None,
    ) -> Exchange:
        """Sends the request for `target`. `port` receives the events of `channel`, none of them before this returns.

        Args:
            reader: parses the response; None: a `ResponseReader`.
            path: path and query to request instead of the endpoint's own.
            when_written: called each time the whole request is written, which may be before this returns: it is
                written once more after a redirect, or with another token.
            tokens: the tokens for the server; None: it wants none.

        Raises:
            LocalProtocolError: the context is not open, or `target` cannot be put into headers. Nothing was sent.
        """
        if self._tasks is None:
            raise LocalProtocolError("got a dial to an HTTP client that does not run, expected its context to be open")
        route = self._routes.get(endpoint)
        if route is None:
            route = self._routes[endpoint] = self._new_route(endpoint)
        if tokens is not None:
            return self._dial_authorized(route, target, channel, port, reader, path, when_written, tokens)
        exchange = Exchange(route, target, channel, port, reader, path)
        exchange.when_written = when_written
        if not (self._is_stopping or (target.is_lasting if isinstance(target, Post) else _is_stream(target))):
            route.pool.dispatch(exchange)
        else:
            self.admit(exchange, target, reader)
        return exchange

    def _dial_authorized(
        self,
        route: Route,
        target: Post | Listen | Delete,
        channel: ChannelId,
        port: Port,
        reader: Reader | None,
        path: bytes | None,
        when_written: Callable[[], None] | None,
        tokens: UpstreamTokens,
    ) -> Exchange:
        exchange = AuthorizedExchange(route, target, channel, port, reader, path, tokens)
        exchange.when_written = when_written
        if exchange.is_waiting and not self._is_stopping:
            self.start_task(exchange.authorize)
        else:
            self.admit(exchange, target, reader)
        return exchange

    def admit(self, exchange: Exchange, target: Post | Listen | Delete, reader: Reader | None) -> None:
        """Gives an exchange to its pool, or one for an event stream that lasts a place, now or later."""
        if self._is_stopping:
            self.end_soon(exchange, stopped(is_unsent=True))
        elif not (target.is_lasting if isinstance(target, Post) else _is_stream(target)):
            exchange.dispatch()
        elif self.lasting < self.limits.upstream_streams_max:
            exchange.take_place()
        elif isinstance(target, Listen) and reader is None:
            self.queued[exchange] = None
            self.start_task(exchange.report_queued)
            self._warn()
        else:
            self.end_soon(exchange, Cause(End.UNREACHABLE, self._warn(), unsent=True))

    def admit_queued(self) -> None:
        """Gives a free place to the event stream that has waited longest, if there is one."""
        if self.queued and not self._is_stopping and self.lasting < self.limits.upstream_streams_max:
            self._next_queued().take_place()

    def _next_queued(self) -> Exchange:
        exchange = next(iter(self.queued))
        del self.queued[exchange]
        return exchange

    def _warn(self) -> str:
        """Logs that there are too many streams, once in `WARN_EVERY_S`. Returns the text."""
        detail = f"overloaded: {self.lasting} streams of servers are open, the most there may be"
        if self._now() - self._warned_at >= WARN_EVERY_S:
            self._warned_at = self._now()
            _log.warning("%s; until some end, further sessions do without what their servers say unasked", detail)
        return detail

    def start(self, connection: Connection, dialer: Dialer) -> None:
        """Gives a new connection its driver."""
        assert self._tasks is not None
        if self._uses_protocols and dialer.is_direct and not self._is_stopping:
            take_over = partial(self._take_over, connection)
            connection.driver = connecting = ConnectingDriver(connection, dialer, take_over, self._note_lost)
            self._drivers.add(connecting)
            connecting.start()
        else:
            take = partial(self._hand_over, connection)
            connection.driver = driver = StreamDriver(connection, dialer, self.limits.read_size_bytes, take)
            self._tasks.start_soon(driver.run)

    def end_soon(self, exchange: Exchange, cause: Cause) -> None:
        """Ends an exchange in a task of its own, because the caller may be in the midst of carrying out orders."""
        self.start_task(partial(exchange.end_later, cause))

    def start_task(self, report: Callable[[], Coroutine[object, object, None]]) -> None:
        """Starts a task that ends with the client's context."""
        assert self._tasks is not None
        self._tasks.start_soon(report)

    def note_unheld(self, connection: Connection) -> None:
        """Records that no exchange holds `connection`. It is closed after `Limits.pool_idle_timeout_s` unless it is
        used again."""
        self.unheld.pop(connection, None)
        if not self.unheld:
            self._has_unheld.set()
        self.unheld[connection] = self._now()

    def _hand_over(self, connection: Connection, stream: ByteStream) -> bool:
        """Makes an asyncio protocol of a new connection. Returns False if it stays a stream."""
        transport = transport_of(stream) if self._uses_protocols else None
        return transport is not None and self._take_over(connection, transport)

    def _take_over(self, connection: Connection, transport: asyncio.Transport) -> bool:
        if self._is_stopping:
            return False
        driver = ProtocolDriver(connection, transport, self._note_lost)
        self._drivers.add(driver)
        connection.driver = driver
        driver.start()
        return True

    def _note_lost(self, driver: ConnectingDriver | ProtocolDriver) -> None:
        self._drivers.discard(driver)
        if self._is_stopping and not self._drivers:
            self._all_lost.set()

    def _new_route(self, endpoint: Endpoint) -> Route:
        address = endpoint.address()
        key = (address.scheme, address.host, address.port, endpoint.verify_tls, endpoint.ca_file, endpoint.proxy)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self, endpoint, address)
        headers = [(b"host", address.authority), *pool.dialer.proxy_headers]
        own = endpoint.encoded_headers()
        if all(name != b"user-agent" for name, _ in own):
            headers.append((b"user-agent", b"isthmus"))
        headers += own
        return Route(pool, address.target, headers, RequestForms(headers))

    async def _close_unused(self) -> None:
        """Closes connections that were unused for too long. One timer serves them all; it sleeps while there are
        none."""
        while True:
            await self._has_unheld.wait()
            oldest = next(iter(self.unheld), None)
            if oldest is None:
                self._has_unheld = anyio.Event()
                continue
            rest_s = self.unheld[oldest] + self.limits.pool_idle_timeout_s - self._now()
            if rest_s > 0:
                await anyio.sleep(rest_s)
            else:
                oldest.give_up()


def _is_stream(target: Listen | Delete) -> bool:
    """True if the reply lasts as long as the session, so that it must not take one of the connections kept for
    calls."""
    return isinstance(target, Listen) and not target.is_of_call
