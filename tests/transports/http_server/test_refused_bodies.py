"""Bodies that are too large: a client that sends all of one before it reads sees 413, and not a broken connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, pages, post
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.base.limits import MIB, Limits
from isthmus.transports.http_server import framing
from isthmus.transports.http_server.framing import SKIP_MAX_BYTES
from isthmus.transports.http_server.server import HttpServer

pytestmark = pytest.mark.anyio

DRIVERS = pytest.mark.parametrize("protocols", [None, False], ids=["own driver", "anyio driver"])
PIECE = b"x" * MIB


@asynccontextmanager
async def connected(limits: Limits, *, protocols: bool | None = None) -> AsyncIterator[ByteStream]:
    """A connection to a server on this machine."""
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), limits, pages=pages, protocols=protocols)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            async with await anyio.connect_tcp("127.0.0.1", listener.extra(SocketAttribute.local_port)) as stream:
                yield stream
            tasks.cancel_scope.cancel()


def head(size_bytes: int) -> bytes:
    return post(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % size_bytes)


@DRIVERS
@pytest.mark.parametrize("size_mib", [20, 31, 100])
async def test_a_client_that_sends_all_before_it_reads_sees_413(size_mib: int, protocols: bool | None) -> None:
    async with connected(Limits(), protocols=protocols) as stream:
        await stream.send(head(size_mib * MIB))
        for _ in range(size_mib):
            await stream.send(PIECE)
        assert (await stream.receive()).startswith(b"HTTP/1.1 413 ")


@DRIVERS
async def test_what_is_read_is_bounded_in_bytes(protocols: bool | None) -> None:
    limits = Limits(request_size_max_bytes=10, refused_body_max_bytes=4 * MIB)
    async with connected(limits, protocols=protocols) as stream:
        await stream.send(head(100 * MIB))
        sent = 0
        with pytest.raises(anyio.BrokenResourceError):
            while sent < 100:
                await stream.send(PIECE)
                sent += 1
        assert sent >= 4


@DRIVERS
async def test_what_is_read_is_bounded_in_time(protocols: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time, and all of them take too long."""
    limits = Limits(request_size_max_bytes=10, refused_body_timeout_s=60.0)
    now = 0.0
    monkeypatch.setattr(framing, "monotonic", lambda: now)
    async with connected(limits, protocols=protocols) as stream:
        await stream.send(head(100 * SKIP_MAX_BYTES))
        assert (await stream.receive()).startswith(b"HTTP/1.1 413 ")
        await stream.send(b"x")
        await anyio.wait_all_tasks_blocked()
        now = 61.0
        with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            while True:
                await stream.send(b"x")
                await anyio.sleep(0.01)
