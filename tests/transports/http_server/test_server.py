"""Tests of the HTTP listener over streams in memory: what it lets through, what it refuses, and its reports to the
port."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.abc import ByteStream, SocketListener, SocketStream
from event_loop_clock import EventLoopClock
from http_fakes import (
    LIMIT_S,
    SURFACE,
    WAIT_S,
    Client,
    FakeFiles,
    FakePort,
    MemoryStream,
    get,
    pages,
    post,
    stream_pair,
    world,
)
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import (
    DeleteOpening,
    DownloadOpening,
    DraftOpening,
    End,
    GetOpening,
    Opening,
    PostOpening,
    UploadOpening,
    Verb,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Append, Cease, Receive, Serve
from isthmus.core.wire.http.routes import PageRoute, Refused, Surface
from isthmus.transports.base.port import Outlet, UploadRefused
from isthmus.transports.http_server import server as http_server
from isthmus.transports.http_server import writer
from isthmus.transports.http_server.framing import HELD_MAX_BYTES, SKIP_MAX_BYTES, TURN_EVENTS
from isthmus.transports.http_server.server import HttpServer
from turns import watched

pytestmark = pytest.mark.anyio

ONE = ChannelId(1)
RECEIVE = Receive(ONE, ("b0",), file_size_max_bytes=1 << 20, total_size_max_bytes=1 << 20)


def echo(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    """Answers with the message itself."""
    outlet.send(Send(channel, message, is_last=True))


# --- Ordinary requests ----------------------------------------------------------------------------------------------


async def test_one_connection_serves_many_requests() -> None:
    async with world() as w:
        w.port.on_message = echo
        for n in range(1, 4):
            await w.client.send(post(b"%d" % n))
            answer = await w.client.read()
            assert (answer.status, answer.body) == (200, b"%d" % n)
            assert answer.headers[b"content-type"] == b"application/json"
            assert b"connection" not in answer.headers
            assert await w.port.wait_closed(n) is End.DONE
            assert w.port.sent_bytes[ChannelId(n)] == len(answer.body)
        assert w.port.log[:3] == [("open", 1), ("message", 1), ("closed", 1)]


@pytest.mark.parametrize("cut", [1, 2, 7, 64])
@pytest.mark.parametrize("chunked", [False, True])
async def test_cutting_never_shows(cut: int, chunked: bool) -> None:
    """The port gets the same reports, however the bytes of the requests are divided."""
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(post(b'{"a":1}', chunked=chunked) + post(b'{"b":2}', chunked=chunked), cut=cut)
        assert [(await w.client.read()).body for _ in range(2)] == [b'{"a":1}', b'{"b":2}']
        opening = w.port.openings[ONE]
        assert opening == PostOpening("files", base_url="http://localhost:8932")
        assert w.port.messages == [(1, b'{"a":1}'), (2, b'{"b":2}')]


async def test_a_large_reply_arrives_whole() -> None:
    async with world(capacity=50_000) as w:
        message = bytes(range(256)) * 4096
        w.port.on_message = lambda channel, _, outlet: outlet.send(Send(channel, message, is_last=True))
        await w.client.send(post())
        assert (await w.client.read()).body == message
        await w.port.wait_closed(1)
        assert w.port.sent_bytes[ONE] == len(message)


async def test_pipelined_requests_wait_for_their_turn() -> None:
    """The second request is not reported before the first reply has left."""
    async with world() as w:
        await w.client.send(post(b"1") + post(b"2") + get("/healthz"))
        await w.port.wait_message()
        await anyio.wait_all_tasks_blocked()
        assert len(w.port.openings) == 1
        w.port.outlets[ONE].send(Send(ONE, b"one", is_last=True))
        assert (await w.client.read()).body == b"one"
        await w.port.wait_message(2)
        w.port.outlets[ChannelId(2)].send(Send(ChannelId(2), b"two", is_last=True))
        assert (await w.client.read()).body == b"two"
        assert (await w.client.read("GET")).body == b"fine\n"


async def test_held_bytes_are_bounded() -> None:
    """A client that goes on sending while a reply is due is not read without end, and loses nothing."""
    limits = Limits(read_size_bytes=4096)
    async with world(limits, capacity=4096) as w:
        more = post(b"2" * 1000)
        many = 3 * HELD_MAX_BYTES // len(more)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.stream.send, post(b"1") + more * many)
            await w.port.wait_message()
            await anyio.wait_all_tasks_blocked()
            assert len(w.client.stream.outgoing.data) == 4096, "the client is held back"
            w.port.on_message = echo
            echo(ONE, b"1", w.port.outlets[ONE])
            for _ in range(many + 1):
                assert (await w.client.read()).status == 200
        assert len(w.port.messages) == many + 1


async def test_continue_is_sent_only_when_the_body_is_wanted() -> None:
    async with world(Limits(request_size_max_bytes=1000)) as w:
        w.port.on_message = echo
        head, body = post(b"{}", "Expect: 100-continue")[:-2], b"{}"
        await w.client.send(head)
        with anyio.fail_after(WAIT_S):
            assert (await w.client.stream.receive()).startswith(b"HTTP/1.1 100 Continue\r\n")
        await w.client.send(body)
        assert (await w.client.read()).status == 200

        await w.client.send(post(b"x" * 2000, "Expect: 100-continue")[:-2000])
        answer = await w.client.read()
        assert (answer.status, answer.informational) == (413, [])
        assert answer.headers[b"connection"] == b"close"


async def test_a_client_that_sends_its_body_at_once_gets_no_100() -> None:
    """RFC 9110, 10.1.1: a server MAY omit it "if it has already received some or all of the content"."""
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(post(b"1", "Expect: 100-continue"))
        answer = await w.client.read()
        assert (answer.status, answer.informational, answer.body) == (200, [], b"1")


async def test_a_reply_queued_behind_a_blocked_write_ends_only_when_it_has_left() -> None:
    async with world(capacity=10) as w:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.send, post(b"1", "Expect: 100-continue")[:-1])
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(w.client.send, b"1")
            await w.port.wait_message()
            echo(ONE, b"1", w.port.outlets[ONE])
            await anyio.wait_all_tasks_blocked()
            assert ONE not in w.port.closes and ONE not in w.port.sent_bytes
            answer = await w.client.read()
            assert (answer.informational, answer.body) == ([100], b"1")
            assert await w.port.wait_closed(1) is End.DONE
            assert w.port.sent_bytes[ONE] == 1


async def test_old_and_closing_clients_get_their_connection_closed() -> None:
    for request in (post(b"1").replace(b"HTTP/1.1", b"HTTP/1.0"), post(b"1", "Connection: close")):
        async with world() as w:
            w.port.on_message = echo
            await w.client.send(request)
            raw = await w.client.read_eof()
            assert b"connection: close" in raw.lower() and raw.endswith(b"\r\n\r\n1")


async def test_orders_may_come_before_the_opening_is_over() -> None:
    async with world() as w:
        w.port.on_open = lambda channel, opening, outlet: outlet.close(Close(channel, status=204))
        await w.client.send(get(method="DELETE"))
        assert (await w.client.read("DELETE")).status == 204
        w.port.on_open = lambda channel, opening, outlet: outlet.close(Close(channel, status=405))
        await w.client.send(get())
        answer = await w.client.read("GET")
        assert (answer.status, answer.headers[b"allow"]) == (405, b"POST")
        w.port.on_open = lambda channel, opening, outlet: outlet.close(Close(channel, status=202))
        await w.client.send(post(b"a message nobody waits for"))
        assert (await w.client.read()).status == 202
        assert [type(o) for o in w.port.openings.values()] == [DeleteOpening, GetOpening, PostOpening]
        assert not w.port.messages


async def test_closing_twice_is_safe() -> None:
    async with world() as w:
        await w.client.send(post())
        await w.port.wait_message()
        echo(ONE, b"1", w.port.outlets[ONE])
        for _ in range(2):
            w.port.outlets[ONE].close(Close(ONE))
        assert (await w.client.read()).body == b"1"


# --- Event streams --------------------------------------------------------------------------------------------------


async def test_events_arrive_as_they_are_sent() -> None:
    async with world() as w:
        await w.client.send(post())
        await w.port.wait_message()
        outlet = w.port.outlets[ONE]
        outlet.send(Send(ONE, b"first", session="s1"))
        answer = await w.client.read_head()
        assert answer.headers[b"content-type"] == b"text/event-stream"
        assert answer.headers[b"mcp-session-id"] == b"s1"
        assert await w.client.read_piece() == b"event: message\ndata: first\n\n"
        outlet.send(Send(ONE, b"last", is_last=True))
        assert await w.client.read_piece() == b"event: message\ndata: last\n\n"
        assert await w.client.read_piece() is None
        assert await w.port.wait_closed(1) is End.DONE
        assert w.port.sent_bytes[ONE] == len(b"firstlast")
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).status == 200


async def test_a_stream_shows_itself_open_and_departure_is_seen() -> None:
    async with world() as w:
        await w.client.send(get())
        assert (await w.client.read_head("GET")).status == 200
        assert ONE not in w.port.closes
        w.client.stream.hang_up()
        assert await w.port.wait_closed(1) is End.GONE
        w.port.outlets[ONE].send(Send(ONE, b"too late"))
        w.port.outlets[ONE].close(Close(ONE))


async def test_departure_while_waiting_is_seen() -> None:
    async with world() as w:
        await w.client.send(post())
        await w.port.wait_message()
        await w.client.stream.send_eof()
        assert await w.port.wait_closed(1) is End.GONE


class ScriptedListener(SocketListener):
    """Accepts the streams, and raises the errors, that it was made with."""

    def __init__(self, *outcomes: ByteStream | Exception) -> None:
        self.left = list(outcomes)
        self.is_closed = False
        self._closed = anyio.Event()

    @property
    def _raw_socket(self) -> socket.socket:
        raise AssertionError("there is none")

    @property
    def extra_attributes(self) -> dict[object, Callable[[], object]]:
        return {}

    async def accept(self) -> SocketStream:
        await anyio.lowlevel.checkpoint()
        if not self.left:
            await self._closed.wait()
        if self.is_closed:
            raise anyio.ClosedResourceError
        outcome = self.left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[return-value]

    async def aclose(self) -> None:
        self.is_closed = True
        self._closed.set()


async def test_a_connection_that_arrives_as_the_listener_closes_is_not_lost() -> None:
    """The connection is served or refused, never accepted and left alone."""
    for _ in range(5):
        server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=pages)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                await tasks.start(server.serve, listener)
                await anyio.wait_all_tasks_blocked()
                stream = await anyio.connect_tcp("127.0.0.1", port)
                await stream.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                tasks.start_soon(server.drain)
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while await stream.receive():
                        pass
                await stream.aclose()


async def test_idle_streams_are_kept_alive_and_drain_waits_for_replies() -> None:
    port = FakePort()
    server = HttpServer(SURFACE, port, FakeFiles(), Limits(keep_alive_s=0.02), pages=pages, protocols=False)
    near, far = stream_pair()
    listener = ScriptedListener(far)
    client = Client(near)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            await client.send(get())
            await client.read_head("GET")
            for _ in range(2):
                piece = await client.read_piece()
                assert piece is not None and piece.startswith(b":") and piece.endswith(b"\n\n")
            idle_near, idle_far = stream_pair()
            tasks.start_soon(server.handle, idle_far)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(server.drain)
            assert await Client(idle_near).read_eof() == b"", "an idle connection is closed at once"
            assert ONE not in port.closes, "an open reply is not"
            port.outlets[ONE].close(Close(ONE))
            while (piece := await client.read_piece()) is not None:
                assert piece.startswith(b":")
            assert await client.read_eof() == b""
    assert listener.is_closed
    assert port.closes[ONE].end is End.DONE


async def test_a_reply_begun_while_draining_closes_its_connection() -> None:
    async with world() as w:
        await w.client.send(post())
        await w.port.wait_message()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.server.drain)
            await anyio.wait_all_tasks_blocked()
            echo(ONE, b"1", w.port.outlets[ONE])
            answer = await w.client.read()
            assert answer.headers[b"connection"] == b"close"
            assert await w.client.read_eof() == b""


async def test_stopping_the_server_closes_every_channel() -> None:
    port = FakePort()
    server = HttpServer(SURFACE, port, FakeFiles(), Limits(), pages=pages, protocols=False)
    near, far = stream_pair()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, ScriptedListener(far))
            await Client(near).send(post())
            await port.wait_message()
            tasks.cancel_scope.cancel()
    assert port.closes[ONE].end is End.BROKEN


# --- Refusals and limits --------------------------------------------------------------------------------------------


async def test_a_refused_request_leaves_a_usable_connection() -> None:
    async with world() as w:
        w.port.on_message = echo
        for request, status in (
            (post(b"{}").replace(b"application/json\r\nAcc", b"text/plain\r\nAcc"), 415),
            (post(b"x" * 1000, path="/nothing"), 404),
            (get("/mcp", "Origin: http://evil.example"), 403),
            (get(method="PUT"), 405),
        ):
            await w.client.send(request)
            answer = await w.client.read()
            assert answer.status == status
            json.loads(answer.body)
            assert b"connection" not in answer.headers
        await w.client.send(post(b"1"))
        assert (await w.client.read()).body == b"1"
        assert len(w.port.openings) == 1


async def test_headers_that_are_listed_reach_the_port_and_required_ones_must_be_there() -> None:
    passes, required = {"files": (("x-key", "X-Upstream"),)}, {"files": ("X-Key",)}
    async with world(surface=msgspec.structs.replace(SURFACE, passes=passes, required=required)) as w:
        w.port.on_message = echo
        await w.client.send(post(b"{}", "X-Key: 4711", "Cookie: 4712"))
        assert (await w.client.read()).status == 200
        (opening,) = w.port.openings.values()
        assert isinstance(opening, PostOpening)
        assert opening.headers == (("X-Upstream", "4711"),)
        for request in (post(b"{}", "Cookie: 4712"), get(), get("/mcp/files", method="DELETE"), get("/sse")):
            await w.client.send(request)
            answer = await w.client.read()
            assert answer.status == 400
            assert "got no X-Key header" in json.loads(answer.body)["error"]["message"]
        assert len(w.port.openings) == 1


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_oversize_message_is_refused_before_it_is_reported(chunked: bool) -> None:
    limits = Limits(request_size_max_bytes=SKIP_MAX_BYTES * 2)
    async with world(limits, capacity=4096) as w:
        async with anyio.create_task_group() as tasks:
            body = b"x" * (limits.request_size_max_bytes + 1)
            if chunked:
                sent = post(chunked=True)[: -len(b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")]
                tasks.start_soon(w.client.send, sent + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            else:
                tasks.start_soon(w.client.send, post(body))
            answer = await w.client.read()
            assert (answer.status, answer.headers[b"connection"]) == (413, b"close")
            error = json.loads(answer.body)
            assert error["id"] is None and str(limits.request_size_max_bytes) in error["error"]["message"]
        w.client.stream.hang_up()
        assert not w.port.openings


async def test_a_head_that_comes_again_is_no_reason_to_take_what_is_too_large() -> None:
    """A repeated head does not change the body limit, in either direction."""
    async with world(Limits(request_size_max_bytes=100)) as w:
        w.port.on_message = echo
        for size, status in (
            (100, 200),
            (101, 413),
            (101, 413),
            (100, 200),
            (100, 200),
            (101, 413),
            (7, 200),
            (7, 200),
        ):
            await w.client.send(post(b"x" * size))
            answer = await w.client.read()
            assert answer.status == status
            assert status == 413 or answer.body == b"x" * size


async def test_exactly_the_limit_passes() -> None:
    async with world(Limits(request_size_max_bytes=100)) as w:
        w.port.on_message = echo
        for chunked in (False, True):
            await w.client.send(post(b"x" * 100, chunked=chunked))
            assert (await w.client.read()).body == b"x" * 100
        await w.client.send(post(b"x" * 101) + post(b"1"))
        assert (await w.client.read()).status == 413
        assert (await w.client.read()).body == b"1", "a short body is skipped, and the connection kept"


@pytest.mark.parametrize("count, status", [(8, 200), (9, 431)])
async def test_a_head_with_too_many_headers_is_refused(count: int, status: int) -> None:
    async with world(Limits(headers_max=8)) as w:
        w.port.on_message = echo
        usual = post().count(b"\r\n") - 2
        await w.client.send(post(b"{}", *["X:"] * (count - usual)))
        answer = await w.client.read()
        assert answer.status == status
        if status == 431:
            assert json.loads(answer.body)["detail"] == "got 9 headers, expected at most 8"
            assert answer.headers[b"connection"] == b"close" and not w.port.openings


@pytest.mark.parametrize("cut", [None, 100])
async def test_a_head_over_the_limit_is_refused(cut: int | None) -> None:
    async with world(Limits(head_size_max_bytes=1000)) as w:
        await w.client.send(post(b"{}", "X-Long: " + "x" * 1000), cut=cut)
        answer = await w.client.read()
        assert (answer.status, answer.headers[b"connection"]) == (431, b"close")
        assert not w.port.openings


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\n\r\n",  # no Host
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
        b"GET  /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -2\r\n\r\nxx",
        post(chunked=True)[: -len(b"0\r\n\r\n")] + b"zz\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX\x00Y: 1\r\n\r\n",
    ],
)
async def test_malformed_requests_get_400_and_nothing_else(garbage: bytes) -> None:
    async with world() as w:
        await w.client.send(garbage + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await w.client.read()
        assert (answer.status, answer.headers[b"connection"]) == (400, b"close")
        assert await w.client.read_eof() == b"", "what follows malformed framing is not looked at"
        assert not w.port.openings


async def test_over_real_sockets_a_refused_client_still_reads_why() -> None:
    """The response reaches a client that is still sending when the connection is closed."""
    port = FakePort()
    port.on_message = echo
    server = HttpServer(SURFACE, port, FakeFiles(), Limits(request_size_max_bytes=1 << 20), pages=pages)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    address = listener.extra(anyio.abc.SocketAttribute.local_port)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            for body, status in ((b"x" * (1 << 20), b"200"), (b"x" * (2 << 20), b"413")):
                async with await anyio.connect_tcp("127.0.0.1", address) as stream:
                    await stream.send(post(body, "Connection: close"))
                    answer = bytearray()
                    try:
                        while True:
                            answer += await stream.receive()
                    except anyio.EndOfStream:
                        assert answer.startswith(b"HTTP/1.1 " + status)
            await server.drain()
    assert port.closes[ONE].end is End.DONE


async def test_slow_heads_and_bodies_are_given_up() -> None:
    limits = Limits(head_timeout_s=0.05, body_timeout_s=0.05)
    for part in (post()[:30], post()[:-1]):
        async with world(limits) as w:
            await w.client.send(part)
            answer = await w.client.read()
            assert (answer.status, answer.headers[b"connection"]) == (408, b"close")
            w.client.stream.hang_up()


async def test_idle_connections_are_closed_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with world(Limits(idle_connection_timeout_s=LIMIT_S)) as w:
        second = w.connect()
        await second.send(get("/healthz"))
        assert (await second.read("GET")).status == 200
        await clock.set_forward(LIMIT_S)
        assert await w.client.read_eof() == b""
        assert await second.read_eof() == b""


async def test_no_time_limit_runs_while_a_reply_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    limits = Limits(idle_connection_timeout_s=LIMIT_S, head_timeout_s=LIMIT_S, body_timeout_s=LIMIT_S)
    async with world(limits) as w:
        await w.client.send(post(b"1"))
        await w.port.wait_message()
        await clock.set_forward(LIMIT_S)
        assert not w.port.closes
        echo(ONE, b"1", w.port.outlets[ONE])
        assert (await w.client.read()).body == b"1"
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).status == 200, "its connection is used again"


async def test_a_client_that_takes_nothing_is_disconnected() -> None:
    async with world(Limits(write_timeout_s=0.05), capacity=1000) as w:
        w.port.on_message = lambda channel, message, outlet: outlet.send(Send(channel, b"x" * 5000, is_last=True))
        await w.client.send(post())
        assert await w.port.wait_closed(1) is End.TIMED_OUT
        assert not w.port.sent_bytes

    """A path of any kind is in one of a few areas. A head that is repeated on the connection counts again."""
    """There are a few areas, whatever a path holds. A head that is repeated on the connection counts again."""
    surface = msgspec.structs.replace(SURFACE, aliases={"/old": "/mcp/files"})
    async with world(surface=surface) as w:
        w.port.on_message = echo
        requests = {
            post(b"1"): ("mcp", 200),
            post(b"1", path="/old/?a=b"): ("mcp", 200),
            post(b"1", path="/none/mcp"): ("mcp", 404),
            post(b"1", path="/mcp/none"): ("mcp", 404),
            get("/mcp", method="PUT"): ("mcp", 405),
            get("/healthz"): ("pages", 200),
            get("/messages/files", method="PUT"): ("sse", 405),
            get("/upload/none", method="PUT"): ("upload", 404),
            get("/secret/path"): ("other", 404),
        }
        expected: Counter[tuple[str, int]] = Counter()
        for request, counted in requests.items():
            for _ in range(2):
                await w.client.send(request)
                status = (await w.client.read(request.split()[0].decode())).status
                expected[counted] += 1
                assert (w.server._listening.counts.responses, status) == (expected, counted[1]), request
        await w.client.send(b"no request\r\n\r\n")
        await w.client.read()
        assert w.server._listening.counts.responses == expected + Counter({("other", 400): 1})


async def test_one_connection_too_many_gets_a_503() -> None:
    async with world(Limits(connections_max=1)) as w:
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).status == 200
        second = w.connect()
        await second.send(get("/healthz"))
        answer = await second.read("GET")
        assert (answer.status, json.loads(answer.body)["code"]) == (503, "overloaded")
        assert await second.read_eof() == b""
        assert w.server._listening.counts.responses["other", 503] == 1
        assert not second.stream.outgoing.data, "its request was taken, so that the answer survives closing"
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).status == 200


def as_trio_has_it(error: OSError) -> Exception:
    wrapped = anyio.BrokenResourceError()
    wrapped.__cause__ = error
    return wrapped


@pytest.mark.parametrize("wrap", [lambda error: error, as_trio_has_it], ids=["plain", "wrapped"])
async def test_what_keeps_a_connection_from_being_accepted_does_not_end_the_listener(
    wrap: Callable[[OSError], Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error such as a missing file descriptor is logged once, and accepting is tried again."""
    monkeypatch.setattr(http_server, "ACCEPT_PAUSE_S", 0.001)
    numbers = (errno.EMFILE, errno.ECONNABORTED, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE)
    near, far = stream_pair()
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=pages, protocols=False)
    listener = ScriptedListener(*(wrap(OSError(number, os.strerror(number))) for number in numbers), far)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            client = Client(near)
            await client.send(get("/healthz"))
            assert (await client.read("GET")).status == 200
            near.hang_up()
            await server.drain()
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot accept connections for now: {os.strerror(errno.EMFILE)}"
    ]


async def test_a_listener_that_cannot_listen_ends_the_server() -> None:
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=pages, protocols=False)
    with pytest.raises(ExceptionGroup), anyio.fail_after(WAIT_S):
        await server.serve(ScriptedListener(OSError(errno.EBADF, os.strerror(errno.EBADF))))


async def test_connections_that_cannot_even_get_a_503_are_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TURNED_AWAY_MAX", 2)
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(connections_max=1), pages=pages, protocols=False)
    pairs = [stream_pair(capacity=1) for _ in range(5)]  # too small for a whole 503
    listener = ScriptedListener(*(far for _, far in pairs))
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            await anyio.wait_all_tasks_blocked()
            assert len(listener.left) == 2
            pairs[1][0].hang_up()
            await anyio.wait_all_tasks_blocked()
            assert len(listener.left) == 1, "one of those that got a 503 is gone"
            pairs[0][0].hang_up()
            await anyio.wait_all_tasks_blocked()
            assert listener.left == [], "the one that was served is gone"
            for near, _ in pairs:
                near.hang_up()
            await server.drain()


async def test_pages_answer_get_and_head_alike() -> None:
    async with world(surface=Surface(("a", "b"), SURFACE.hosts, frozenset())) as w:
        await w.client.send(get("/healthz") + get("/healthz", method="HEAD") + get("/x"))
        full, head, missing = await w.client.read("GET"), await w.client.read("HEAD"), await w.client.read("GET")
        assert (full.body, head.body) == (b"fine\n", b"")
        assert full.headers[b"content-length"] == head.headers[b"content-length"] == b"5"
        assert b"date" in full.headers
        assert json.loads(missing.body)["detail"] == "got path '/x', expected /mcp/ID with ID one of a, b"


async def test_a_page_gets_the_body_that_was_posted() -> None:
    async with world() as w:
        body = b'{"name":"x"}'
        for chunked in (False, True):
            await w.client.send(post(body, path="/mcp/files/tools/call", chunked=chunked), cut=3)
            answer = await w.client.read()
            assert (answer.status, answer.body) == (200, body)
        await w.client.send(get("/mcp/files/tools") + get("/healthz"))
        assert [(await w.client.read()).body for _ in range(2)] == [b"fine\n"] * 2
        assert not w.port.openings, "the engine has no part in it"


async def test_a_page_takes_no_more_than_a_message_may_have() -> None:
    async with world(Limits(request_size_max_bytes=1000)) as w:
        await w.client.send(post(b"x" * 1001, path="/mcp/files/tools/call"))
        assert (await w.client.read()).status == 413


async def test_a_page_that_fails_is_an_error_and_takes_nothing_with_it() -> None:
    async with world() as w:
        log = logging.getLogger("isthmus.http")
        log.disabled = True  # `world` fails on any log record of that logger
        try:
            await w.client.send(get("/info"))
            answer = await w.client.read()
        finally:
            log.disabled = False
        assert (answer.status, json.loads(answer.body)) == (500, {"error": "internal error", "code": 500})
        await w.client.send(get("/healthz"))
        assert (await w.client.read()).status == 200


async def test_a_page_is_cancelled_when_its_client_hangs_up() -> None:
    began, ended = anyio.Event(), anyio.Event()

    async def slow(route: PageRoute, body: bytes) -> Refused:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=slow)
    near, far = stream_pair()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.handle, far)
            await near.send(get("/healthz"))
            await began.wait()
            near.hang_up()
            await ended.wait()


async def test_a_body_in_tiny_chunks_is_no_burden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other connections get their turn while the body is parsed, and it takes no more memory than another."""
    request = post(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    request += b"2\r\nab\r\n" * 5000 + b"0\r\n\r\n"
    async with world(only_h11=True) as w, watched(monkeypatch) as turns:
        w.port.on_message = echo
        await w.client.send(request)
        await w.port.wait_message()
        assert turns.longest <= 2 * TURN_EVENTS < 5000 < turns.events
        assert w.port.messages == [(ONE, b"ab" * 5000)]
        tracemalloc.start()
        try:
            await w.client.send(request)
            await w.port.wait_message(2)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 5000 * sys.getsizeof(b"ab")


# --- Uploads --------------------------------------------------------------------------------------------------------


def upload(body: bytes, *extra: str, chunked: bool = False) -> bytes:
    return post(body, *extra, path="/upload/files?sig=1", chunked=chunked)


def permit(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
    if isinstance(opening, UploadOpening):
        outlet.receive(Receive(channel, ("b0",), file_size_max_bytes=1 << 20, total_size_max_bytes=1 << 20))  # type: ignore[attr-defined]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("cut", [None, 3])
async def test_an_upload_goes_to_the_file_service(chunked: bool, cut: int | None) -> None:
    async with world() as w:
        w.port.on_open, w.port.on_message = permit, echo
        for n in (1, 2):
            await w.client.send(upload(b"some bytes", chunked=chunked), cut=cut)
            answer = await w.client.read()
            assert (answer.status, answer.body) == (200, b'{"files":[]}')
            assert b"connection" not in answer.headers
            assert await w.port.wait_closed(n) is End.DONE
        opening = w.port.openings[ONE]
        assert opening == UploadOpening("files", {"sig": "1"}, size_bytes=None if chunked else 10)
        assert b"".join(w.files.taken) == b"some bytes" * 2
        assert w.files.content_type == "application/json"


async def test_an_upload_is_not_read_before_it_is_allowed() -> None:
    async with world(Limits(read_size_bytes=300), capacity=300) as w:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.send, upload(b"x" * 5000, "Expect: 100-continue"))
            await w.port.wait_open()
            await anyio.wait_all_tasks_blocked()
            assert len(w.client.stream.outgoing.data) == 300, "the client is held back"
            assert not w.client.stream.incoming.data, "and no 100 was sent"
            w.port.on_message = echo
            w.port.file_outlet(1).receive(RECEIVE)
            assert (await w.client.read()).status == 200
        assert sum(map(len, w.files.taken)) == 5000


@pytest.mark.parametrize("size, is_kept", [(100, True), (SKIP_MAX_BYTES + 1, False)])
async def test_an_upload_refused_by_the_engine(size: int, is_kept: bool) -> None:
    """A short body is skipped so that the connection can be kept; a long one is not waited for."""
    async with world() as w:
        w.port.on_open = lambda channel, opening, outlet: outlet.send(Send(channel, b"{}", is_last=True, status=403))
        await w.client.send(upload(b"x" * size))
        answer = await w.client.read()
        assert (answer.status, answer.headers.get(b"connection")) == (403, None if is_kept else b"close")
        assert await w.port.wait_closed(1) is End.DONE
        assert not w.files.taken
        if is_kept:
            await w.client.send(get("/healthz"))
            assert (await w.client.read("GET")).status == 200


async def test_an_upload_refused_by_the_file_service() -> None:
    async with world() as w:
        w.port.on_open = permit
        w.files.refusal = UploadRefused(507, "storage_full", "no room")
        await w.client.send(upload(b"abc"))
        answer = await w.client.read()
        assert (answer.status, json.loads(answer.body)) == (507, {"detail": "no room", "code": "storage_full"})
        assert (w.port.closes[ONE].end, w.port.closes[ONE].status) == (End.REFUSED, 507)
        w.files.refusal = OSError("disk on fire")
        await w.client.send(upload(b"abc"))
        answer = await w.client.read()
        assert answer.status == 500 and b"fire" not in answer.body
        assert w.port.closes[ChannelId(2)].end is End.BROKEN
        assert not w.port.messages

        await w.client.send(post())
        await w.port.wait_message()
        for channel in (1, 2):
            w.port.outlets[ChannelId(channel)].send(Send(ChannelId(channel), b"late", is_last=True))
        echo(ChannelId(3), b"3", w.port.outlets[ChannelId(3)])
        assert (await w.client.read()).body == b"3", "an order for an earlier request has no effect"


async def test_an_upload_that_breaks_off_leaves_nothing() -> None:
    for end in ("gone", "silent", "malformed"):
        async with world(Limits(body_timeout_s=0.05 if end == "silent" else 60)) as w:
            w.port.on_open = permit
            await w.client.send(upload(b"abc", chunked=True)[: -len(b"0\r\n\r\n")])
            await w.port.until(lambda w=w: bool(w.port.openings))  # type: ignore[misc]
            if end == "gone":
                w.client.stream.hang_up()
                assert await w.port.wait_closed(1) is End.GONE
            elif end == "silent":
                assert (await w.client.read()).status == 408
                assert w.port.closes[ONE].end is End.TIMED_OUT
            else:
                await w.client.send(b"zz\r\n")
                assert (await w.client.read()).status == 400
                assert w.port.closes[ONE].end is End.BROKEN
            w.client.stream.hang_up()
        assert w.files.was_cancelled and not w.port.messages


async def test_the_engine_may_end_an_upload_that_is_under_way() -> None:
    async with world() as w:
        w.port.on_open = permit
        await w.client.send(upload(b"abc")[:-1])
        await w.port.wait_open()
        await anyio.wait_all_tasks_blocked()
        w.port.outlets[ONE].send(Send(ONE, b"{}", is_last=True, status=503))
        assert (await w.client.read()).status == 503
        assert w.files.was_cancelled
        await w.client.send(b"c" + get("/healthz"))
        assert (await w.client.read("GET")).status == 200


async def test_an_upload_in_tiny_chunks_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(only_h11=True) as w, watched(monkeypatch) as turns:
        w.port.on_open = permit
        await w.client.send(upload(b"x" * 5000, chunked=True))
        await w.port.wait_message()
        assert turns.longest <= 2 * TURN_EVENTS < 5000 < turns.events


@pytest.mark.parametrize("chunked", [False, True])
async def test_what_the_file_service_leaves_of_a_body_is_skipped(chunked: bool) -> None:
    async with world() as w:
        w.port.on_open = permit
        w.files.stop_after_bytes = 1
        await w.client.send(upload(b"x" * 1000, chunked=chunked) + upload(b"x" * 1000, chunked=chunked))
        for n in (1, 2):
            await w.port.wait_message(n)
            for _ in range(3 * 1000 // TURN_EVENTS):  # data parsed outside of a task blocks no task
                await anyio.wait_all_tasks_blocked()
            echo(ChannelId(n), b"%d" % n, w.port.outlets[ChannelId(n)])
            assert (await w.client.read()).body == b"%d" % n
        assert [channel for channel, _ in w.port.messages] == [1, 2]


# --- Resumable uploads ---------------------------------------------------------------------------------------------

DRAFT = "/upload/files/tus/" + "0" * 32 + "?sig=1"
MORE = ("Tus-Resumable: 1.0.0", "Upload-Offset: 0")


def patch(body: bytes, *extra: str, chunked: bool = False) -> bytes:
    request = post(body, *MORE, *extra, path=DRAFT, chunked=chunked).replace(b"POST", b"PATCH", 1)
    return request.replace(b"application/json", b"application/offset+octet-stream", 1)


def let_append(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
    outlet.append(Append(channel, "b", 0, 1 << 20))  # type: ignore[attr-defined]


def answer_with(status: int) -> Callable[[ChannelId, bytes, Outlet], None]:
    def answer(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
        headers = (("Upload-Offset", message.decode()[:-1]),)
        outlet.send(Send(channel, b"", is_last=True, status=status, headers=headers))

    return answer


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_append_goes_to_the_file_service(chunked: bool) -> None:
    async with world() as w:
        w.port.on_open, w.port.on_message = let_append, answer_with(204)
        for n in (1, 2):
            await w.client.send(patch(b"some bytes", chunked=chunked), cut=3)
            answer = await w.client.read("PATCH")
            assert (answer.status, answer.headers[b"upload-offset"], answer.body) == (204, b"10", b"")
            assert answer.headers[b"tus-resumable"] == b"1.0.0"
            assert b"content-length" not in answer.headers and b"connection" not in answer.headers
            assert await w.port.wait_closed(n) is End.DONE
        opening = w.port.openings[ONE]
        assert isinstance(opening, DraftOpening)
        assert (opening.verb, opening.size_bytes) == (Verb.APPEND, None if chunked else 10)


async def test_bytes_before_a_break_are_reported_before_the_end() -> None:
    """The bytes before the break are reported, so that the client can learn where to resume."""
    for end in ("gone", "silent", "malformed", "stopped", "unreadable"):
        async with world(Limits(body_timeout_s=0.05 if end == "silent" else 60)) as w:
            w.port.on_open = let_append
            begin = patch(b"abc", chunked=True)[: -len(b"0\r\n\r\n")]
            if end == "unreadable":  # the response cannot reach it
                begin = begin.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n", 1)
            await w.client.send(begin)
            await w.port.wait_open()
            if end in ("gone", "unreadable"):
                w.client.stream.hang_up()
            elif end == "silent":
                assert (await w.client.read("PATCH")).status == 408
            elif end == "malformed":
                await w.client.send(b"zz\r\n")
                assert (await w.client.read("PATCH")).status == 400
            else:
                await anyio.wait_all_tasks_blocked()
                for connection in list(w.server._connections):
                    connection.stop()
            await w.port.until(lambda w=w: ONE in w.port.closes)  # type: ignore[misc]
            assert [what for what, _ in w.port.log] == ["open", "message", "closed"], end
            assert w.port.messages == [(ONE, b"3?")] or end == "unreadable"


@pytest.mark.parametrize("way", ["gone", "lost"])
@pytest.mark.parametrize("has_waited", [False, True])
async def test_an_append_whose_client_hangs_up_at_once_is_not_begun(has_waited: bool, way: str) -> None:
    """The request reaches neither the engine nor the file service: the two could disagree otherwise."""
    async with world() as w:
        await anyio.wait_all_tasks_blocked()
        (connection,) = w.server._connections
        connection.receive_data(patch(b"abcdef")[:-3])
        if has_waited:
            await anyio.wait_all_tasks_blocked()
        w.port.file_outlet(1).append(Append(ONE, "b", 0, 1 << 20))
        connection.receive_eof() if way == "gone" else connection.receive_lost()
        assert await w.port.wait_closed(1) is End.GONE
        await anyio.wait_all_tasks_blocked()
        assert [what for what, _ in w.port.log] == ["open", "closed"]
        assert not w.files.taken


async def test_an_append_may_be_stopped_before_it_has_begun() -> None:
    async with world() as w:
        w.port.on_open, w.port.on_message = let_append, answer_with(409)
        await anyio.wait_all_tasks_blocked()
        (connection,) = w.server._connections
        connection.receive_data(patch(b"abcdef")[:-3])
        w.port.file_outlet(1).cease(Cease(ONE))
        answer = await w.client.read("PATCH")
        assert (answer.status, answer.headers[b"upload-offset"]) == (409, b"3")
        assert w.files.taken == [b"abc"]


@pytest.mark.parametrize("rest, is_kept", [(100, True), (SKIP_MAX_BYTES + 1, False)])
async def test_a_stopped_append_is_reported_and_answered(rest: int, is_kept: bool) -> None:
    async with world() as w:
        w.port.on_open, w.port.on_message = let_append, answer_with(409)
        whole = patch(b"abc" + b"x" * rest)
        await w.client.send(whole[:-rest])
        await w.port.wait_open()
        await anyio.wait_all_tasks_blocked()
        w.port.file_outlet(1).cease(Cease(ONE))
        w.port.file_outlet(1).cease(Cease(ONE))
        answer = await w.client.read("PATCH")
        assert (answer.status, answer.headers[b"upload-offset"]) == (409, b"3")
        assert w.port.messages == [(ONE, b"3?")]
        if is_kept:
            await w.client.send(b"x" * rest + get("/healthz"))
            assert (await w.client.read("GET")).status == 200
        w.port.file_outlet(1).cease(Cease(ONE))  # it is over already, and raises nothing


async def test_requests_for_the_state_of_an_upload_have_no_body() -> None:
    async with world() as w:

        def answer(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
            assert isinstance(opening, DraftOpening)
            status = 204 if opening.verb is Verb.END else 200
            outlet.send(Send(channel, b"", is_last=True, status=status, headers=(("Upload-Offset", "7"),)))

        w.port.on_open = answer
        for method, status in (("HEAD", 200), ("GET", 200), ("DELETE", 204), ("HEAD", 200)):
            await w.client.send(get(DRAFT, "Tus-Resumable: 1.0.0", method=method))
            head = await w.client.read(method)
            assert (head.status, head.headers[b"upload-offset"], head.body) == (status, b"7", b"")
        assert not w.files.taken
        assert await w.port.wait_closed(4) is End.DONE


# --- Downloads ------------------------------------------------------------------------------------------------------

CONTENT = bytes(range(100))
PATH = "/artifacts/files/s1/a1/r%C3%A9sum%C3%A9.png?sig=1"


def serve(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
    order = Serve(channel, "blob", "résumé.png", "image/png", size_bytes=len(CONTENT), sha256="ab" * 32)
    outlet.serve(order)  # type: ignore[attr-defined]


async def test_a_download_is_served_whole_in_part_and_not_at_all() -> None:
    async with world() as w:
        w.files.content = CONTENT
        w.port.on_open = serve
        await w.client.send(get(PATH))
        whole = await w.client.read("GET")
        assert (whole.status, whole.body) == (200, CONTENT)
        assert whole.headers[b"x-content-type-options"] == b"nosniff"
        await w.client.send(get(PATH, "Range: bytes=10-19"))
        part = await w.client.read("GET")
        assert (part.status, part.body, part.headers[b"content-range"]) == (206, CONTENT[10:20], b"bytes 10-19/100")
        given = w.files.given_chunks
        await w.client.send(get(PATH, method="HEAD"))
        head = await w.client.read("HEAD")
        assert (head.status, head.body, head.headers[b"content-length"]) == (200, b"", b"100")
        await w.client.send(get(PATH, f"If-None-Match: {whole.headers[b'etag'].decode()}"))
        assert (await w.client.read("GET")).status == 304
        await w.client.send(get(PATH, "Range: bytes=100-"))
        assert (await w.client.read("GET")).status == 416
        assert w.files.given_chunks == given
        assert w.port.openings[ONE] == DownloadOpening("files", "s1", "a1", "résumé.png", {"sig": "1"})
        assert await w.port.wait_closed(5) is End.DONE


async def test_a_download_goes_at_the_clients_pace() -> None:
    async with world(capacity=1000) as w:
        w.files.content, w.files.piece = b"x" * 100_000, 100
        w.port.on_open = lambda channel, opening, outlet: outlet.serve(  # type: ignore[attr-defined]
            Serve(channel, "blob", "f", "", size_bytes=100_000, sha256="")
        )
        await w.client.send(get(PATH))
        await w.port.wait_open()
        await anyio.wait_all_tasks_blocked()
        assert w.files.given_chunks <= 11
        w.client.stream.hang_up()
        assert await w.port.wait_closed(1) is End.GONE
    assert w.files.is_released


@pytest.mark.parametrize("break_at", [0, 50])
async def test_a_download_that_fails_is_an_error_or_torn(break_at: int) -> None:
    async with world() as w:
        w.files.content, w.files.break_at = CONTENT, break_at
        w.port.on_open = serve
        await w.client.send(get(PATH))
        answer = await w.client.read("GET")
        assert (answer.status, answer.is_torn) == ((500, False) if break_at == 0 else (200, True))
        assert await w.port.wait_closed(1) is End.BROKEN


async def test_a_file_longer_than_announced_is_torn() -> None:
    async with world() as w:
        w.files.content, w.files.piece = CONTENT, 60
        w.port.on_open = serve

        async def give_out(order: Serve, start: int, stop: int) -> AsyncIterator[bytes]:
            for _ in range(3):
                yield CONTENT[:60]

        w.files.give_out = give_out  # type: ignore[method-assign]
        await w.client.send(get(PATH))
        answer = await w.client.read("GET")
        assert answer.is_torn and len(answer.body) == 60
        assert await w.port.wait_closed(1) is End.BROKEN


async def test_what_is_being_served_is_delivered() -> None:
    async with world() as w:
        w.files.content = CONTENT
        await w.client.send(get(PATH))
        await w.port.wait_open()
        serve(ONE, w.port.openings[ONE], w.port.outlets[ONE])
        w.port.outlets[ONE].close(Close(ONE))
        with pytest.raises(LocalProtocolError):
            w.port.outlets[ONE].send(Send(ONE, b"{}", is_last=True))
        with pytest.raises(LocalProtocolError):
            serve(ONE, w.port.openings[ONE], w.port.outlets[ONE])
        assert (await w.client.read("GET")).body == CONTENT


async def test_a_refused_download_to_head_has_no_body() -> None:
    async with world() as w:
        w.port.on_open = lambda channel, opening, outlet: outlet.send(Send(channel, b"{}", is_last=True, status=404))
        await w.client.send(get(PATH, method="HEAD") + get(PATH))
        assert (await w.client.read("HEAD")).body == b""
        assert (await w.client.read("GET")).body == b"{}"


async def test_parts_of_a_file_are_one_body() -> None:
    content = bytes(range(256)) * 8
    async with world() as w:
        w.files.content = content
        w.port.on_open = lambda channel, opening, outlet: outlet.serve(  # type: ignore[attr-defined]
            Serve(channel, "blob", "f", "image/png", size_bytes=len(content), sha256="ab" * 32)
        )
        for _ in range(2):
            await w.client.send(get(PATH, "Range: bytes=0-9,1000-1019,-5"))
            answer = await w.client.read("GET")
            assert answer.status == 206
            assert int(answer.headers[b"content-length"]) == len(answer.body)
            boundary = b"--" + answer.headers[b"content-type"].partition(b"boundary=")[2]
            first, *parts, last = answer.body.split(boundary)
            assert (first, last) == (b"", b"--\r\n")
            found = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in parts]
            assert found == [content[:10], content[1000:1020], content[-5:]]
        w.files.break_at = 1005
        await w.client.send(get(PATH, "Range: bytes=0-9,1000-1019,-5"))
        assert (await w.client.read("GET")).is_torn
        assert await w.port.wait_closed(3) is End.BROKEN


async def test_a_client_that_has_closed_while_it_is_refused_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop reports the closed connection by a RuntimeError, and at another place than a stream."""

    async def refuse(stream: MemoryStream) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    async with world(Limits(request_size_max_bytes=10)) as w:
        monkeypatch.setattr(MemoryStream, "send_eof", refuse)
        await w.client.send(post(b"x" * (SKIP_MAX_BYTES + 10))[:-SKIP_MAX_BYTES])
        assert (await w.client.read()).status == 413
        w.client.stream.hang_up()
        await anyio.wait_all_tasks_blocked()


async def test_a_refused_client_that_goes_on_sending_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed even if more data arrived than is held, so that nothing is read any more."""
    monkeypatch.setattr(writer, "LINGER_S", 0.05)
    async with world(Limits(request_size_max_bytes=10)) as w:
        w.port.on_message = echo
        over = post(b"x" * (SKIP_MAX_BYTES + 10))
        await w.client.send(post(b"1") + over)
        assert (await w.client.read()).body == b"1"
        assert (await w.client.read()).status == 413
        while w.server._connections:  # noqa: ASYNC110 (no event is set)
            await anyio.sleep(0.01)
