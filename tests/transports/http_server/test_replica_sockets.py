"""Tests of requests that another replica answers, over real sockets, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import pytest
from anyio.abc import SocketAttribute
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, pages, post
from isthmus.core.base.effects import Send
from isthmus.core.base.limits import Limits
from isthmus.core.replicas.leases import Peer
from isthmus.transports.base.driver import Drive
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.reverse_proxy.replicas import Replicas
from isthmus.transports.unix.listener import http_listener
from replica_fakes import INTERNAL, RUNS, FakeMembership, passes_on, receiver, signer

LOOPS: Final = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
RESULT: Final = b'{"jsonrpc":"2.0","id":1,"result":{}}'

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("protocols", [True, False])]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Both(NamedTuple):
    a: FakePort
    b: FakePort
    owner: HttpServer
    membership: FakeMembership
    port: int


@asynccontextmanager
async def both(address: str, *, protocols: bool) -> AsyncIterator[Both]:
    """Two replicas. `address` is that of `b`, a Unix socket, or a port that is chosen."""
    limits = Limits()
    if address.startswith("unix:"):
        internal = await http_listener(address.removeprefix("unix:"))
    else:
        internal = await anyio.create_tcp_listener(local_host="127.0.0.1")
        address = f"http://127.0.0.1:{internal.extra(SocketAttribute.local_port)}"
    membership = FakeMembership(Peer("b", RUNS["b"], address))
    replicas = Replicas(membership, signer(), limits, Drive(protocols=protocols))
    a, b = FakePort(), FakePort()
    a.on_open = passes_on
    b.on_message = lambda channel, message, outlet: outlet.send(Send(channel, message, is_last=True))
    near = HttpServer(SURFACE, a, FakeFiles(), limits, pages=pages, replicas=replicas, protocols=protocols)
    far = HttpServer(INTERNAL, b, FakeFiles(), limits, pages=pages, hops=receiver(), protocols=protocols)
    public = await anyio.create_tcp_listener(local_host="127.0.0.1")
    with anyio.fail_after(WAIT_S):
        async with replicas, anyio.create_task_group() as tasks:
            await tasks.start(far.serve, internal)
            await tasks.start(near.serve, public)
            yield Both(a, b, far, membership, public.extra(SocketAttribute.local_port))
            await near.drain()
            await replicas.close_idle()
            await far.drain()


async def exchanged(port: int, request: bytes) -> bytes:
    """Sends a request on a connection of its own, and returns all that comes."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        received = b""
        while True:
            try:
                received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return received


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_requests_reach_a_replica_on_either_kind_of_socket(kind: str, protocols: bool, tmp_path: Path) -> None:
    async with both(f"unix:{tmp_path}/b.sock" if kind == "unix" else "", protocols=protocols) as w:
        for body in (RESULT, b"[" + b"1," * 2_000_000 + b"1]"):
            answer = await exchanged(w.port, post(body))
            assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(body)
        assert [message for _, message in w.b.messages] == [RESULT, body]


@pytest.mark.parametrize("kind", ["unix", "left", "tcp"])
async def test_an_address_at_which_nobody_listens_means_that_the_replica_is_gone(
    kind: str, protocols: bool, tmp_path: Path
) -> None:
    """The socket file that a process left behind refuses connections, too."""
    async with both("", protocols=protocols) as w:
        if kind == "tcp":
            with socket.create_server(("127.0.0.1", 0)) as closed:
                address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        else:
            address = f"unix:{tmp_path}/b.sock"
            if kind == "left":
                with socket.socket(socket.AF_UNIX) as left:
                    left.bind(f"{tmp_path}/b.sock")
        w.membership.peers["b"] = Peer("b", RUNS["b"], address)

        def on_message(channel: object, message: bytes, outlet: object) -> None:
            if getattr(w.a.openings[channel], "is_returned", False):  # type: ignore[index]
                outlet.send(Send(channel, b"{}", is_last=True, status=404))  # type: ignore[attr-defined,arg-type]

        w.a.on_message = on_message
        answer = await exchanged(w.port, post(RESULT))
        assert answer.startswith(b"HTTP/1.1 404")
        assert w.membership.refused == (["b"] if kind == "tcp" else []), "a socket file stays where it is"
