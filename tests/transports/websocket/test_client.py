"""Tests of servers on WebSockets, over streams in memory: joining, messages, and the ends."""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import http_fakes
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener
from http_fakes import MemoryStream, stream_pair
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import Cause, Connected, End, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.response import REFUSAL_BODY_MAX_BYTES
from isthmus.core.wire.http.routes import Surface
from isthmus.transports.base.dialer import Dialer
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.port import Outlet
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.websocket.client import SocketServer
from ports import PATIENCE_S, RecordingPort
from socket_fakes import BINARY, PING, TEXT, SocketPeer, closing, frame, jumping
from wsproto.events import CloseConnection, Pong

pytestmark = pytest.mark.anyio

ONE = ChannelId(1)
DONE = Cause(End.DONE)
ENDPOINT = Endpoint("ws://host.example:81/mcp/ws?a=b", headers=(("X-Key", "secret"), ("X-Own", "ours")))


class MemoryDialer(Dialer):
    """Connects to a stream in memory, when it may."""

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(ENDPOINT, ENDPOINT.address(), Limits())
        self.may_connect = anyio.Event()
        self.may_connect.set()
        self._stream = stream

    async def connect(self) -> ByteStream:
        await self.may_connect.wait()
        return self._stream


class World:
    """A server to be joined.

    Attributes:
        peer: the server, at the other end of `stream`.
    """

    def __init__(self, near: MemoryStream, far: MemoryStream, limits: Limits) -> None:
        self.port = RecordingPort()
        self.near = near
        self.dialer = MemoryDialer(near)
        self.stream = far
        self.peer = SocketPeer(far, is_client=False)
        self.outlet = SocketServer(self.dialer, ENDPOINT, (("x-own", "theirs"),), ONE, self.port, limits)

    def order(self, *messages: bytes) -> None:
        for message in messages:
            self.outlet.send(Send(ONE, message))

    async def cause(self) -> Cause:
        return await self.port.wait_closed(ONE)


@asynccontextmanager
async def world(limits: Limits | None = None, *, capacity: int = 1 << 20) -> AsyncIterator[World]:
    """A server to be joined. At the end it hangs up; then the channel must be closed, and our end of the stream."""
    near, far = stream_pair(capacity)
    w = World(near, far, limits or Limits())
    with anyio.fail_after(http_fakes.WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outlet.run)
            yield w
            far.hang_up()
        assert ONE in w.port.closes
        assert near.outgoing.is_eof


@asynccontextmanager
async def joined(
    limits: Limits | None = None, *, capacity: int = 1 << 20, deflates: bool = False
) -> AsyncIterator[World]:
    async with world(limits, capacity=capacity) as w:
        await w.peer.accept_upgrade(deflates=deflates)
        assert await w.port.wait_opened(ONE) == Connected()
        yield w


# --- Joining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["mcp", None])
@pytest.mark.parametrize("deflates", [False, True])
async def test_messages_cross_both_ways(protocol: str | None, deflates: bool) -> None:
    async with world() as w:
        w.order(b'{"early":1}')
        request = await w.peer.accept_upgrade(protocol=protocol, deflates=deflates)
        headers = dict(request.extra_headers)
        assert len(headers) == len(request.extra_headers), "what is carried replaces the endpoint's own"
        assert (request.host, request.target, request.subprotocols) == ("host.example:81", "/mcp/ws?a=b", ["mcp"])
        assert (headers[b"x-key"], headers[b"x-own"], headers[b"user-agent"]) == (b"secret", b"theirs", b"isthmus")
        texts = ["é" * 1000, "[" + "1," * 100_000 + "1]", "{}"]
        w.order(*(text.encode() for text in texts))
        assert [await w.peer.read() for _ in range(4)] == ['{"early":1}', *texts]
        await w.peer.send_text(*texts)
        assert await w.port.wait_message(ONE, 3) == [text.encode() for text in texts]
        await w.port.wait_sent(ONE, sum(len(text.encode()) for text in texts) + 11)
        w.outlet.close(Close(ONE, code=1001, reason="bye"))
        assert await w.peer.read() == CloseConnection(1001, "bye")
        assert await w.cause() == DONE


async def test_what_comes_behind_the_answer_is_not_lost() -> None:
    async with world() as w:
        sent = w.peer.send_event

        async def send_more(event: object) -> None:
            await w.peer.send(w.peer._ws.send(event) + frame(TEXT, b"{}", is_masked=False))  # type: ignore[arg-type]

        w.peer.send_event = send_more  # type: ignore[method-assign,assignment]
        await w.peer.accept_upgrade()
        w.peer.send_event = sent  # type: ignore[method-assign]
        assert await w.port.wait_message(ONE) == [b"{}"]


PACKED = gzip.compress(b"x" * 1_000_000)
ANSWER = b"HTTP/1.1 %b\r\nContent-Length: 2\r\n%b\r\n{}"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%b\r\n"


@pytest.mark.parametrize(
    "answer, cause",
    [
        (
            ANSWER % (b"401 Unauthorized", b""),
            Cause(
                End.REFUSED,
                "got HTTP status 401, expected success; does it want credentials in a header?",
                status=401,
                body=b"{}",
            ),
        ),
        (ANSWER % (b"426 Upgrade Required", b""), Cause(End.REFUSED, "got HTTP status 426", status=426, body=b"{}")),
        (
            ANSWER % (b"302 Found", b"Location: https://elsewhere/x\r\n"),
            Cause(End.REFUSED, "got a redirect (HTTP status 302) to https://elsewhere", status=302, body=b"{}"),
        ),
        (
            b"HTTP/1.1 500 Oops\r\nContent-Length: 9\r\n\r\nhalf",
            Cause(End.REFUSED, "got HTTP status 500", status=500, body=b"half"),
        ),
        (
            b"HTTP/1.1 500 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
            Cause(End.REFUSED, "got HTTP status 500", status=500, body=b"x" * REFUSAL_BODY_MAX_BYTES),
        ),
        (ANSWER % (b"200 OK", b""), Cause(End.BROKEN, "got HTTP status 200, expected 101; is it a WebSocket's URL?")),
        (b"SSH-2.0-OpenSSH\r\n\r\n", Cause(End.BROKEN, "got a malformed HTTP response")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, Cause(End.BROKEN, "got a malformed HTTP response")),
        (b"", Cause(End.BROKEN, "got a malformed HTTP response to the upgrade")),
        (SWITCHING % b"", Cause(End.BROKEN, "got a Sec-WebSocket-Accept that does not fit the request")),
        (SWITCHING % b"Sec-WebSocket-Accept: x\r\n", Cause(End.BROKEN, "got a Sec-WebSocket-Accept that does not")),
    ],
)
async def test_an_upgrade_that_comes_to_nothing_says_why(answer: bytes, cause: Cause) -> None:
    async with world() as w:
        w.order(b"{}")
        assert b"\r\nsec-websocket-protocol: mcp\r\n" in (await w.stream.receive()).lower()
        await w.peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer if answer else b"")
        await w.stream.send_eof()
        seen = await w.cause()
        assert (seen.end, seen.status, seen.body, seen.unsent) == (cause.end, cause.status, cause.body, False)
        assert seen.detail.startswith(cause.detail)
        assert ONE not in w.port.opened_channels


async def test_a_server_that_is_not_there() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    number = listener.extra(SocketAttribute.local_port)
    await listener.aclose()
    endpoint, port = Endpoint(f"ws://127.0.0.1:{number}/"), RecordingPort()
    await SocketServer(Dialer(endpoint, endpoint.address(), Limits()), endpoint, (), ONE, port, Limits()).run()
    detail = f"connection refused by 127.0.0.1:{number}; is the server running?"
    assert port.closes == {ONE: Cause(End.UNREACHABLE, detail, unsent=True)}


@pytest.mark.parametrize("is_connected", [False, True])
async def test_an_order_to_close_ends_the_joining(is_connected: bool) -> None:
    async with world() as w:
        if is_connected:
            await w.stream.receive()
        else:
            w.dialer.may_connect = anyio.Event()
        await anyio.wait_all_tasks_blocked()
        w.outlet.close(Close(ONE))
        assert await w.cause() == DONE
        assert ONE not in w.port.opened_channels
        if not is_connected:
            w.dialer._stream.outgoing.is_eof = True  # type: ignore[attr-defined]  # nothing was connected


async def test_cancelling_ends_the_channel() -> None:
    near, far = stream_pair()
    w = World(near, far, Limits())
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.outlet.run)
            await w.peer.accept_upgrade()
            await w.port.wait_opened(ONE)
            tasks.cancel_scope.cancel()
    assert w.port.closes == {ONE: Cause(End.BROKEN, "shutting down")}
    assert near.outgoing.is_eof


# --- Messages -------------------------------------------------------------------------------------------------------


async def test_pings_are_answered() -> None:
    async with joined() as w:
        await w.peer.send(frame(PING, b"hello", is_masked=False))
        assert await w.peer.read() == Pong(b"hello")


async def test_binary_messages_are_taken_for_text_if_they_can_be() -> None:
    async with joined() as w:
        await w.peer.send(frame(BINARY, "é".encode(), is_masked=False) + frame(BINARY, b"\xff", is_masked=False))
        assert await w.port.wait_message(ONE) == ["é".encode()]
        closed = await w.peer.read()
        assert closed == CloseConnection(1003, "got a binary message that is not UTF-8, expected UTF-8")
        cause = await w.cause()
        assert (cause.end, cause.detail) == (
            End.BROKEN,
            "the server was closed with 1003: got a binary message that is not UTF-8, expected UTF-8",
        )


@pytest.mark.parametrize("deflates", [False, True])
async def test_an_answer_over_the_limit_becomes_an_error(deflates: bool) -> None:
    async with joined(Limits(reply_size_max_bytes=100_000), deflates=deflates) as w:
        await w.peer.send_text("{}", '{"jsonrpc":"2.0","id":7,"result":"' + "x" * 200_000 + '"}')
        closed = await w.peer.read()
        assert closed == CloseConnection(1009, "got a message over the limit of 100000 bytes")
        assert (await w.cause()).end is End.BROKEN
        _, answer = w.port.messages[ONE]
        assert json.loads(answer)["id"] == 7
        assert json.loads(answer)["error"]["message"] == "the server's answer is over the limit of 100000 bytes"


async def test_a_connection_that_is_being_given_up_is_lost_at_once() -> None:
    """A request that comes meanwhile must travel on another connection, as this one is not read any more."""
    async with joined(Limits(reply_size_max_bytes=100_000)) as w:
        await w.peer.send_text("x" * 200_000)
        assert (await w.cause()).end is End.BROKEN
        assert not w.near.outgoing.is_eof, "the server has not closed its side yet"
        assert isinstance(await w.peer.read(), CloseConnection)


async def test_nothing_is_read_while_paused() -> None:
    async with joined(Limits(read_size_bytes=100), capacity=300) as w:
        w.outlet.pause()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.peer.send, frame(TEXT, b"1" * 2000, is_masked=False))
            await anyio.wait_all_tasks_blocked()
            assert not w.port.messages[ONE] and len(w.stream.outgoing.data) == 300
            w.outlet.resume()
            assert await w.port.wait_message(ONE) == [b"1" * 2000]


@pytest.mark.parametrize(
    "data, detail",
    [
        (closing(1008, "policy: no", is_masked=False), "the server closed with 1008: policy: no"),
        (closing(1000, is_masked=False), "the server closed with 1000"),
        (frame(8, is_masked=False), "the server closed without a code"),
        (None, "the server hung up without closing the WebSocket"),
    ],
)
async def test_a_server_that_leaves_is_lost(data: bytes | None, detail: str) -> None:
    async with joined() as w:
        if data is None:
            w.stream.hang_up()
        else:
            await w.peer.send(data)
            closed = await w.peer.event()
            assert isinstance(closed, CloseConnection) and str(closed.code) in detail + "1005"
        assert await w.cause() == Cause(End.BROKEN, detail)


def test_a_server_that_answers_no_ping_is_lost() -> None:
    async def run() -> None:
        async with joined() as w:
            w.peer.is_mute = True
            assert await w.peer.read() == CloseConnection(1011, "answered no ping for 30 s")
            assert w.peer.pings == 2
            assert await w.cause() == Cause(End.TIMED_OUT, "the server answered no ping for 30 s")

    jumping(run)


def test_a_server_that_takes_nothing_is_lost() -> None:
    async def run() -> None:
        async with joined(Limits(keep_alive_s=1e9), capacity=1000) as w:
            w.order(b"x" * 10_000)
            assert await w.cause() == Cause(End.TIMED_OUT, "the server took nothing for 60 s")
            assert not w.port.sent_bytes[ONE]

    jumping(run)


# --- With our own server --------------------------------------------------------------------------------------------


class EchoPort(http_fakes.FakePort):
    def __init__(self) -> None:
        super().__init__()
        self.on_message = self._echo

    def _echo(self, channel: ChannelId, message: bytes, outlet: Outlet) -> None:
        outlet.send(Send(channel, message))


@pytest.mark.parametrize("is_secure", [False, True])
async def test_client_and_server_meet_over_sockets(
    is_secure: bool, authority: Path, server_tls: ssl.SSLContext
) -> None:
    """Each side understands the compression, fragments and masks of the other, and both report why it ended."""
    far, near, limits = EchoPort(), RecordingPort(), Limits()
    surface = Surface(("files",), frozenset({"localhost"}), frozenset())
    server = HttpServer(surface, far, http_fakes.FakeFiles(), limits, pages=http_fakes.pages)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    number = listener.extra(SocketAttribute.local_port)
    endpoint = Endpoint(
        f"{'wss' if is_secure else 'ws'}://localhost:{number}/ws/files", ca_file=str(authority / "ca.pem")
    )
    outlet = SocketServer(Dialer(endpoint, endpoint.address(), limits), endpoint, (), ONE, near, limits)
    messages = [b"{}", b"[" + b"1234567890," * 300_000 + b"0]", "é\u2028".encode() * 50_000, b"{}"]
    with anyio.fail_after(PATIENCE_S):
        async with listener, anyio.create_task_group() as tasks:
            secured = TLSListener(listener, server_tls, standard_compatible=False) if is_secure else listener
            tasks.start_soon(secured.serve, server.handle)
            tasks.start_soon(outlet.run)
            assert await near.wait_opened(ONE) == Connected()
            for message in messages:
                outlet.send(Send(ONE, message))
            assert await near.wait_message(ONE, len(messages)) == messages
            assert far.openings[ONE] == PipeOpening("files", base_url=f"http://localhost:{number}", address="127.0.0.1")
            await near.wait_sent(ONE, sum(map(len, messages)))
            far.outlets[ONE].close(Close(ONE, code=1001, reason="bye"))
            assert await near.wait_closed(ONE) == Cause(End.BROKEN, "the server closed with 1001: bye")
            await far.wait_closed(1)
            assert far.closes == {ONE: DONE}
            tasks.cancel_scope.cancel()
