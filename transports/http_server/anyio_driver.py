"""The portable driver of a client's HTTP connection: an anyio stream, on any event loop. The connection's jobs are
tasks beside the two of the stream. The tests of `http_server` run over this driver and over `asyncio_driver`, and
expect the same of both."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import anyio
from anyio.abc import ByteStream

from ...core.access.identity import Peer
from ..base.abort import cut
from ..base.anyio_wire import StreamWire
from ..base.stream_socket import is_unix, peer_host_of, peer_of, socket_of
from ..tls.stream import TlsStream
from .connection import Connection
from .shared import ServerContext


class HttpStream(StreamWire):
    """Serves one stream, and closes it. Call `run` once."""

    connection: Connection

    def __init__(self, stream: ByteStream, listening: ServerContext) -> None:
        super().__init__(stream, listening.limits)
        self.connection = Connection(self, listening)

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._tasks.start_soon(work)

    async def take_stream(self) -> ByteStream:
        while self._receiving is not None:
            await anyio.lowlevel.checkpoint()
        return self._stream

    def cut(self) -> None:
        raw = socket_of(self._stream)
        if raw is not None:
            cut(raw.fileno())
        if isinstance(self._stream, TlsStream):
            self._stream.session.cut()

    @property
    def peer(self) -> Peer:
        if isinstance(self._stream, TlsStream):
            return Peer(peer_host_of(self._stream), is_secure=True, certificate=self._stream.session.certificate)
        raw = socket_of(self._stream)
        return peer_of(raw) if is_unix(raw) else Peer(peer_host_of(self._stream))
