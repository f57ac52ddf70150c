"""The HTTP listener: Streamable HTTP for MCP clients, uploads, downloads and pages, on TCP, Unix sockets or any byte
stream."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from typing import Final, TypeVar

import anyio
import msgspec
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketListener, SocketStream, TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint
from anyio.streams.stapled import MultiListener

from ...core.access.gate import Gate
from ...core.access.issuer_answers import Wanted
from ...core.base.budget import Budget, address_owner
from ...core.base.limits import Limits
from ...core.wire.http.hop import HOP, HOP_MAX_BYTES, HopReceiver
from ...core.wire.http.routes import Surface
from ..base.backpressure import pause_until_read
from ..base.driver import uses_protocols
from ..base.keepalive import keep_alive
from ..base.port import FileService, Port
from ..base.stream_socket import peer_host_of
from ..base.traffic import Counts
from ..base.transport_stream import TransportStream
from ..reverse_proxy.forwarder import Forwarder
from ..reverse_proxy.replicas import Replicas
from ..tls.asyncio_transport import connect_tls
from ..tls.server import ServerTls
from ..tls.stream import TlsStream
from .anyio_driver import HttpStream
from .asyncio_driver import Connect, HttpProtocol
from .connection import Connection
from .reserve import NO_DESCRIPTOR, Reserve, turned_away
from .shared import OTHER_AREA, Pages, ServerContext

TURNED_AWAY_MAX: Final = 64
"""Connections beyond `Limits.connections_max` that are accepted to be answered with a 503, and connections answered so
before a pause when no descriptor is free. At it: no more connections are accepted."""
TURN_AWAY_S: Final = 1.0
"""The longest that a client which is turned away is waited for."""
ACCEPT_PAUSE_S: Final = 0.1
"""Seconds before accepting is tried again, when the system had no room for a connection."""
ACCEPT_LOG_EVERY_S: Final = 60.0
ARRIVAL_S: Final = 1.0
"""Seconds for requests that are arriving when no more connections are accepted. A balancer sends them at once."""
ARRIVAL_POLL_S: Final = 0.05
TURN_ACCEPTS: Final = 16
"""Connections accepted before others get their turn: some milliseconds of work. If it were one, a client would wait for
as many turns as connections came before its own."""
TURN_STREAMS: Final = 256
"""Connections kept alive before others get their turn: some milliseconds of work."""

# Errors of accept(2) that concern one connection, which is gone already or never came about.
_LOST: Final = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "ECONNRESET",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ENETDOWN",
        "ENETUNREACH",
        "ENONET",
        "ENOPROTOOPT",
        "EOPNOTSUPP",
        "EPERM",
        "EPROTO",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)
_UNUSABLE: Final = frozenset({errno.EBADF, errno.ENOTSOCK})

_log: Final = logging.getLogger("isthmus.http")

T = TypeVar("T")

OnEnd = Callable[[Connection | None], None]
"""A function called when a connection is over; None for one that was turned away."""


class HttpServer:
    """Serves any number of listeners, and connections handed to it one by one.

    Args:
        surface: the server's paths and host names.
        pages: answers requests for pages outside the protocol.
        scheme: `https` when the streams given to `handle` are TLS already.
        forwarder: forwards requests to the surface's transparent servers; needed if there are any.
        counts: counters of file transfers; None: not wanted.
        gate: decides who a request is from; None: nobody is asked.
        wait_for_issuer: returns when a request to an issuer that the gate wants is answered, or has failed; needed if
            the gate has issuers.
        replicas: passes requests on to other replicas; None: there are none.
        hops: checks requests that other replicas pass on: no others are served; None: this is no listener for replicas.
        only_h11: h11 reads and writes everything.
        protocols: True to serve listeners with asyncio protocols, False with streams; None: protocols wherever
            possible.
    """

    def __init__(
        self,
        surface: Surface,
        port: Port,
        files: FileService,
        limits: Limits,
        *,
        pages: Pages,
        scheme: str = "http",
        forwarder: Forwarder | None = None,
        counts: Counts | None = None,
        gate: Gate | None = None,
        wait_for_issuer: Callable[[Wanted], Awaitable[None]] | None = None,
        replicas: Replicas | None = None,
        hops: HopReceiver | None = None,
        only_h11: bool = False,
        protocols: bool | None = None,
    ) -> None:
        assert forwarder is not None or not surface.transparent
        assert wait_for_issuer is not None or gate is None or gate.issuers is None
        if hops is not None:  # a head that the other replica took has one header more here
            limits = msgspec.structs.replace(
                limits,
                head_size_max_bytes=limits.head_size_max_bytes + len(HOP) + HOP_MAX_BYTES + len(": \r\n"),
                headers_max=limits.headers_max + 1,
            )
        self._listening = ServerContext(
            surface,
            port,
            files,
            limits,
            pages,
            scheme,
            forwarder,
            counts or Counts(),
            only_h11,
            gate,
            wait_for_issuer,
            replicas,
            hops,
        )
        self._protocols = protocols
        self._connections: dict[Connection, str] = {}  # with the owner of its address
        self._room_for = Budget(limits.connections_max, limits.connections_per_address_max)
        self._listeners: set[Listener[SocketStream]] = set()
        self._takes: dict[SocketListener, Callable[[tuple[socket.socket, str]], None]] = {}
        self._accepting: set[anyio.CancelScope] = set()  # around tasks that wait for a connection
        self._all_gone = anyio.Event()
        self._accepted = 0  # connections not closed yet, including those turned away
        self._room: anyio.Event | None = None  # while an accepting task waits for room

    async def serve(
        self,
        listener: Listener[SocketStream],
        *,
        tls: ServerTls | None = None,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accepts connections until `drain`, and returns when the last of them is closed. Closes the listener.

        Args:
            listener: as `anyio.create_tcp_listener` returns it.
            tls: what its clients have to speak; None: plain HTTP.
        """
        async with anyio.create_task_group() as timers:
            timers.start_soon(self._keep_alive)
            async with anyio.create_task_group() as connections, listener:
                self._listeners.add(listener)
                if self._listening.is_draining:
                    await listener.aclose()
                task_status.started()
                async with anyio.create_task_group() as tasks:
                    for inner in _listeners_of(listener):
                        keep_alive(inner.extra(SocketAttribute.raw_socket, None))  # for what it accepts
                        if uses_protocols(self._protocols):
                            tasks.start_soon(self._serve_protocols, inner, connections, tls)
                        else:
                            raw = inner.extra(SocketAttribute.raw_socket, None)
                            take = partial(self._take_stream, connections, tls)
                            tasks.start_soon(self._accept, inner.accept, take, raw, tls)
                self._listeners.discard(listener)
            timers.cancel_scope.cancel()

    async def handle(self, stream: ByteStream, tls: ServerTls | None = None) -> None:
        """Serves one connection, and closes it. Raises nothing but cancellation: an error of our own is logged.

        Args:
            tls: what the client has to speak on the stream; None: plain HTTP.
        """
        owner = address_owner(peer_host_of(stream))
        if tls is not None:
            stream = TlsStream(stream, tls)
        if not self._room_for.has_room(owner):
            await _turn_away(stream, self._listening.counts)
            return
        wire = HttpStream(stream, self._listening)
        self._remember(wire.connection, owner)
        try:
            await wire.run()
        except Exception:  # a failure with one client must not disturb others
            _log.exception("a connection failed")
        finally:
            self._forget(wire.connection)

    def _remember(self, connection: Connection, owner: str) -> None:
        is_taken = self._room_for.take(owner)
        assert is_taken, "a connection that should have been turned away"
        self._connections[connection] = owner

    def _forget(self, connection: Connection) -> None:
        self._room_for.give_back(self._connections.pop(connection))
        if not self._connections:
            self._all_gone.set()

    def check_callers(self) -> int:
        """Ends the event streams and WebSockets of callers that the gate would not let in any more. Returns the number
        of event streams."""
        self._listening.tell_change()
        return sum(connection.check_caller() for connection in list(self._connections))

    async def stop_accepting(self, listener: Listener[SocketStream]) -> None:
        """Accepts no more connections of a listener. Those that it accepted go on, and so do those that wait to be
        accepted: closing the socket would reset them, perhaps with a request that a balancer does not send again."""
        for inner in _listeners_of(listener):
            self._take_waiting(inner)
            await inner.aclose()
        await listener.aclose()
        for scope in list(self._accepting):  # those of other listeners begin to wait again
            scope.cancel()

    def end_connections(self) -> None:
        """Has each connection end with its next response, so that its client turns to another process with the one
        after it. Connections are accepted all the same."""
        self._listening.ends_connections = True

    async def wait_arrived(self) -> None:
        """Returns when each connection has brought a whole request, or after `ARRIVAL_S`."""
        for _ in range(int(ARRIVAL_S / ARRIVAL_POLL_S)):
            if not any(connection.is_arriving for connection in self._connections):
                return
            await anyio.sleep(ARRIVAL_POLL_S)

    async def drain(self) -> None:
        """Accepts no more connections, finishes the replies that are due, and returns when no connection is left.

        Event streams end when the engine closes them, so the caller must bound this wait.
        """
        self.end_connections()
        self._listening.is_draining = True
        for scope in list(self._accepting):
            scope.cancel()
        # Closed rather than cancelled: asyncio loses a connection whose accept is cancelled at the moment it arrives.
        for listener in list(self._listeners):
            await listener.aclose()
        for connection in list(self._connections):
            connection.drain()
        while self._connections:
            self._all_gone = anyio.Event()
            await self._all_gone.wait()

    async def _accept(
        self,
        accept: Callable[[], Awaitable[T]],
        take: Callable[[T], None],
        raw: socket.socket | None,
        tls: ServerTls | None,
    ) -> None:
        """Accepts one connection after another. If the system has no room for more, those there are go on, and
        accepting is tried again.

        Args:
            raw: the socket that listens. Without a free descriptor, the clients that wait there get a 503, unless they
                speak TLS.
        """
        log_again_at = 0.0
        with contextlib.closing(Reserve()) as reserve:
            while True:
                while self._accepted >= self._listening.limits.connections_max + TURNED_AWAY_MAX:
                    self._room = self._room or anyio.Event()
                    await self._room.wait()
                try:
                    accepted = await accept()
                except anyio.ClosedResourceError:
                    return
                except (OSError, anyio.BrokenResourceError) as error:
                    reason = error if isinstance(error, OSError) else error.__cause__  # trio wraps the OSError
                    if not isinstance(reason, OSError) or reason.errno in _UNUSABLE:
                        raise
                    if reason.errno in _LOST:
                        continue
                    if anyio.current_time() >= log_again_at:
                        _log.error("cannot accept connections for now: %s", reason.strerror)
                        log_again_at = anyio.current_time() + ACCEPT_LOG_EVERY_S
                    if raw is not None and reason.errno in NO_DESCRIPTOR:
                        reserve.turn_away(raw, TURNED_AWAY_MAX, is_told=tls is None)
                    await anyio.sleep(ACCEPT_PAUSE_S)
                else:
                    self._accepted += 1
                    take(accepted)

    def _note_closed(self) -> None:
        """Records that an accepted connection is closed."""
        self._accepted -= 1
        if self._room is not None:
            self._room.set()
            self._room = None

    def _take_stream(self, connections: TaskGroup, tls: ServerTls | None, stream: ByteStream) -> None:
        pause_until_read(stream)
        connections.start_soon(self._handle_accepted, stream, tls)

    async def _handle_accepted(self, stream: ByteStream, tls: ServerTls | None) -> None:
        try:
            await self.handle(stream, tls)
        finally:
            self._note_closed()

    # --- Protocols --------------------------------------------------------------------------------------------------

    def handle_transport(self, connect: Connect, tasks: TaskGroup, on_end: OnEnd) -> Connection | None:
        """Serves one connection as `handle` does, through an asyncio protocol instead of a stream.

        Args:
            connect: connects a protocol to its transport.
            tasks: the group in which the connection's tasks run. It outlasts the connection.
            on_end: called when the connection is closed, with what this returns.

        Returns:
            The connection; None if it is turned away.
        """
        return self._serve_transport(connect, "", tasks, on_end, partial(self._end, on_end))

    def _serve_transport(
        self, connect: Connect, peer_host: str, tasks: TaskGroup, on_end: OnEnd, end: Callable[[Connection], None]
    ) -> Connection | None:
        """Serves one connection. `end` is `_end` bound to `on_end`, made once per listener."""
        owner = address_owner(peer_host)
        if not self._room_for.has_room(owner):
            tasks.start_soon(self._turn_away_transport, connect, on_end)
            return None

        protocol = HttpProtocol(self._listening, tasks, end)
        self._remember(protocol.connection, owner)
        tasks.start_soon(protocol.connect, connect)
        return protocol.connection

    def _end(self, on_end: OnEnd, connection: Connection) -> None:
        self._forget(connection)
        on_end(connection)

    async def _turn_away_transport(self, connect: Connect, on_end: OnEnd) -> None:
        try:
            stream = TransportStream()
            with contextlib.suppress(OSError):  # the client is gone already
                with anyio.move_on_after(TURN_AWAY_S) as connecting:
                    await connect(stream)
                if not connecting.cancelled_caught:
                    await _turn_away(stream, self._listening.counts)
        finally:
            on_end(None)

    async def _serve_protocols(self, listener: SocketListener, tasks: TaskGroup, tls: ServerTls | None) -> None:
        """Serves until the listener and every connection that it accepted are closed."""
        served = _Served()

        def take(arrived: tuple[socket.socket, str]) -> None:
            accepted, peer_host = arrived
            if tls is None:
                connect = partial(_connect_socket, accepted)
            else:
                connect = partial(connect_tls, accepted, peer_host, tls)
            served.add(self._serve_transport(connect, peer_host, tasks, on_end, end))

        def on_end(connection: Connection | None) -> None:
            self._note_closed()
            served.discard(connection)

        end = partial(self._end, on_end)

        try:
            raw = listener.extra(SocketAttribute.raw_socket)
            self._takes[listener] = take
            await self._accept(partial(self._accept_socket, raw, count(1)), take, raw, tls)
            await served.wait_none()
        finally:
            del self._takes[listener]
            for connection in list(served.connections):
                connection.stop()

    async def _accept_socket(self, raw: socket.socket, tries: Iterator[int]) -> tuple[socket.socket, str]:
        """Accepts a connection as `SocketListener.accept` does, with the same exceptions, without making a stream.
        Returns it with the peer's IP address, "" if it has none. Waits if there is none, and at every
        `TURN_ACCEPTS`th of `tries`."""
        waits = next(tries) % TURN_ACCEPTS == 0
        while True:
            if waits:
                with anyio.CancelScope() as scope:
                    self._accepting.add(scope)
                    try:
                        await anyio.wait_readable(raw)
                    finally:
                        self._accepting.discard(scope)
            if self._listening.is_draining or raw.fileno() < 0:
                raise anyio.ClosedResourceError
            with contextlib.suppress(BlockingIOError):
                return _accepted(raw)
            waits = True

    def _take_waiting(self, listener: SocketListener) -> None:
        """Accepts the connections that wait for it, where protocols serve them."""
        take = self._takes.get(listener)
        if take is not None:
            raw = listener.extra(SocketAttribute.raw_socket)
            with contextlib.suppress(OSError):  # there are no more, or none can be accepted
                while self._accepted < self._listening.limits.connections_max + TURNED_AWAY_MAX:
                    accepted = _accepted(raw)
                    self._accepted += 1
                    take(accepted)

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(self._listening.limits.keep_alive_s / 2)
            for forwarder in (self._listening.forwarder, self._listening.replicas):
                if forwarder is not None:
                    await forwarder.close_idle(since=anyio.current_time() - self._listening.limits.pool_idle_timeout_s)
            for number, connection in enumerate(list(self._connections), 1):
                if connection in self._connections:
                    connection.keep_alive()
                if number % TURN_STREAMS == 0:
                    await checkpoint()


class _Served:
    """The connections that one listener accepted.

    Attributes:
        connections: those that are served; the others are turned away.
    """

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self._turned_away = 0
        self._none_left = anyio.Event()

    def add(self, connection: Connection | None) -> None:
        if connection is None:
            self._turned_away += 1
        else:
            self.connections.add(connection)

    def discard(self, connection: Connection | None) -> None:
        if connection is None:
            self._turned_away -= 1
        else:
            self.connections.discard(connection)
        if not self._count:
            self._none_left.set()

    @property
    def _count(self) -> int:
        return len(self.connections) + self._turned_away

    async def wait_none(self) -> None:
        """Returns when all are closed. No connection may be added meanwhile."""
        while self._count:
            self._none_left = anyio.Event()
            await self._none_left.wait()


def _listeners_of(listener: Listener[SocketStream]) -> list[SocketListener]:
    """Returns the listeners of single sockets that a listener consists of."""
    found = listener.listeners if isinstance(listener, MultiListener) else [listener]
    assert all(isinstance(inner, SocketListener) for inner in found)
    return [inner for inner in found if isinstance(inner, SocketListener)]


def _accepted(raw: socket.socket) -> tuple[socket.socket, str]:
    """Accepts a connection. Returns it with the peer's IP address, "" if it has none.

    Raises:
        BlockingIOError: none waits.
    """
    accepted, address = raw.accept()
    accepted.setblocking(False)
    return accepted, address[0] if isinstance(address, tuple) else ""


async def _connect_socket(accepted: socket.socket, protocol: asyncio.Protocol) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)
    except OSError:
        accepted.close()
        raise


async def _turn_away(stream: ByteStream, counts: Counts) -> None:
    """Answers with a 503, at little cost."""
    counts.responses[OTHER_AREA, 503] += 1
    answer = turned_away("got more connections than this server takes, expected fewer; try again later")
    with anyio.move_on_after(TURN_AWAY_S):
        try:
            await stream.send(answer)
            await stream.receive()  # closing a socket with unread bytes could discard the answer
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
    with anyio.move_on_after(TURN_AWAY_S, shield=True):
        await stream.aclose()
