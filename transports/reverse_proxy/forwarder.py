"""Transparent servers: requests are forwarded to them and responses brought back, without inspecting the messages.

The engine has no part in it. A `Forwarder` knows the servers and keeps connections to them. An `UpstreamRequest` is one
request and its response, or the bytes that follow a switch to WebSocket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import ByteStream, TaskGroup

from ...core.base.errors import LocalProtocolError
from ...core.base.limits import Limits
from ...core.wire.http.reverse_proxy import HeaderRules, Sender, is_upgrade, request_headers
from ...core.wire.http.reverse_proxy_exchange import ForwardedExchange, ForwardFailed, ForwardPlan
from ...core.wire.http.reverse_proxy_target import ForwardTarget
from ...core.wire.http.routes import ForwardRoute, Head
from ..base.anyio_wire import StreamWire
from ..base.asyncio_wire import ProtocolWire
from ..base.clock import loop_clock
from ..base.decompressors import added_coding
from ..base.dialer import Dialer, Unreachable
from ..base.driver import DRIVE, Drive, uses_protocols
from ..base.endpoint import Endpoint
from ..base.stream_socket import socket_of
from ..base.transport_stream import transport_of
from .client_side import ClientSide
from .connection import UpstreamConnection
from .request import UpstreamRequest

_log: Final = logging.getLogger("isthmus.http")


class NobodyThere(ForwardFailed):
    """Raised when the server's address refuses connections."""


@dataclass
class TransparentServer:
    """A server whose traffic is forwarded as it is.

    Args:
        target: translates the URLs that it names; None: another replica, whose URLs are right as they are.
        reply_timeout_s: from a request's last byte to its response's head; None: `Limits.forward_reply_timeout_s`.
        plans_max: the connections up to which each plan gets one of its own. The other side need not parse a head that
            repeats the last one of its connection. At it: a further plan takes the connection that was idle longest.
    """

    endpoint: Endpoint
    target: ForwardTarget | None
    rules: HeaderRules
    reply_timeout_s: float | None = None
    plans_max: int = 0
    idle: list[UpstreamConnection] = field(default_factory=list)  # in the order of their last use
    links: int = 0  # open connections, in use or idle
    streams: int = 0  # those of them that carry an event stream a client listens on

    def take_idle(self, plan: ForwardPlan) -> UpstreamConnection | None:
        """Takes an idle connection: one that has carried a request with this plan, else that used last. Returns None if
        another one is to be opened."""
        idle = self.idle
        for at in range(len(idle) - 1, -1, -1):
            if idle[at].plan is plan:
                return idle.pop(at)
        if not idle or self.links < self.plans_max:
            return None
        return idle.pop(0 if self.plans_max else -1)


class Forwarder:
    """All transparent servers of a listener. Connections are made, and carry bytes, while its context is open. Leaving
    it closes all of them.

    Args:
        drive: the way in which bytes are moved. With protocols, a connection without TLS has no task.
    """

    def __init__(self, servers: Mapping[str, TransparentServer], limits: Limits, drive: Drive = DRIVE) -> None:
        self._servers: dict[str, TransparentServer] = {}
        self._limits = limits
        self._drive = drive
        self._diallers: dict[str, Dialer] = {}
        self._names: dict[str, str] = {}
        for id, server in servers.items():
            dialer = Dialer(server.endpoint, server.endpoint.address(), limits)
            self.add(id, server, dialer, dialer.address.authority.decode())
        self._links: set[UpstreamConnection] = set()
        self._calls: set[UpstreamRequest] = set()
        self._no_calls = anyio.Event()
        self._now: Callable[[], float]
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._now = loop_clock()
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        for link in list(self._links):
            link.stop()
        return await tasks.__aexit__(kind, error, traceback)

    @property
    def targets(self) -> dict[str, ForwardTarget]:
        return {id: server.target for id, server in self._servers.items() if server.target is not None}

    def add(self, id: str, server: TransparentServer, dialer: Dialer, name: str) -> None:
        """Adds a server. `name` stands for it in messages to people."""
        self._servers[id] = server
        self._diallers[id] = dialer
        self._names[id] = name

    def remove(self, id: str) -> None:
        """Removes a server without connections."""
        server = self._servers.pop(id)
        assert not server.links
        del self._diallers[id], self._names[id]

    # --- Requests ---------------------------------------------------------------------------------------------------

    def plan(self, route: ForwardRoute, head: Head, sender: Sender) -> ForwardPlan:
        """Returns the form in which requests with this head go to the server."""
        dialer = self._diallers[route.server]
        rules, authority = self._servers[route.server].rules, dialer.address.authority
        return ForwardPlan(
            head.method,
            route.target,
            request_headers(head, rules, authority=authority, sender=sender),
            is_upgrade=is_upgrade(head),
            prefix=dialer.target_prefix,
            proxy_headers=tuple(dialer.proxy_headers),
        )

    def begin(self, server: str, plan: ForwardPlan, size_bytes: int | None, client: ClientSide) -> UpstreamRequest:
        """Returns the request that is passed on to `server`, and brings the response to `client`. It has not started
        yet.

        Args:
            size_bytes: the length of its body; None for a chunked one.
        """
        known = self._servers[server]
        exchange = ForwardedExchange(
            plan,
            size_bytes,
            name=self._names[server],
            rules=known.rules,
            target=known.target,
            limits=self._limits,
            reply_timeout_s=known.reply_timeout_s or self._limits.forward_reply_timeout_s,
            added=added_coding,
        )
        return UpstreamRequest(self, server, plan, size_bytes, exchange, self._diallers[server], client)

    def note_begin(self, request: UpstreamRequest) -> None:
        """Records that a request is under way, until `note_end`."""
        if request.is_call:
            self._calls.add(request)

    def note_end(self, request: UpstreamRequest) -> None:
        self._calls.discard(request)
        if not self._calls:
            self._no_calls.set()

    async def wait_no_calls(self) -> None:
        """Returns when no request is under way. Event streams that a client listens on do not count."""
        while self._calls:
            self._no_calls = anyio.Event()
            await self._no_calls.wait()

    # --- Connections ------------------------------------------------------------------------------------------------

    async def probe(self, id: str) -> str:
        """Connects to a server and closes the connection. Returns why the server cannot be reached; empty if it can."""
        try:
            stream = await self._connect(id)
        except ForwardFailed as error:
            return error.detail
        await anyio.aclose_forcefully(stream)
        return ""

    def take(self, id: str, plan: ForwardPlan, *, is_call: bool, is_new: bool = False) -> UpstreamConnection | None:
        """Takes an idle connection to the server, or a place for a new one. The caller must pass the connection to
        `take_back` or `drop`, or `open` one.

        Args:
            plan: of the request. A connection that has carried one with the same plan is preferred: both of its ends
                know that head.
            is_call: for a request, rather than an event stream to listen on. Each kind has its own limit.
            is_new: do not use an idle connection.

        Raises:
            ForwardFailed: no connection is available.
        """
        server, limits = self._servers[id], self._limits
        if not is_call and server.streams >= limits.upstream_streams_max:
            detail = f"overloaded: {server.streams} streams of this server are open"
            raise ForwardFailed(503, "overloaded", detail)
        while not is_new and (link := server.take_idle(plan)) is not None:
            if not link.has_input():
                link.is_stream = not is_call
                server.streams += link.is_stream
                return link
            self.drop(link)
        busy = server.links - server.streams
        if is_call and busy >= limits.upstream_connections_max:
            raise ForwardFailed(503, "overloaded", f"overloaded: {busy} connections to this server are busy")
        server.links += 1
        server.streams += not is_call
        return None

    async def open(self, id: str, *, is_call: bool) -> UpstreamConnection:
        """Opens a connection in a place that was taken with `take`.

        Raises:
            ForwardFailed: there is no connection, and the place is given back.
            LocalProtocolError: the context is not open.
        """
        server = self._servers[id]
        try:
            stream = await self._connect(id)
            if self._tasks is None:
                await anyio.aclose_forcefully(stream)
                raise LocalProtocolError("got a request for a forwarder whose context is not open")
        except BaseException:
            server.links -= 1
            server.streams -= not is_call
            raise
        link = UpstreamConnection(self, id, self._limits, only_h11=self._drive.only_h11)
        link.is_stream = not is_call
        link.watch(socket_of(stream))
        self._links.add(link)
        transport = transport_of(stream) if uses_protocols(self._drive.protocols) else None
        if transport is not None:
            protocol = ProtocolWire(self._limits.write_timeout_s)
            link.wire, protocol.connection = protocol, link
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            protocol.read(True)
        else:
            wire = StreamWire(stream, self._limits)
            link.wire, wire.connection = wire, link
            self._tasks.start_soon(self._carry, wire)
        return link

    async def _carry(self, wire: StreamWire) -> None:
        """Moves the bytes of a connection until it is closed. It may outlast the cancellation of its host, as requests
        may finish then."""
        with anyio.CancelScope(shield=True):
            try:
                await wire.run()
            except Exception:  # a failure with one server must not disturb others
                _log.exception("a connection to a server failed")

    async def _connect(self, id: str) -> ByteStream:
        try:
            return await self._diallers[id].connect()
        except Unreachable as error:
            status, code = (504, "upstream_timed_out") if error.is_timeout else (502, "upstream_unreachable")
            raise (NobodyThere if error.is_refused else ForwardFailed)(status, code, str(error)) from None

    def take_back(self, link: UpstreamConnection) -> None:
        """Takes back a connection whose response is complete, for another request."""
        server = self._servers[link.server]
        if len(server.idle) < self._limits.pool_idle_max and link.recycle():
            link.idle_since = self._now()
            server.streams -= link.is_stream
            link.is_stream = False
            server.idle.append(link)
        else:
            self.drop(link)

    def drop(self, link: UpstreamConnection) -> None:
        """Closes a connection that is not idle."""
        if link in self._links:
            self._links.discard(link)
            server = self._servers[link.server]
            server.links -= 1
            server.streams -= link.is_stream
            link.close()

    def discard(self, link: UpstreamConnection) -> None:
        """Closes an idle connection, because something came that no request asked for, or its end."""
        idle = self._servers[link.server].idle
        if link in idle:
            idle.remove(link)
        self.drop(link)

    async def close_idle(self, *, since: float = float("inf")) -> None:
        """Closes idle connections that were last used at `since` or before; by default all."""
        for server in self._servers.values():
            while server.idle and server.idle[0].idle_since <= since:
                self.drop(server.idle.pop(0))
