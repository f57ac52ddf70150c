"""Tests of the probes on idle connections: which options the sockets have, both those dialled and those accepted."""

from __future__ import annotations

import socket

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from client_fakes import FakePort, Peer, serving
from isthmus.core.base.effects import Post
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base import keepalive
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.keepalive import keep_alive
from isthmus.transports.http_client.client import HttpClient

EXPECTED = {
    "TCP_KEEPIDLE": keepalive.IDLE_S,
    "TCP_KEEPINTVL": keepalive.INTERVAL_S,
    "TCP_KEEPCNT": keepalive.PROBES_MAX,
    "TCP_USER_TIMEOUT": keepalive.USER_TIMEOUT_MS,
}


def options(tcp: socket.socket) -> dict[str, int]:
    if not tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return {}
    return {name: tcp.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in EXPECTED}


def test_the_first_probe_comes_before_tables_forget_and_a_slow_reader_is_cut_by_the_write_timeout() -> None:
    assert keepalive.IDLE_S <= 30
    assert keepalive.IDLE_S + keepalive.INTERVAL_S * keepalive.PROBES_MAX < 75
    assert Limits().write_timeout_s * 1000 < keepalive.USER_TIMEOUT_MS


def test_what_a_listener_accepts_inherits_the_probes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        keep_alive(listener)
        with socket.create_connection(listener.getsockname()) as near:
            far, _ = listener.accept()
            with far:
                assert options(far) == EXPECTED
                assert options(near) == {}


def test_sockets_that_are_not_tcp_or_gone_are_left_alone() -> None:
    near, far = socket.socketpair()
    with near, far:
        keep_alive(near)
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    gone = socket.socket()
    gone.close()
    keep_alive(gone)
    keep_alive(None)


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_connections_to_servers_are_probed(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An IP address is connected to as a protocol, a name as a stream."""
    probed: list[dict[str, int]] = []

    def watch(tcp: socket.socket | None) -> None:
        keep_alive(tcp)
        assert tcp is not None
        probed.append(options(tcp))

    for module in ("base.dialer", "http_client.asyncio_connect"):
        monkeypatch.setattr(f"isthmus.transports.{module}.keep_alive", watch)

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    async with serving(answer) as server, HttpClient(Limits()) as client:
        port = FakePort()
        client.dial(Endpoint(f"http://{host}:{server.port}/mcp"), Post("s", b"{}"), ChannelId(1), port)
        await port.until_closed(1)
    assert probed == [EXPECTED]


@pytest.mark.anyio
async def test_the_server_is_reached_at_the_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name has two addresses, and nobody listens at the first: the other one is tried (RFC 8305)."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener:
        port = listener.extra(SocketAttribute.local_port)

        async def found(*_: object, **__: object) -> list[object]:
            kinds = (socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")
            return [(family, socket.SOCK_STREAM, 6, "", (host, port)) for family, host in kinds]

        monkeypatch.setattr("anyio._core._sockets.getaddrinfo", found)
        accepted = anyio.Event()

        async def accept(stream: SocketStream) -> None:
            async with stream:
                accepted.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, accept)
            async with HttpClient(Limits()) as client:
                client.dial(Endpoint(f"http://two.example:{port}/mcp"), Post("s", b"{}"), ChannelId(1), FakePort())
                with anyio.fail_after(10):
                    await accepted.wait()
            tasks.cancel_scope.cancel()
