"""Servers for tests of the HTTP client that speak HTTP/2 alone, over the connections of `client_fakes`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream
from client_dialer import ANSWER
from client_fakes import Peer, ScriptedServer
from h2.settings import SettingCodes
from http2_server import Http2Request, Http2Server, frame, goaway
from hyperframe.frame import SettingsFrame
from isthmus.transports.base.endpoint import Endpoint

PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
REFUSED = b"\x15\x03\x03\x00\x02\x02\x78"
"""A TLS alert: no_application_protocol (RFC 7301, 3.2)."""
H2_OFFERED = b"\x00\x10\x00\x05\x00\x03\x02h2"
"""The extension of a ClientHello that offers HTTP/2 alone."""


class Http2Peer:
    """The server's end of one connection."""

    def __init__(self, peer: Peer, settings: dict[SettingCodes, int] | None = None) -> None:
        self.number = peer.number
        self.stream = peer.stream
        self.server = Http2Server(settings)
        self._count = 0

    async def request(self) -> Http2Request:
        """The next request, once all of it is there."""
        while len(self.server.requests) <= self._count or not self.server.requests[self._count].is_whole:
            await self.read()
        self._count += 1
        return self.server.requests[self._count - 1]

    async def read(self) -> None:
        """Takes what the client sends next, and sends what is due."""
        self.server.receive(await self.stream.receive())
        await self.flush()

    async def flush(self, more: bytes = b"") -> None:
        await self.stream.send(self.server.output() + more)

    async def reply(self, request: Http2Request, body: bytes = ANSWER) -> None:
        self.server.reply(request.stream, body)
        await self.flush()

    async def send_all(self, stream: int, data: bytes, *, is_last: bool) -> None:
        """Sends a body as fast as the client takes it."""
        while data := self.server.send(stream, data, is_last=is_last):
            await self.flush()
            await self.read()
        await self.flush()


Http2Script = Callable[[Http2Peer], Awaitable[None]]


async def answer_all(peer: Http2Peer) -> None:
    while True:
        await peer.reply(await peer.request(), b'{"on":%d}' % peer.number)


class _Replayed(ByteStream):
    """A stream of which the beginning was received already."""

    def __init__(self, beginning: bytes, stream: ByteStream) -> None:
        self._beginning = beginning
        self._stream = stream

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        beginning, self._beginning = self._beginning, b""
        return beginning or await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def extra_attributes(self):  # type: ignore[no-untyped-def]
        return self._stream.extra_attributes


class OnlyHttp2(ScriptedServer):
    """A server that refuses HTTP/1.1.

    Attributes:
        refused: how often it did.
    """

    refused = 0


@asynccontextmanager
async def serving_http2(
    script: Http2Script,
    tls: ssl.SSLContext | None = None,
    *,
    settings: dict[SettingCodes, int] | None = None,
    refuses: bool = True,
    is_eager: bool = False,
) -> AsyncIterator[OnlyHttp2]:
    """Runs `script` on every connection that begins with HTTP/2, on a fresh port of 127.0.0.1.

    Args:
        refuses: TLS without HTTP/2 is refused with an alert; otherwise such a client is answered in HTTP/2.
        is_eager: it sends its first frame before it has received anything, as many servers do.
    """
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server = OnlyHttp2(listener.extra(SocketAttribute.local_port), "http" if tls is None else "https")

    async def handle(stream: ByteStream) -> None:
        number = server.connections
        server.connections += 1
        server.gone.append(anyio.Event())
        server.finished.append(anyio.Event())
        try:
            if is_eager:
                await stream.send(frame(SettingsFrame(0, {})))
            beginning = await stream.receive()
            if tls is not None:
                if refuses and H2_OFFERED not in beginning:
                    server.refused += 1
                    return await stream.send(REFUSED)
                stream = await TLSStream.wrap(
                    _Replayed(beginning, stream), server_side=True, ssl_context=tls, standard_compatible=False
                )
                beginning = await stream.receive()
            peer = Http2Peer(Peer(server, stream, number), settings)
            if not beginning.startswith(PREFACE):
                server.refused += 1
                await peer.flush(goaway(0, 1))
                while True:
                    await stream.receive()
            peer.server.receive(beginning)
            await peer.flush()
            await script(peer)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            server.gone[number].set()
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
            server.finished[number].set()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield server
        tasks.cancel_scope.cancel()


def at_localhost(server: ScriptedServer, authority: Path) -> Endpoint:
    """The server's URL with the name of its certificate."""
    return Endpoint(f"https://localhost:{server.port}/mcp", ca_file=str(authority / "ca.pem"))
