"""The HTTP listener: Streamable HTTP for MCP clients, uploads, downloads and pages, on any stream of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketListener, SocketStream, TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint
from anyio.streams.stapled import MultiListener

from ...core.base.limits import Limits
from ...core.wire.http.error_responses import refusal
from ...core.wire.http.routes import Surface
from ..base.backpressure import read_when_asked
from ..base.driver import uses_protocols
from ..base.port import FileService, Port
from ..base.traffic import Counts
from ..base.transport_stream import TransportStream
from ..reverse_proxy.forwarder import Forwarder
from .anyio_driver import StreamWire
from .asyncio_driver import Connect, HttpProtocol
from .connection import Connection
from .shared import Listening, Pages

TURNED_AWAY_MAX: Final = 64
"""Connections beyond `Limits.connections_max` that are told so at once. Still more wait in the kernel's queue."""
ACCEPT_PAUSE_S: Final = 0.1
"""Before accepting is tried again where the system had no room for a connection."""
ACCEPT_LOG_EVERY_S: Final = 60.0
TURN_STREAMS: Final = 256
"""Streams kept alive before others get their turn: some milliseconds of work."""

# What accept(2) says of one connection that is gone already, or never came about.
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
"""Called when a connection is over; None: one that was turned away."""


class HttpServer:
    """Serves any number of listeners, and connections handed to it one by one.

    Args:
        surface: what exists, and by which names it may be reached.
        pages: what the pages beside the protocol say.
        scheme: `https` when the streams given to `handle` are TLS.
        forwarder: passes on the requests to the surface's transparent servers; needed if there are any.
        counts: where files on their way are counted; None: nobody wants to know.
        only_h11: whether h11 reads and writes everything.
        protocols: whether listeners are served without streams; None: wherever that is possible.
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
        only_h11: bool = False,
        protocols: bool | None = None,
    ) -> None:
        assert forwarder is not None or not surface.transparent
        self._on = Listening(surface, port, files, limits, pages, scheme, forwarder, counts or Counts(), only_h11)
        self._protocols = protocols
        self._connections: set[Connection] = set()
        self._listeners: set[Listener[SocketStream]] = set()
        self._accepting: set[anyio.CancelScope] = set()  # around who waits for a connection, and has none
        self._all_gone = anyio.Event()
        self._accepted = 0  # and not closed yet, those that are turned away included
        self._room: anyio.Event | None = None  # while somebody waits for it

    async def serve(
        self, listener: Listener[SocketStream], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept connections until `drain`, and return when the last of them is through. Closes the listener.

        Args:
            listener: what `anyio.create_tcp_listener` gives.
        """
        async with anyio.create_task_group() as timers:
            timers.start_soon(self._keep_alive)
            async with anyio.create_task_group() as connections, listener:
                self._listeners.add(listener)
                if self._on.is_draining:
                    await listener.aclose()
                task_status.started()
                async with anyio.create_task_group() as tasks:
                    for inner in listener.listeners if isinstance(listener, MultiListener) else [listener]:
                        assert isinstance(inner, SocketListener)
                        if uses_protocols(self._protocols):
                            tasks.start_soon(self._serve_protocols, inner, connections)
                        else:
                            tasks.start_soon(self._accept, inner.accept, partial(self._take_stream, connections))
                self._listeners.discard(listener)
            timers.cancel_scope.cancel()

    async def handle(self, stream: ByteStream) -> None:
        """Serve one connection, and close it. Raises nothing but cancellation: a failure here is logged."""
        if self._is_full:
            await _turn_away(stream)
            return
        wire = StreamWire(stream, self._on)
        self._connections.add(wire.connection)
        try:
            await wire.run()
        except Exception:  # whatever went wrong with one client must not disturb another
            _log.exception("a connection failed")
        finally:
            self._forget(wire.connection)

    @property
    def _is_full(self) -> bool:
        return len(self._connections) >= self._on.limits.connections_max

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()

    async def drain(self) -> None:
        """Accept nothing more, finish the replies that are due, and return when no connection is left.

        Event streams end when the engine closes them, so the caller bounds this wait.
        """
        self._on.is_draining = True
        for scope in list(self._accepting):
            scope.cancel()
        # Closing, not cancelling: asyncio loses a connection whose accept is cancelled in the moment it arrives.
        for listener in list(self._listeners):
            await listener.aclose()
        for connection in list(self._connections):
            connection.drain()
        while self._connections:
            self._all_gone = anyio.Event()
            await self._all_gone.wait()

    async def _accept(self, accept: Callable[[], Awaitable[T]], take: Callable[[T], None]) -> None:
        """Take one connection after the other. Where none can be had, those there are go on; later ones may come."""
        log_again_at = 0.0
        while True:
            while self._accepted >= self._on.limits.connections_max + TURNED_AWAY_MAX:
                self._room = self._room or anyio.Event()
                await self._room.wait()
            try:
                accepted = await accept()
            except anyio.ClosedResourceError:
                return
            except (OSError, anyio.BrokenResourceError) as error:
                reason = error if isinstance(error, OSError) else error.__cause__  # trio's are wrapped
                if not isinstance(reason, OSError) or reason.errno in _UNUSABLE:
                    raise
                if reason.errno in _LOST:
                    continue
                if anyio.current_time() >= log_again_at:
                    _log.error("cannot accept connections for now: %s", reason.strerror)
                    log_again_at = anyio.current_time() + ACCEPT_LOG_EVERY_S
                await anyio.sleep(ACCEPT_PAUSE_S)
            else:
                self._accepted += 1
                take(accepted)

    def _note_closed(self) -> None:
        """One that was accepted is closed."""
        self._accepted -= 1
        if self._room is not None:
            self._room.set()
            self._room = None

    def _take_stream(self, connections: TaskGroup, stream: ByteStream) -> None:
        read_when_asked(stream)
        connections.start_soon(self._handle_accepted, stream)

    async def _handle_accepted(self, stream: ByteStream) -> None:
        try:
            await self.handle(stream)
        finally:
            self._note_closed()

    # --- Protocols --------------------------------------------------------------------------------------------------

    def handle_transport(self, connect: Connect, tasks: TaskGroup, on_end: OnEnd) -> Connection | None:
        """As `handle`, without a stream: serve one connection through a protocol.

        Args:
            connect: gives a protocol its transport.
            tasks: where the connection's tasks run. They outlast it.
            on_end: called when all is over, with what is returned.

        Returns:
            What serves it; None if it is turned away.
        """
        return self._serve_transport(connect, tasks, on_end, partial(self._end, on_end))

    def _serve_transport(
        self, connect: Connect, tasks: TaskGroup, on_end: OnEnd, end: Callable[[Connection], None]
    ) -> Connection | None:
        """Args: `end`: `_end`, for `on_end`."""
        if self._is_full:
            tasks.start_soon(self._turn_away_transport, connect, on_end)
            return None

        protocol = HttpProtocol(self._on, tasks, end)
        self._connections.add(protocol.connection)
        tasks.start_soon(protocol.connect, connect)
        return protocol.connection

    def _end(self, on_end: OnEnd, connection: Connection) -> None:
        self._forget(connection)
        on_end(connection)

    async def _turn_away_transport(self, connect: Connect, on_end: OnEnd) -> None:
        try:
            stream = TransportStream()
            with contextlib.suppress(OSError):  # it is gone already
                await connect(stream)
                await _turn_away(stream)
        finally:
            on_end(None)

    async def _serve_protocols(self, listener: SocketListener, tasks: TaskGroup) -> None:
        """Until the listener is closed, and every connection that it accepted."""
        served = _Served()

        def take(accepted: socket.socket) -> None:
            connection = self._serve_transport(partial(_connect_socket, accepted), tasks, on_end, end)
            served.add(connection)

        def on_end(connection: Connection | None) -> None:
            self._note_closed()
            served.discard(connection)

        end = partial(self._end, on_end)

        try:
            await self._accept(partial(self._accept_socket, listener.extra(SocketAttribute.raw_socket)), take)
            await served.wait_none()
        finally:
            for connection in list(served.connections):
                connection.stop()

    async def _accept_socket(self, raw: socket.socket) -> socket.socket:
        """What `SocketListener.accept` does, without a stream. Raises as that."""
        while True:
            if self._on.is_draining or raw.fileno() < 0:
                raise anyio.ClosedResourceError
            with anyio.CancelScope() as scope:
                self._accepting.add(scope)
                try:
                    await anyio.wait_readable(raw)
                finally:
                    self._accepting.discard(scope)
            if not scope.cancelled_caught:
                with contextlib.suppress(BlockingIOError):
                    accepted, _ = raw.accept()
                    accepted.setblocking(False)
                    return accepted

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(self._on.limits.keep_alive_s)
            if self._on.forwarder is not None:
                await self._on.forwarder.close_idle(since=anyio.current_time() - self._on.limits.pool_idle_timeout_s)
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
        """Return when all are closed. None is added meanwhile."""
        while self._count:
            self._none_left = anyio.Event()
            await self._none_left.wait()


async def _connect_socket(accepted: socket.socket, protocol: asyncio.Protocol) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)
    except OSError:
        accepted.close()
        raise


async def _turn_away(stream: ByteStream) -> None:
    """Say 503 without spending more on a client than that."""
    refused = refusal(503, "got more connections than this server takes, expected fewer; try again later")
    lines = [b"HTTP/1.1 503 Service Unavailable", b"connection: close", b"retry-after: 1"]
    lines += [name + b": " + value for name, value in refused.headers]
    with anyio.move_on_after(1.0):
        try:
            await stream.send(b"\r\n".join([*lines, b"", refused.body]))
            await stream.receive()  # closing before the request was read could take the answer with it
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
    with anyio.move_on_after(1.0, shield=True):
        await stream.aclose()
