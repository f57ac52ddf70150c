"""Tests of transparent servers over real sockets, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute
from http_fakes import WAIT_S, FakeFiles, FakePort, get, pages, post
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.reverse_proxy import HeaderRules
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Surface
from isthmus.transports.base.driver import Drive
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.reverse_proxy.forwarder import Forwarder, TransparentServer

LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k", "Sec-WebSocket-Version: 13")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

LARGE_BYTES: Final = 32 << 20
HELD_MAX_BYTES: Final = 2 << 20
"""The most that a request may hold of what one side does not take. An event loop reads up to 256 KiB at once, which are
copied when they are parsed, and once more when a part of them is written."""
HELD_BY_STREAM_MAX_BYTES: Final = 8 << 20
"""The bound for anyio's streams, which take all that uvloop reads in one turn."""


class Relay(NamedTuple):
    server: TransparentServer
    port: int


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@asynccontextmanager
async def relay(upstream: socket.socket, *, protocols: bool, ca_file: str | None = None) -> AsyncIterator[Relay]:
    """The listener, and the one transparent server behind it, which is `upstream`. It has TLS if there is a file of
    authorities."""
    limits = Limits()
    origin = "http://127.0.0.1" if ca_file is None else "https://localhost"
    url = f"{origin}:{upstream.getsockname()[1]}"
    server = TransparentServer(Endpoint(url, ca_file=ca_file), ForwardTarget("far", url, b"key"), HeaderRules())
    forwarder = Forwarder({"far": server}, limits, Drive(protocols=protocols))
    surface = Surface(("far",), frozenset({"localhost"}), frozenset(), transparent=forwarder.targets)
    http = HttpServer(surface, FakePort(), FakeFiles(), limits, pages=pages, forwarder=forwarder, protocols=protocols)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    with anyio.fail_after(WAIT_S):
        async with forwarder, anyio.create_task_group() as tasks:
            await tasks.start(http.serve, listener)
            yield Relay(server, listener.extra(SocketAttribute.local_port))
            await http.drain()


@pytest.mark.anyio
@pytest.mark.parametrize("protocols", [True, False])
async def test_a_client_that_reads_nothing_takes_little_memory(protocols: bool) -> None:
    """The server is held back by what the client does not take: little more than one read is kept."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.setblocking(False)
        async with relay(upstream, protocols=protocols) as through:
            with socket.create_connection(("127.0.0.1", through.port)) as near:
                near.sendall(get("/mcp/far"))
                far, _ = await loop.sock_accept(upstream)
                with far:
                    far.setblocking(False)
                    await loop.sock_recv(far, 65536)
                    tracemalloc.start()
                    try:
                        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES
                        await loop.sock_sendall(far, head)
                        sent_bytes = await send_until_blocked(far, LARGE_BYTES)
                        _, peak_bytes = tracemalloc.get_traced_memory()
                    finally:
                        tracemalloc.stop()
                    assert sent_bytes < LARGE_BYTES
                    assert peak_bytes < (HELD_MAX_BYTES if protocols else HELD_BY_STREAM_MAX_BYTES)
                    near.setblocking(False)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(loop.sock_sendall, far, bytes(LARGE_BYTES - sent_bytes))
                        received = b""
                        while b"\r\n\r\n" not in received:
                            received += await loop.sock_recv(near, 65536)
                        left = LARGE_BYTES - len(received.partition(b"\r\n\r\n")[2])
                        while left:
                            left -= len(await loop.sock_recv(near, 1 << 20))


async def send_until_blocked(far: socket.socket, size_bytes: int) -> int:
    """Sends up to so many bytes, until nothing has been taken in a while. Returns how many were taken."""
    sent_bytes, tries = 0, 0
    while tries < 20 and sent_bytes < size_bytes:
        try:
            sent_bytes += far.send(bytes(min(1 << 18, size_bytes - sent_bytes)))
            tries = 0
        except BlockingIOError:
            tries += 1
            await anyio.sleep(0.01)
    return sent_bytes


@pytest.mark.anyio
@pytest.mark.parametrize("protocols", [True, False])
async def test_a_server_may_refuse_a_body_and_reset_the_connection(protocols: bool) -> None:
    """A server that closes with unread bytes of the request resets the connection. Its answer arrives all the same."""
    loop = asyncio.get_running_loop()
    refusal = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.setblocking(False)
        async with relay(upstream, protocols=protocols) as through:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", through.port)) as near:
                    near.setblocking(False)
                    head = b"POST /mcp/far HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES
                    await loop.sock_sendall(near, head + bytes(1000))
                    far, _ = await loop.sock_accept(upstream)
                    await loop.sock_recv(far, 10)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(send_on, near)
                        await anyio.lowlevel.checkpoint()
                        await loop.sock_sendall(far, refusal)
                        far.close()
                        received = b""
                        while not received.endswith(b"no"):
                            received += (data := await loop.sock_recv(near, 65536))
                            assert data, received
                        assert received.startswith(b"HTTP/1.1 413 ")
                        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("protocols", [True, False])
async def test_bodies_pass_over_tls(protocols: bool, authority: Path, server_tls: ssl.SSLContext) -> None:
    """A server with TLS is reached through streams, whatever the driver of the listener."""
    body = bytes(range(256)) * 16_384

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            taken = await reader.readexactly(len(body))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(taken) + taken)
            await writer.drain()
        writer.close()

    server_tls.set_alpn_protocols(["http/1.1"])
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        async with await asyncio.start_server(answer, sock=upstream.dup(), ssl=server_tls):
            async with relay(upstream, protocols=protocols, ca_file=str(authority / "ca.pem")) as through:
                reader, writer = await asyncio.open_connection("127.0.0.1", through.port)
                for _ in range(2):
                    writer.write(post(body))
                    head = await reader.readuntil(b"\r\n\r\n")
                    assert head.startswith(b"HTTP/1.1 200 ")
                    assert await reader.readexactly(len(body)) == body
                writer.close()


async def send_on(near: socket.socket) -> None:
    """Sends as much of a body as the proxy takes."""
    with contextlib.suppress(OSError):
        while True:
            await asyncio.get_running_loop().sock_sendall(near, bytes(65536))


@pytest.mark.anyio
@pytest.mark.parametrize("protocols", [True, False])
async def test_both_sides_of_a_web_socket_can_leave_at_once(protocols: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The connection ends cleanly, whichever end is noticed first and however it is made."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.setblocking(False)
        async with relay(upstream, protocols=protocols) as through:
            for _ in range(4):
                near = socket.create_connection(("127.0.0.1", through.port))
                near.sendall(get("/mcp/far", *UPGRADE))
                near.setblocking(False)
                far, _ = await loop.sock_accept(upstream)
                await loop.sock_recv(far, 65536)
                await loop.sock_sendall(far, SWITCHED)
                await loop.sock_recv(near, 65536)
                reset(far)
                near.shutdown(socket.SHUT_WR)
                with near:
                    while through.server.links:  # noqa: ASYNC110
                        await anyio.sleep(0.001)
    assert not [record for record in caplog.records if record.exc_info]
