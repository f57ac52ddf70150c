"""HTTP/1.1 to upstream servers: requests on pooled connections, responses handed on as they are read.

`HttpClient` takes orders, `Exchange` is one request and its response, `Pool` has the connections to one origin, and
`Connection` reads and writes. No time limit on a reply is kept in any of them, and none on silence: that is the
engine's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ..core.effects import Cause, Delete, Listen, Post
from ..core.errors import LocalProtocolError
from ..core.ids import ChannelId
from ..core.limits import Limits
from ..core.wire.http_client import ReplyReader
from .clock import loop_clock
from .http_client_connection import Connection
from .http_client_exchange import Exchange, Headers, Reader, Route, stopped
from .http_endpoint import Endpoint
from .http_pool import Pool
from .port import Port

_log: Final = logging.getLogger("isthmus.http")


class HttpClient:
    """Carries out `Dial`s to HTTP servers while its context is open; use it once.

    Leaving the context closes every connection and reports every channel that is still open. Memory is bounded by
    `limits` for each origin; origins are as many as the endpoints ever dialled.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.unheld: dict[Connection, float] = {}
        """Connections that no exchange holds, with the time since when, oldest first."""
        self._routes: dict[Endpoint, Route] = {}
        self._pools: dict[tuple[str, str, int, bool, str | None], Pool] = {}
        self._has_unheld = anyio.Event()
        self._now: Callable[[], float]
        self._tasks: TaskGroup | None = None
        self._is_stopping = False

    async def __aenter__(self) -> HttpClient:
        self._now = loop_clock()
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
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, error, traceback)
        finally:
            self._tasks = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """The context as a task, open until it is cancelled."""
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
    ) -> Exchange:
        """Send the request for `target`; `port` hears of `channel` what comes of it, and never before this returns.

        Args:
            reader: what its response is fed to; None: a `ReplyReader`.
            path: path and query to ask for instead of the endpoint's own.

        Raises:
            LocalProtocolError: the context is not open, or `target` cannot be put into headers. Nothing was sent.
        """
        if self._tasks is None:
            raise LocalProtocolError("got a dial to an HTTP client that does not run, expected its context to be open")
        route = self._routes.get(endpoint)
        if route is None:
            route = self._routes[endpoint] = self._new_route(endpoint)
        exchange = Exchange(route, target, channel, port, reader or ReplyReader(target, self.limits), path)
        if self._is_stopping:
            self.end_soon(exchange, stopped(is_unsent=True))
        else:
            route.pool.dispatch(exchange)
        return exchange

    def start(self, connection: Connection) -> None:
        """Let a new connection live."""
        assert self._tasks is not None
        self._tasks.start_soon(self._run, connection)

    def end_soon(self, exchange: Exchange, cause: Cause) -> None:
        """Report the end from a task of its own: the caller may be in the midst of carrying out orders."""
        assert self._tasks is not None
        self._tasks.start_soon(exchange.end_later, cause)

    def note_unheld(self, connection: Connection) -> None:
        """From now on, nobody holds `connection`; it has so long to be used again."""
        self.unheld.pop(connection, None)
        self.unheld[connection] = self._now()
        self._has_unheld.set()

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        except Exception:  # whatever went wrong with one connection must not take the others with it
            _log.exception("a connection to a server failed")

    def _new_route(self, endpoint: Endpoint) -> Route:
        address = endpoint.address()
        key = (address.scheme, address.host, address.port, endpoint.verify_tls, endpoint.ca_file)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self, endpoint, address)
        headers: Headers = [(b"host", address.authority)]
        own = endpoint.encoded_headers()
        if all(name != b"user-agent" for name, _ in own):
            headers.append((b"user-agent", b"isthmus"))
        headers += own
        return Route(pool, address.target, headers)

    async def _close_unused(self) -> None:
        """One timer for all connections that nobody holds; asleep while there are none."""
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
