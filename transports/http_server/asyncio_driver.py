"""The asyncio driver of a client's HTTP connection. The tests of `http_server` run over this driver and over
`anyio_driver`, and expect the same of both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial

from anyio.abc import ByteStream, TaskGroup

from ...core.access.identity import Peer
from ..base.abort import cut
from ..base.asyncio_wire import ProtocolWire
from ..base.stream_socket import is_unix, peer_of
from ..base.transport_stream import TransportStream
from ..tls.asyncio_transport import SESSION
from .connection import Connection
from .shared import ServerContext

Connect = Callable[[asyncio.Protocol], Awaitable[None]]
"""A function that connects a protocol to its transport.

Raises:
    OSError: there is no transport.
"""


class HttpProtocol(ProtocolWire):
    """Serves one connection, and closes it.

    Args:
        tasks: the group in which the connection's tasks run.
        on_end: called once, with the connection, when it is closed.
    """

    __slots__ = ("_tasks",)

    connection: Connection

    def __init__(self, listening: ServerContext, tasks: TaskGroup, on_end: Callable[[Connection], None]) -> None:
        super().__init__(listening.limits.write_timeout_s)
        self._tasks = tasks
        self.connection = Connection(self, listening)
        self._on_close = partial(on_end, self.connection)

    async def connect(self, connect: Connect) -> None:
        """Connects to a transport, and serves it."""
        if not self._has_ended:
            try:
                await connect(self)
            except OSError:  # the client is gone already
                self.connection.stop()

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._tasks.start_soon(work)

    async def take_stream(self) -> ByteStream:
        stream = TransportStream()
        stream.connection_made(self._transport)
        self._transport.set_protocol(stream)
        return stream

    def cut(self) -> None:
        raw, tls = self._transport.get_extra_info("socket"), self._transport.get_extra_info(SESSION)
        if raw is not None:
            cut(raw.fileno())
        if tls is not None:
            tls.cut()

    @property
    def peer(self) -> Peer:
        address, tls = self._transport.get_extra_info("peername"), self._transport.get_extra_info(SESSION)
        if tls is not None:
            return Peer(address[0] if address else "", is_secure=True, certificate=tls.certificate)
        if isinstance(address, tuple):
            return Peer(address[0])
        raw = self._transport.get_extra_info("socket")
        return peer_of(raw) if is_unix(raw) else Peer()
