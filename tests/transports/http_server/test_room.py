"""The room for what clients send and for their connections: all share it, and no address can take all."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, pages, post, world
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.base.budget import UNCOUNTED_MAX_BYTES
from isthmus.core.base.effects import Send
from isthmus.core.base.limits import Limits
from isthmus.transports.http_server.framing import Framing
from isthmus.transports.http_server.server import HttpServer
from socket_fakes import CONTINUATION, TEXT, connected, frame
from wsproto.events import CloseConnection

pytestmark = pytest.mark.anyio

SIZE_BYTES = 2 * UNCOUNTED_MAX_BYTES
LIMITS = Limits(bodies_max_bytes=3 * UNCOUNTED_MAX_BYTES, bodies_per_owner_max_bytes=3 * UNCOUNTED_MAX_BYTES)
LARGE = post(b"x" * SIZE_BYTES)


async def test_a_body_for_which_there_is_no_room_is_refused_and_one_more_is_taken_when_there_is() -> None:
    async with world(LIMITS) as w:
        await w.client.send(LARGE[:-1])
        await anyio.wait_all_tasks_blocked()
        other = w.connect()
        await other.send(LARGE)
        refused = await other.read()
        assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
        assert "others that are arriving have all the room" in json.loads(refused.body)["error"]["message"]
        small = w.connect()
        await small.send(post(b"x" * UNCOUNTED_MAX_BYTES))
        await w.port.wait_message()
        await w.client.send(LARGE[-1:])
        await w.port.wait_message(2)
        again = w.connect()
        await again.send(LARGE)
        await w.port.wait_message(3)


async def test_the_room_of_a_client_that_hangs_up_is_free_again() -> None:
    async with world(LIMITS) as w:
        await w.client.send(LARGE[:-1])
        await anyio.wait_all_tasks_blocked()
        w.client.stream.hang_up()
        await anyio.wait_all_tasks_blocked()
        again = w.connect()
        await again.send(LARGE)
        await w.port.wait_message()


async def test_a_websocket_message_for_which_there_is_no_room_closes_its_socket() -> None:
    async with world(LIMITS) as w:
        await w.client.send(LARGE[:-1])
        await anyio.wait_all_tasks_blocked()
        late = await connected(w.connect().stream)
        half = b"x" * (SIZE_BYTES // 2)
        await late.stream.send(frame(TEXT, half, is_last=False) + frame(CONTINUATION, half[1:], is_last=False))
        closed = await late.event()
        assert isinstance(closed, CloseConnection)
        assert (closed.code, closed.reason) == (1013, "other messages that are arriving have all the room: try again")
        w.client.stream.hang_up()
        await anyio.wait_all_tasks_blocked()
        again = await connected(w.connect().stream)
        await again.stream.send(frame(TEXT, half, is_last=False) + frame(CONTINUATION, half[1:], is_last=False))
        await again.stream.send(frame(CONTINUATION, b"x"))
        await w.port.wait_message()
        assert len(w.port.messages[-1][1]) == SIZE_BYTES
        whole = w.connect()
        await whole.send(LARGE)
        await w.port.wait_message(2)


async def test_what_is_sent_behind_an_open_request_takes_room_and_gives_it_back() -> None:
    """The client for which there is none is cut off; the others have what they had, until they are answered."""
    async with world(LIMITS) as w:
        ahead = post(b"[0]") + post(b"y" * SIZE_BYTES)
        await w.client.send(ahead)
        await w.port.wait_message()
        await anyio.wait_all_tasks_blocked()
        other = w.connect()
        await other.send(ahead)
        assert await other.read_eof() == b""
        await w.port.wait_message(2)
        channel, _ = w.port.messages[0]
        w.port.outlets[channel].send(Send(channel, b"{}", is_last=True))
        assert (await w.client.read()).body == b"{}"
        await w.port.wait_message(3)
        again = w.connect()
        await again.send(LARGE)
        await w.port.wait_message(4)


@pytest.mark.parametrize("scarce", ["gather", "take_gathered"])
async def test_a_request_without_memory_is_refused_with_503_and_the_next_one_served(
    scarce: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with world(LIMITS) as w:
        await w.client.send(LARGE[:-1])
        await anyio.wait_all_tasks_blocked()
        monkeypatch.setattr(Framing, scarce, fail)
        await w.client.send(LARGE[-1:])
        refused = await w.client.read()
        assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
        monkeypatch.undo()
        again = w.connect()
        await again.send(LARGE)
        await w.port.wait_message()
    assert [record.exc_info for record in caplog.records if "no memory" in record.message] == [None]


# --- Addresses, over real sockets -----------------------------------------------------------------------------------


@asynccontextmanager
async def listening(limits: Limits, *, protocols: bool | None) -> AsyncIterator[int]:
    """A server on this machine; its port."""
    port = FakePort()
    port.on_message = lambda channel, message, outlet: outlet.send(Send(channel, b"{}", is_last=True))
    server = HttpServer(SURFACE, port, FakeFiles(), limits, pages=pages, protocols=protocols)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            yield listener.extra(anyio.abc.SocketAttribute.local_port)
            tasks.cancel_scope.cancel()


async def answer(port: int, address: str, request: bytes) -> tuple[bytes, anyio.abc.SocketStream]:
    """The beginning of the response to a request from an address, and the connection."""
    raw = socket.socket()
    raw.setblocking(False)
    raw.bind((address, 0))
    with pytest.raises(BlockingIOError):
        raw.connect(("127.0.0.1", port))
    await anyio.wait_writable(raw)
    stream = await anyio.abc.SocketStream.from_socket(raw)
    await stream.send(request)
    return await stream.receive(), stream


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("protocols", [None, False])
async def test_an_address_cannot_take_all_connections(protocols: bool | None) -> None:
    async with listening(Limits(connections_max=3, connections_per_address_max=2), protocols=protocols) as port:
        first = [await answer(port, "127.0.0.1", HEALTH) for _ in range(2)]
        assert all(head.startswith(b"HTTP/1.1 200") for head, _ in first)
        refused, stream = await answer(port, "127.0.0.1", HEALTH)
        assert refused.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in refused
        await stream.aclose()
        other, stream = await answer(port, "127.0.0.2", HEALTH)
        assert other.startswith(b"HTTP/1.1 200")
        await stream.aclose()
        await first[0][1].aclose()
        while not (again := await answer(port, "127.0.0.1", HEALTH))[0].startswith(b"HTTP/1.1 200"):
            await again[1].aclose()


async def test_an_address_cannot_take_all_the_room_for_bodies() -> None:
    limits = Limits(bodies_max_bytes=4 * SIZE_BYTES, bodies_per_owner_max_bytes=SIZE_BYTES)
    async with listening(limits, protocols=None) as port:
        head = LARGE[: LARGE.index(b"\r\n\r\n") + 4].replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
        _, stalled = await answer(port, "127.0.0.1", head)
        await stalled.send(b"x" * (SIZE_BYTES - 1))
        refused = b""
        while not refused.startswith(b"HTTP/1.1 503"):  # until what was sent has arrived
            refused, stream = await answer(port, "127.0.0.1", LARGE)
            await stream.aclose()
        _, other = await answer(port, "127.0.0.2", head)
        await other.send(b"x" * SIZE_BYTES)
        assert (await other.receive()).startswith(b"HTTP/1.1 200"), "there is room for another address"
