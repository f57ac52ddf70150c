"""Transparent servers: requests are forwarded to them and responses brought back, without inspecting the messages.

The engine has no part in it. A `Forwarder` knows the servers and keeps connections to them. A `ForwardedExchange` is
one request and its response, or the bytes that follow a switch to WebSocket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio
from anyio.abc import ByteStream

from ...core.base.limits import Limits
from ...core.wire.http.reverse_proxy import HeaderRules, Sender
from ...core.wire.http.reverse_proxy_target import ForwardTarget
from ...core.wire.http.routes import ForwardRoute, Head
from ..base.clock import loop_clock
from ..base.dialer import Dialer, Unreachable
from ..base.endpoint import Endpoint
from .connection import UpstreamConnection
from .request import ClientSide, ForwardedExchange, ForwardFailed


@dataclass
class TransparentServer:
    """A server whose traffic is forwarded as it is.

    Args:
        reply_timeout_s: from a request's last byte to its response's head; None: `Limits.forward_reply_timeout_s`.
    """

    endpoint: Endpoint
    target: ForwardTarget
    rules: HeaderRules
    reply_timeout_s: float | None = None
    idle: list[UpstreamConnection] = field(default_factory=list)  # last in, first out
    links: int = 0  # open connections, in use or idle
    streams: int = 0  # those of them that carry an event stream a client listens on


class Forwarder:
    """All transparent servers of a listener."""

    def __init__(self, servers: Mapping[str, TransparentServer], limits: Limits) -> None:
        self._servers = servers
        self._limits = limits
        self._diallers = {
            id: Dialer(server.endpoint, server.endpoint.address(), limits) for id, server in servers.items()
        }
        self._calls: set[ForwardedExchange] = set()
        self._no_calls = anyio.Event()
        self._now: Callable[[], float] | None = None

    @property
    def targets(self) -> dict[str, ForwardTarget]:
        return {id: server.target for id, server in self._servers.items()}

    def begin(self, route: ForwardRoute, head: Head, sender: Sender, client: ClientSide) -> ForwardedExchange:
        """Returns the exchange that forwards this request and brings the response to `client`. It has not started
        yet."""
        server = self._servers[route.server]
        return ForwardedExchange(
            self,
            route,
            head,
            sender,
            client,
            target=server.target,
            rules=server.rules,
            dialer=self._diallers[route.server],
            limits=self._limits,
            reply_timeout_s=server.reply_timeout_s or self._limits.forward_reply_timeout_s,
        )

    def note_begin(self, exchange: ForwardedExchange) -> None:
        """Records that a request is under way, until `note_end`."""
        if exchange.is_call:
            self._calls.add(exchange)

    def note_end(self, exchange: ForwardedExchange) -> None:
        self._calls.discard(exchange)
        if not self._calls:
            self._no_calls.set()

    async def wait_no_calls(self) -> None:
        """Returns when no request is under way. Event streams that a client listens on do not count."""
        while self._calls:
            self._no_calls = anyio.Event()
            await self._no_calls.wait()

    async def probe(self, id: str) -> str:
        """Connects to a server and closes the connection. Returns why the server cannot be reached; empty if it can."""
        try:
            stream = await self._connect(id)
        except ForwardFailed as error:
            return error.detail
        await anyio.aclose_forcefully(stream)
        return ""

    async def link(self, id: str, *, is_call: bool, is_new: bool = False) -> UpstreamConnection:
        """Returns a connection to the server. The caller must pass it to `take_back` or `drop`.

        Args:
            is_call: for a request, rather than an event stream to listen on. Each kind has its own limit.
            is_new: do not use an idle connection.

        Raises:
            ForwardFailed: no connection is available.
        """
        server, limits = self._servers[id], self._limits
        if not is_call and server.streams >= limits.upstream_streams_max:
            detail = f"overloaded: {server.streams} streams of this server are open"
            raise ForwardFailed(503, "overloaded", detail)
        server.streams += not is_call
        try:
            link = await self._link(id, server, is_call=is_call, is_new=is_new)
        except BaseException:
            server.streams -= not is_call
            raise
        link.is_stream = not is_call
        return link

    async def _link(self, id: str, server: TransparentServer, *, is_call: bool, is_new: bool) -> UpstreamConnection:
        while server.idle and not is_new:
            link = server.idle.pop()
            if link.is_alive():
                return link
            await self.drop(id, link)
        busy = server.links - server.streams
        if is_call and busy >= self._limits.upstream_connections_max:
            raise ForwardFailed(503, "overloaded", f"overloaded: {busy} connections to this server are busy")
        server.links += 1
        try:
            return UpstreamConnection(await self._connect(id), self._limits)
        except BaseException:
            server.links -= 1
            raise

    async def _connect(self, id: str) -> ByteStream:
        try:
            return await self._diallers[id].connect()
        except Unreachable as error:
            status, code = (504, "upstream_timed_out") if error.is_timeout else (502, "upstream_unreachable")
            raise ForwardFailed(status, code, str(error)) from None

    async def take_back(self, id: str, link: UpstreamConnection) -> None:
        """Takes back a connection whose response is complete, for another request."""
        server = self._servers[id]
        idle = server.idle
        if len(idle) < self._limits.pool_idle_max and link.recycle():
            self._now = self._now or loop_clock()
            link.idle_since = self._now()
            server.streams -= link.is_stream
            link.is_stream = False
            idle.append(link)
        else:
            await self.drop(id, link)

    async def drop(self, id: str, link: UpstreamConnection) -> None:
        self._servers[id].links -= 1
        self._servers[id].streams -= link.is_stream
        await link.close()

    async def close_idle(self, *, since: float = float("inf")) -> None:
        """Closes idle connections that were last used at `since` or before; by default all."""
        for id, server in self._servers.items():
            while server.idle and server.idle[0].idle_since <= since:
                await self.drop(id, server.idle.pop(0))
