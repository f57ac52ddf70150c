"""Tests of transparent servers over real sockets, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import struct

import anyio
import pytest
from anyio.abc import SocketAttribute
from http_fakes import WAIT_S, FakeFiles, FakePort, get, pages
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


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.anyio
@pytest.mark.parametrize("protocols", [True, False])
async def test_both_sides_of_a_web_socket_can_leave_at_once(protocols: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The connection ends cleanly, whichever end is noticed first and however it is made."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.setblocking(False)
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}"
        server = TransparentServer(Endpoint(url), ForwardTarget("far", url, b"key"), HeaderRules())
        forwarder = Forwarder({"far": server}, Limits(), Drive(protocols=protocols))
        surface = Surface(("far",), frozenset({"localhost"}), frozenset(), transparent=forwarder.targets)
        http = HttpServer(
            surface, FakePort(), FakeFiles(), Limits(), pages=pages, forwarder=forwarder, protocols=protocols
        )
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        with anyio.fail_after(WAIT_S):
            async with forwarder, anyio.create_task_group() as tasks:
                await tasks.start(http.serve, listener)
                for _ in range(4):
                    near = socket.create_connection(("127.0.0.1", listener.extra(SocketAttribute.local_port)))
                    near.sendall(get("/mcp/far", *UPGRADE))
                    near.setblocking(False)
                    far, _ = await loop.sock_accept(upstream)
                    await loop.sock_recv(far, 65536)
                    await loop.sock_sendall(far, SWITCHED)
                    await loop.sock_recv(near, 65536)
                    reset(far)
                    near.shutdown(socket.SHUT_WR)
                    with near:
                        while server.links:  # noqa: ASYNC110
                            await anyio.sleep(0.001)
                await http.drain()
    assert not [record for record in caplog.records if record.exc_info]
