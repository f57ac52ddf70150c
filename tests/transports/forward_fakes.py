"""The upstream ends of the connections to a transparent server, in memory, read and written byte by byte."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import http_fakes
import pytest
from anyio.abc import ByteStream
from http_fakes import WAIT_S, Client, MemoryStream, World, stream_pair, world
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.reverse_proxy import HeaderRules
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Surface
from isthmus.transports.base.dialer import Dialer
from isthmus.transports.base.driver import Drive
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.reverse_proxy import forwarder as forwarding
from isthmus.transports.reverse_proxy.forwarder import Forwarder, TransparentServer
from pipe_transport import PipeTransport

URL = "http://up.example/base"
HOSTS = frozenset({"localhost"})


class Peer:
    """The server's end of one connection.

    Attributes:
        requests: the number of requests that were read.
    """

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.requests = 0
        self._buffer = b""

    async def head(self) -> tuple[str, dict[str, str]]:
        """The next request's first line and headers."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += await self._receive()
        self.requests += 1
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        return first, dict(line.split(": ", 1) for line in lines)

    async def bytes(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += await self._receive()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    async def request(self) -> tuple[str, dict[str, str], bytes]:
        first, headers = await self.head()
        if "transfer-encoding" not in headers:
            return first, headers, await self.bytes(int(headers.get("content-length", "0")))
        body = b""
        while True:
            line = b""
            while not line.endswith(b"\r\n"):
                line += await self.bytes(1)
            chunk = await self.bytes(int(line, 16) + 2)
            if chunk == b"\r\n":
                return first, headers, body
            body += chunk[:-2]

    async def send(self, data: bytes) -> None:
        with anyio.fail_after(WAIT_S):
            await self.stream.send(data)

    async def answer(self, body: bytes = b"", *lines: str, status: str = "200 OK") -> None:
        head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", ""])
        await self.send(head.encode() + body)

    async def wait_gone(self) -> None:
        """Waits until the proxy has closed the connection. Nothing more may come."""
        assert self._buffer == b""
        with anyio.fail_after(WAIT_S):
            with pytest.raises(anyio.EndOfStream):
                await self.stream.receive()

    async def _receive(self) -> bytes:
        with anyio.fail_after(WAIT_S):
            return await self.stream.receive()


class Upstream:
    """A server in memory.

    Attributes:
        error: raised to whoever connects.
        may_connect: what whoever connects waits for.
        made: the number of connections so far.
    """

    def __init__(self, capacity: int) -> None:
        self.error: Exception | None = None
        self.may_connect: anyio.Event | None = None
        self.made = 0
        self.capacity = capacity
        self._new: deque[Peer] = deque()
        self._arrived = anyio.Event()

    async def connect(self) -> ByteStream:
        await anyio.lowlevel.checkpoint()
        if self.may_connect is not None:
            await self.may_connect.wait()
        if self.error is not None:
            raise self.error
        near, far = stream_pair(self.capacity)
        self.made += 1
        self._new.append(Peer(far))
        self._arrived.set()
        return near

    async def accept(self) -> Peer:
        with anyio.fail_after(WAIT_S):
            while not self._new:
                self._arrived = anyio.Event()
                await self._arrived.wait()
        return self._new.popleft()


@dataclass
class ForwardWorld:
    http: World
    client: Client
    upstream: Upstream
    forwarder: Forwarder


def transport_of(stream: ByteStream) -> PipeTransport:
    """Returns a transport over a stream in memory, as `base.transport_stream` does for those of the event loop."""
    assert isinstance(stream, MemoryStream)
    return PipeTransport(stream, asyncio.Protocol())


def target(url: str = URL) -> ForwardTarget:
    return ForwardTarget("far", url, b"key")


@asynccontextmanager
async def forward_world(
    monkeypatch: pytest.MonkeyPatch,
    *,
    url: str = URL,
    rules: HeaderRules | None = None,
    limits: Limits | None = None,
    capacity: int = 1 << 20,
    only_h11: bool = False,
) -> AsyncIterator[ForwardWorld]:
    """A client, the listener, and the one transparent server behind it."""
    upstream = Upstream(capacity)
    limits = limits or Limits()
    with monkeypatch.context() as patch:
        patch.setattr(Dialer, "_open", lambda dialer, tls: upstream.connect())
        servers = {"far": TransparentServer(Endpoint(url), target(url), rules or HeaderRules())}
        patch.setattr(forwarding, "transport_of", transport_of)
        forwarder = Forwarder(servers, limits, Drive(protocols=http_fakes.uses_protocols, only_h11=only_h11))
        surface = Surface(("far",), HOSTS, frozenset(), transparent=forwarder.targets)
        async with forwarder:
            fakes = world(limits, surface=surface, capacity=capacity, forwarder=forwarder, only_h11=only_h11)
            async with fakes as w:
                yield ForwardWorld(w, w.client, upstream, forwarder)
            await forwarder.close_idle()
        assert all(server.links == 0 for server in servers.values()), "every connection is closed"
        assert not w.port.openings, "the engine has no part in it"
