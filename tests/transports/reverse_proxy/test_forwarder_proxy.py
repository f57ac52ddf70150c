"""Tests of transparent servers behind an HTTP proxy."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import SocketAttribute
from http_fakes import FakeFiles, FakePort, get, pages
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.egress import parse_proxy
from isthmus.core.wire.http.reverse_proxy import HeaderRules
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Surface
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.reverse_proxy.forwarder import Forwarder, TransparentServer

URL = "http://server.invalid/mcp"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (
            b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
            b"refused the user",
        ),
    ],
)
async def test_a_transparent_server_is_reached_through_its_proxy(answer: bytes, words: bytes) -> None:
    proxy = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = proxy.extra(SocketAttribute.local_port)
    requests: list[bytes] = []

    async def serve_one(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            requests.append(received)
            await stream.send(answer)

    endpoint = Endpoint(URL, proxy=parse_proxy(f"http://me:pass@127.0.0.1:{port}", "HTTP_PROXY"))
    target = ForwardTarget("s", URL, b"k" * 16)
    forwarder = Forwarder({"s": TransparentServer(endpoint, target, HeaderRules())}, Limits())
    surface = Surface(
        servers=("s",), hosts=frozenset({"localhost"}), origins=frozenset(), transparent=forwarder.targets
    )
    http = HttpServer(surface, FakePort(), FakeFiles(), Limits(), pages=pages, forwarder=forwarder)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with proxy, forwarder, anyio.create_task_group() as tasks:
        tasks.start_soon(proxy.serve, serve_one)
        await tasks.start(http.serve, listener)
        with anyio.fail_after(10):
            async with await anyio.connect_tcp("127.0.0.1", listener.extra(SocketAttribute.local_port)) as client:
                headers = ("Proxy-Authorization: Basic eA==",)
                await client.send(get("/mcp", *headers))
                received = b""
                while words not in received:
                    received += await client.receive()
        tasks.cancel_scope.cancel()
    assert len(requests) == 1 and requests[0].startswith(b"GET http://server.invalid/mcp HTTP/1.1\r\n")
    lines = [line for line in requests[0].lower().split(b"\r\n") if line.startswith(b"proxy-authorization")]
    assert lines == [b"proxy-authorization: basic bwu6cgfzcw=="]
