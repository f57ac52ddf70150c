"""Tests of clients on WebSockets, over streams in memory: messages, ends, and the reports to the port."""

from __future__ import annotations

import json
import zlib

import anyio
import anyio.lowlevel
import pytest
import trio
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, get, pages, post, stream_pair, world
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import Cause, End, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.port import Outlet
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.websocket.connection import CLOSE_WAIT_S, PART_BYTES, TURN_BYTES, TURN_EVENTS
from isthmus.transports.websocket.frames import Frames
from socket_fakes import BINARY, CONTINUATION, PING, TEXT, SocketPeer, closing, connected, frame, jumping
from wsproto.events import CloseConnection, Pong, TextMessage

pytestmark = pytest.mark.anyio

ONE = ChannelId(1)


def echo(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    outlet.send(Send(channel, message))


def upgrade(*extra: str, target: str = "/ws") -> bytes:
    lines = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    return get(target, *lines, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *extra)


async def closed_as(port: FakePort, channel: int = 1) -> Cause:
    await port.wait_closed(channel)
    return port.closes[ChannelId(channel)]


# --- The upgrade ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deflates", [False, True])
async def test_messages_cross_both_ways(deflates: bool) -> None:
    async with world() as w:
        w.port.on_message = echo
        peer = await connected(w.client.stream, "/ws/files", deflates=deflates)
        assert peer.subprotocol == "mcp"
        assert w.port.openings == {ONE: PipeOpening("files", base_url="http://localhost:8932")}
        texts = ["{}", "é" * 1000, "[" + "1," * 100_000 + "1]", ""]
        await peer.send_text(*texts)
        assert [await peer.read() for _ in texts] == texts
        assert w.port.messages == [(ONE, text.encode()) for text in texts]
        await peer.close(1000, "done")
        assert await peer.read() == CloseConnection(1000, "")
        await peer.wait_eof()
        assert await closed_as(w.port) == Cause(End.GONE, "the client closed with 1000: done")
        assert w.port.sent_bytes[ONE] == sum(len(text.encode()) for text in texts)


@pytest.mark.parametrize("protocols, chosen", [((), None), (("mcp",), "mcp"), (("other", "mcp"), "mcp")])
async def test_the_subprotocol_is_chosen_where_it_is_offered(protocols: tuple[str, ...], chosen: str | None) -> None:
    async with world() as w:
        peer = SocketPeer(w.client.stream, is_client=True)
        await peer.request_upgrade(protocols=protocols)
        assert (peer.rejected, peer.subprotocol) == (None, chosen)


@pytest.mark.parametrize(
    "request_bytes, status, words",
    [
        (get("/ws"), 426, "expected both"),
        (upgrade().replace(b": 13", b": 12"), 426, "expected 13"),
        (upgrade("Sec-WebSocket-Protocol: graphql-ws"), 400, "'graphql-ws', expected mcp"),
        (upgrade().replace(b"HTTP/1.1", b"HTTP/1.0"), 426, "expected HTTP/1.1"),
        (upgrade(target="/ws/other"), 404, "expected /ws"),
        (upgrade("Origin: https://evil.example"), 403, "Origin"),
    ],
)
async def test_a_refused_upgrade_has_a_reason(request_bytes: bytes, status: int, words: str) -> None:
    async with world() as w:
        await w.client.send(request_bytes)
        answer = await w.client.read("GET")
        assert answer.status == status and words in json.loads(answer.body)["detail"]
        assert answer.headers.get(b"upgrade") == (b"websocket" if words in ("expected both", "expected 13") else None)
        assert not w.port.openings


async def test_a_connection_whose_upgrade_was_refused_goes_on() -> None:
    async with world() as w:
        w.port.on_message = lambda channel, message, outlet: outlet.send(Send(channel, message, is_last=True))
        await w.client.send(get("/ws") + post(b"1"))
        assert (await w.client.read("GET")).status == 426
        assert (await w.client.read()).body == b"1"


@pytest.mark.parametrize("cut", [None, 1, 7])
async def test_what_comes_behind_the_request_is_not_lost(cut: int | None) -> None:
    """A client may send before its upgrade is answered."""
    async with world() as w:
        w.port.on_message = lambda channel, message, outlet: outlet.send(Send(channel, message, is_last=channel == 1))
        frames = frame(TEXT, b"[1]") + frame(TEXT, b"[", is_last=False) + frame(CONTINUATION, b"2]")
        await w.client.send(post(b"1") + upgrade() + frames, cut=cut)
        assert (await w.client.read()).body == b"1"
        await w.port.wait_message(3)
        assert w.port.messages[1:] == [(2, b"[1]"), (2, b"[2]")]


async def test_a_body_before_the_upgrade_is_dropped() -> None:
    async with world() as w:
        await w.client.send(upgrade("Content-Length: 3") + b"abc" + frame(TEXT, b"{}"))
        await w.port.wait_message()
        assert w.port.messages == [(ONE, b"{}")]


# --- Reading ----------------------------------------------------------------------------------------------------------


async def test_pings_are_answered_between_messages() -> None:
    async with world() as w:
        peer = await connected(w.client.stream)
        await peer.send(frame(TEXT, b"{", is_last=False) + frame(PING, b"hello") + frame(CONTINUATION, b"}"))
        assert await peer.read() == Pong(b"hello")
        await w.port.wait_message()
        assert w.port.messages == [(ONE, b"{}")]


@pytest.mark.parametrize(("size_bytes", "turns"), [(TURN_BYTES - 1, {1}), (TURN_BYTES, {2, 3})])
async def test_a_large_message_is_handled_before_the_next_is_inflated(size_bytes: int, turns: set[int]) -> None:
    """Three messages that come in one read take one turn of the event loop; large ones take a turn each.

    Trio runs the tasks of a turn in any order, so two turns may look like one.
    """
    maker = zlib.compressobj(9, zlib.DEFLATED, -15)
    small = (maker.compress(b"x" * size_bytes) + maker.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")
    async with world() as w:
        peer = await connected(w.client.stream, deflates=True)
        turn, seen = 0, set()
        w.port.on_message = lambda channel, message, outlet: seen.add(turn)
        await peer.send(frame(TEXT, small, is_compressed=True) * 3)
        with anyio.fail_after(WAIT_S):
            while len(w.port.messages) < 3:
                turn += 1
                await anyio.lowlevel.checkpoint()
        assert len(seen) in turns


async def test_a_flood_of_pings_is_answered_once_in_a_while() -> None:
    """A client that pings and reads nothing fills no memory: only the last ping need be answered (RFC 6455, 5.5.3)."""
    async with world(capacity=1000) as w:
        peer = await connected(w.client.stream)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.send, frame(PING, b"x" * 100) * 1000 + frame(PING, b"last") + frame(TEXT, b"{}"))
            await w.port.wait_message()
        pongs = 1
        while await peer.read() != Pong(b"last"):
            pongs += 1
        assert pongs < 100


async def test_others_get_their_turn() -> None:
    """Other tasks run between frames, as one read can hold thousands."""
    async with world(Limits(read_size_bytes=1 << 20)) as w:
        peer = await connected(w.client.stream)
        most, taken, is_over = 0, 0, False
        next_event = Frames.next_event

        def spy(frames: Frames) -> object:
            nonlocal taken
            taken += 1
            return next_event(frames)

        async def be_another() -> None:
            nonlocal most, taken
            while not is_over:
                most, taken = max(most, taken), 0
                await anyio.lowlevel.checkpoint()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Frames, "next_event", spy)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(be_another)
                await peer.send(
                    frame(TEXT, is_last=False) + frame(CONTINUATION, is_last=False) * 5000 + frame(CONTINUATION)
                )
                await w.port.wait_message()
                is_over = True
        assert 10 < most <= 2 * (TURN_EVENTS + 2), "trio may let one task run twice before another"


async def test_nothing_is_read_while_paused() -> None:
    async with world(Limits(read_size_bytes=100), capacity=100) as w:
        peer = await connected(w.client.stream)
        w.port.on_message = lambda channel, message, outlet: outlet.pause()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.send, frame(TEXT, b"1") + frame(TEXT, b"2") + frame(TEXT, b"3" * 1000))
            await w.port.wait_message()
            await anyio.wait_all_tasks_blocked()
            assert len(w.port.messages) == 1
            assert len(peer.stream.outgoing.data) == 100, "the client is held back"  # type: ignore[attr-defined]
            w.port.outlets[ONE].resume()
            await w.port.wait_message(2)
            await anyio.wait_all_tasks_blocked()
            assert len(w.port.messages) == 2
            w.port.on_message = echo
            w.port.outlets[ONE].resume()
            await w.port.wait_message(3)


@pytest.mark.parametrize(
    "data, code, reason",
    [
        (frame(BINARY, b"{}"), 1003, "got a binary message, expected text"),
        (frame(TEXT, b"\xff"), 1007, "got text that is not UTF-8, expected UTF-8"),
        (frame(TEXT, b"{}", is_masked=False), 1002, "got a malformed frame"),
    ],
    ids=range(3),  # masks are different each time
)
async def test_a_peer_that_breaks_the_rules_is_closed_with_a_reason(data: bytes, code: int, reason: str) -> None:
    async with world() as w:
        peer = await connected(w.client.stream)
        await peer.send(frame(TEXT, b"[1]") + data + frame(TEXT, b"[2]"))
        closed = await peer.read()
        assert isinstance(closed, CloseConnection)
        assert closed.code == code and closed.reason is not None and closed.reason.startswith(reason)
        w.client.stream.hang_up()
        cause = await closed_as(w.port)
        assert cause.end is End.BROKEN and cause.detail.startswith(f"the client was closed with {code}: {reason}")
        assert w.port.messages == [(ONE, b"[1]")]


REQUEST = b'{"jsonrpc":"2.0","id":"a","method":"x","params":"' + b"y" * 200_000 + b'"}'


@pytest.mark.parametrize("deflates", [False, True])
@pytest.mark.parametrize("message, id", [(REQUEST, "a"), (b"[" * 200_000, None)])
async def test_a_request_over_the_limit_is_answered_before_the_end(
    message: bytes, id: str | None, deflates: bool
) -> None:
    async with world(Limits(request_size_max_bytes=100_000)) as w:
        peer = await connected(w.client.stream, deflates=deflates)
        await peer.send_text(message.decode())
        if id is not None:
            answer = await peer.read()
            assert isinstance(answer, str)
            assert json.loads(answer)["id"] == id
            assert json.loads(answer)["error"]["message"] == "the request is over the limit of 100000 bytes"
        closed = await peer.read()
        assert closed == CloseConnection(1009, "got a message over the limit of 100000 bytes")
        await peer.wait_eof()
        assert (await closed_as(w.port)).end is End.BROKEN
        assert not w.port.messages and not w.port.sent_bytes


# --- The end ----------------------------------------------------------------------------------------------------------


async def test_an_order_to_close_waits_for_what_was_sent() -> None:
    async with world(capacity=5000) as w:
        peer = await connected(w.client.stream)
        outlet = w.port.outlets[ONE]
        outlet.send(Send(ONE, b"x" * (2 * PART_BYTES)))
        outlet.send(Send(ONE, b"y"))
        for _ in range(2):
            outlet.close(Close(ONE, reason="é" * 100, code=1001))
        outlet.send(Send(ONE, b"too late"))
        outlet.pause()
        await peer.send_text("[1]")
        assert [await peer.read() for _ in range(3)] == ["x" * (2 * PART_BYTES), "y", CloseConnection(1001, "é" * 61)]
        await peer.wait_eof()
        assert await closed_as(w.port) == Cause(End.DONE)
        assert not w.port.messages, "nothing is reported of a channel that is to close"


@pytest.mark.parametrize("code", [1000, 1008, 4999, None])
async def test_the_client_s_close_is_answered_with_its_code(code: int | None) -> None:
    async with world() as w:
        peer = await connected(w.client.stream)
        await peer.send(closing(code, "why") if code is not None else frame(8))
        answer = await peer.event()
        assert isinstance(answer, CloseConnection) and answer.code == (code or 1005)
        detail = "closed without a code" if code is None else f"closed with {code}: why"
        assert await closed_as(w.port) == Cause(End.GONE, f"the client {detail}")


async def test_who_closes_is_sent_nothing_more() -> None:
    """A client that closes is sent nothing more but the answer to its close, even in the midst of a message."""
    async with world(capacity=1000) as w:
        peer = await connected(w.client.stream)
        for _ in range(3):
            w.port.outlets[ONE].send(Send(ONE, b"x" * (3 * PART_BYTES)))
        await anyio.wait_all_tasks_blocked()
        await peer.close()
        await anyio.wait_all_tasks_blocked()
        size = 0
        while not isinstance(event := await peer.event(), CloseConnection):
            assert isinstance(event, TextMessage)
            size += len(event.data)
        assert size == PART_BYTES
        assert await closed_as(w.port) == Cause(End.GONE, "the client closed with 1000")


async def test_orders_may_come_before_the_opening_is_over() -> None:
    async with world() as w:

        def be_hasty(channel: ChannelId, opening: object, outlet: Outlet) -> None:
            outlet.send(Send(channel, b"{}"))
            outlet.close(Close(channel))

        w.port.on_open = be_hasty
        peer = await connected(w.client.stream)
        assert [await peer.read() for _ in range(2)] == ["{}", CloseConnection(1000, "")]
        assert await closed_as(w.port) == Cause(End.DONE)


async def test_hanging_up_is_not_closing() -> None:
    async with world() as w:
        await connected(w.client.stream)
        w.client.stream.hang_up()
        assert await closed_as(w.port) == Cause(End.GONE, "the client hung up without closing the WebSocket")


async def test_cancelling_ends_the_channel() -> None:
    port = FakePort()
    server = HttpServer(SURFACE, port, FakeFiles(), Limits(), pages=pages)
    near, far = stream_pair()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.handle, far)
            await connected(near)
            tasks.cancel_scope.cancel()
    assert port.closes == {ONE: Cause(End.BROKEN, "the listener was stopped")}


async def test_draining_waits_until_the_engine_closes_it() -> None:
    async with world() as w:
        w.port.on_message = echo
        peer = await connected(w.client.stream)
        late = w.connect()
        await late.send(upgrade()[:-2])
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.server.drain)
            await anyio.wait_all_tasks_blocked()
            await peer.send_text("[1]")
            assert await peer.read() == "[1]", "until then it is served"
            await late.send(b"\r\n")
            assert (await late.read("GET")).status == 503, "but no other client"
            w.port.outlets[ONE].close(Close(ONE, code=1001, reason="bye"))
            assert await peer.read() == CloseConnection(1001, "bye")
        assert await closed_as(w.port) == Cause(End.DONE)


# --- Time, on trio's jumping clock ---------------------------------------------------------------------------------


def test_an_idle_socket_is_pinged_and_kept() -> None:
    async def run() -> None:
        async with world() as w:
            peer = await connected(w.client.stream)
            with trio.move_on_after(10 * Limits().keep_alive_s + 1):
                await peer.read()
            assert peer.pings == 5, "each pong is a sign of life for a round"
            assert not w.port.closes

    jumping(run)


def test_who_answers_no_ping_is_given_up() -> None:
    async def run() -> None:
        async with world() as w:
            peer = await connected(w.client.stream)
            peer.is_mute = True
            began_at = trio.current_time()
            assert await peer.read() == CloseConnection(1011, "answered no ping for 30 s")
            assert peer.pings == Limits().pings_unanswered_max
            assert trio.current_time() - began_at == pytest.approx(3 * Limits().keep_alive_s)
            assert await closed_as(w.port) == Cause(End.TIMED_OUT, "the client answered no ping for 30 s")

    jumping(run)


def test_silence_while_paused_is_our_own_doing() -> None:
    async def run() -> None:
        async with world() as w:
            peer = await connected(w.client.stream)
            w.port.outlets[ONE].pause()
            with trio.move_on_after(10 * Limits().keep_alive_s + 1):
                await peer.read()
            assert peer.pings >= 9, "it is kept alive all the same"
            assert not w.port.closes

    jumping(run)


def test_who_takes_nothing_is_given_up() -> None:
    async def run() -> None:
        async with world(Limits(keep_alive_s=1e9), capacity=1000) as w:
            await connected(w.client.stream)
            w.port.outlets[ONE].send(Send(ONE, b"x" * 10_000))
            began_at = trio.current_time()
            assert await closed_as(w.port) == Cause(End.TIMED_OUT, "the client took nothing for 60 s")
            assert trio.current_time() - began_at == pytest.approx(Limits().write_timeout_s)
            assert not w.port.sent_bytes

    jumping(run)


def test_a_close_while_paused_is_not_held_up() -> None:
    async def run() -> None:
        async with world() as w:
            peer = await connected(w.client.stream)
            await peer.send_text("[1]")
            w.port.on_message = lambda channel, message, outlet: outlet.pause()
            await w.port.wait_message()
            began_at = trio.current_time()
            w.port.outlets[ONE].close(Close(ONE))
            assert await peer.read() == CloseConnection(1000, "")
            assert await closed_as(w.port) == Cause(End.DONE)
            assert trio.current_time() == began_at

    jumping(run)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_close_that_nobody_answers_is_waited_for_a_moment(is_full: bool) -> None:
    """The wait is bounded, also for a client that closes and takes no answer."""

    async def run() -> None:
        async with world(Limits(keep_alive_s=1e9), capacity=1000) as w:
            peer = await connected(w.client.stream)
            began_at = trio.current_time()
            if is_full:
                w.port.outlets[ONE].send(Send(ONE, b"x" * 10_000))
                await peer.close()
            else:
                w.port.outlets[ONE].close(Close(ONE))
            assert (await closed_as(w.port)).end is (End.GONE if is_full else End.DONE)
            assert trio.current_time() - began_at == pytest.approx(CLOSE_WAIT_S)

    jumping(run)
