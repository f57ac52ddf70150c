"""Tests of an HTTP+SSE server as one two-way channel: messages are POSTed in order, and events of the stream arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream
from client_fakes import PATIENCE_S, WITH_BOTH_DRIVERS, Peer, ScriptedServer, new_client, serving, until
from client_fakes import anyio_backend as anyio_backend
from client_fakes import in_order as in_order
from isthmus.core.base.effects import Close, Join, Send
from isthmus.core.base.errors import OUTCOME_UNKNOWN, OVERLOADED, UPSTREAM_UNAVAILABLE
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base import dialer
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_client.client import HttpClient
from isthmus.transports.sse import client as sse_client
from isthmus.transports.sse.client import SseUpstream
from ports import RecordingPort

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]

CHANNEL = ChannelId(1)
LIMITS = Limits(post_wait_s=PATIENCE_S)
HASTY = Limits(post_wait_s=0.01)
JOIN = Join("s")
ORDERLY = Cause(End.DONE)

EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nAccepted"


def event(data: bytes, type: bytes = b"message") -> bytes:
    block = b"event: %b\ndata: %b\n\n" % (type, data)
    return b"%x\r\n%b\r\n" % (len(block), block)


def refusal(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def call(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call"}' % number


NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class SseServer:
    """Answers each GET with an event stream that stays open, and each POST as `on_post` does."""

    def __init__(self) -> None:
        self.endpoint = b"/messages?session=1"
        self.on_post: Callable[[Peer, bytes], Awaitable[None]] = self.accept
        self.bodies: list[bytes] = []
        self.streams: list[Peer] = []
        self.is_over = anyio.Event()

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            if request.startswith(b"GET "):
                await peer.send(EVENTS_HEAD, event(self.endpoint, b"endpoint"))
                self.streams.append(peer)
                await self.is_over.wait()
                return
            body = request.partition(b"\r\n\r\n")[2]
            self.bodies.append(body)
            await self.on_post(peer, body)

    async def accept(self, peer: Peer, body: bytes) -> None:
        await peer.send(ACCEPTED)

    async def send(self, *messages: bytes) -> None:
        await until(lambda: bool(self.streams))
        await self.streams[-1].send(*map(event, messages))


class Stage:
    """One session on a recording port, and its log."""

    def __init__(self, client: HttpClient, endpoint: Endpoint, limits: Limits, target: Join) -> None:
        self.client = client
        self.port = RecordingPort()
        self.log: list[str] = []
        self.upstream = SseUpstream(endpoint, target, CHANNEL, self.port, limits, client, log=self.log.append)

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.upstream.send(Send(CHANNEL, message))

    def close(self) -> None:
        self.upstream.close(Close(CHANNEL))

    async def received(self, count: int = 1) -> list[bytes]:
        return await self.port.wait_message(CHANNEL, count)

    async def cause(self) -> Cause:
        return await self.port.wait_closed(CHANNEL)


@asynccontextmanager
async def stage(
    server: ScriptedServer,
    limits: Limits = LIMITS,
    *,
    target: Join = JOIN,
    headers: tuple[tuple[str, str], ...] = (),
) -> AsyncIterator[Stage]:
    """A session that runs within, with a client of its own. It must have ended when the context is left."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with new_client(limits) as client, anyio.create_task_group() as tasks:
            made = Stage(client, Endpoint(server.url.replace("/mcp", "/sse"), headers), limits, target)
            tasks.start_soon(made.upstream.run)
            yield made
            made.close()
            await made.cause()


# --- Both directions --------------------------------------------------------------------------------------------------


async def test_messages_pass_both_ways_and_are_written_as_they_should() -> None:
    script = SseServer()
    target = Join("s", (("X-Trace", "7"), ("Authorization", "theirs")))
    async with serving(script) as server, stage(server, target=target, headers=(("Authorization", "Bearer x"),)) as on:
        on.send(b"{}", b"[2]")  # before the session is joined
        assert await on.port.wait_opened(CHANNEL) == Connected()
        await until(lambda: len(script.bodies) == 2)
        on.send(b"3")
        await on.port.wait_sent(CHANNEL, 6)
        await script.send(b"a", b"b")
        assert await on.received(2) == [b"a", b"b"]
        assert script.bodies == [b"{}", b"[2]", b"3"]
        assert server.connections == 2  # one for the stream, and one for all messages
    assert await on.cause() == ORDERLY
    host = b"host: 127.0.0.1:%d\r\n" % server.port
    ours = b"user-agent: isthmus\r\nauthorization: Bearer x\r\naccept-encoding: identity\r\n"
    posts = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\nx-trace: 7\r\n"
    assert [request.lower() for request in server.requests[:2]] == [
        (b"GET /sse?a=b HTTP/1.1\r\n" + host + ours + b"accept: text/event-stream\r\nx-trace: 7\r\n\r\n").lower(),
        (b"POST /messages?session=1 HTTP/1.1\r\n" + host + ours + posts + b"content-length: 2\r\n\r\n{}").lower(),
    ]


async def test_cookies_belong_to_the_session() -> None:
    """Cookies that the stream and the POSTs set are sent with later POSTs; the next session begins without."""

    class Sticky(SseServer):
        async def __call__(self, peer: Peer) -> None:
            request = await peer.request()
            if not request.startswith(b"GET "):
                self.bodies.append(request.partition(b"\r\n\r\n")[2])
                number = len(self.bodies)
                cookie = b"Set-Cookie: post=%d; Path=/messages\r\n" % number if number < 3 else b""
                await peer.send(b"HTTP/1.1 202 Accepted\r\nConnection: close\r\n" + cookie + b"\r\n")
                return
            head = EVENTS_HEAD.replace(b"\r\n\r\n", b"\r\nSet-Cookie: lb=1\r\n\r\n")
            await peer.send(head, event(self.endpoint, b"endpoint"))
            await self.is_over.wait()

    script = Sticky()
    async with serving(script) as server:
        for _ in range(2):
            async with stage(server) as on:
                on.send(b"1", b"2")
                await on.port.wait_sent(CHANNEL, 2)
    cookies = [
        [line.partition(b": ")[2] for line in request.split(b"\r\n") if line.lower().startswith(b"cookie:")]
        for request in server.requests
    ]
    assert cookies == [[], [b"lb=1"], [b"lb=1; post=1"], [], [b"lb=1"], [b"lb=1"]]


async def test_nothing_is_kept_of_sessions_that_are_over() -> None:
    script = SseServer()
    async with serving(script) as server, HttpClient(LIMITS) as client:
        for number in range(3):
            script.endpoint = b"/messages?session=%d" % number
            made = Stage(client, server.endpoint, LIMITS, JOIN)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(made.upstream.run)
                made.send(b"{}")
                await made.port.wait_sent(CHANNEL, 2)
                made.close()
        assert len(client._routes) == 1
        await until(lambda: len(client.unheld) == 1)  # only the connection that messages went over
        assert [request.split()[1] for request in server.requests if request.startswith(b"POST")] == [
            b"/messages?session=0",
            b"/messages?session=1",
            b"/messages?session=2",
        ]


@pytest.mark.parametrize(
    "taken",
    [
        ACCEPTED,
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n{"a":1',
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 11\r\n\r\ndata: {}\n\n\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
async def test_whatever_a_post_is_answered_with_is_no_message(taken: bytes) -> None:
    script = SseServer()

    async def answer(peer: Peer, body: bytes) -> None:
        await peer.send(taken)

    script.on_post = answer
    async with serving(script) as server, stage(server) as on:
        on.send(call(1), NOTIFICATION)
        await on.port.wait_sent(CHANNEL, len(call(1) + NOTIFICATION))
        await script.send(b"an answer")
        assert await on.received() == [b"an answer"]
        assert script.bodies == [call(1), NOTIFICATION]
    assert on.log == []


async def test_the_next_message_waits_until_the_one_before_it_is_taken() -> None:
    script = SseServer()
    go = anyio.Event()

    async def hesitate(peer: Peer, body: bytes) -> None:
        if body == b"1":
            await go.wait()
        await peer.send(ACCEPTED)

    script.on_post = hesitate
    async with serving(script) as server, stage(server) as on:
        on.send(b"1", b"2", b"3")
        await until(lambda: script.bodies == [b"1"])
        await anyio.wait_all_tasks_blocked()
        assert script.bodies == [b"1"] and not on.port.sent_bytes
        go.set()
        await on.port.wait_sent(CHANNEL, 3)
        assert script.bodies == [b"1", b"2", b"3"]


async def test_a_server_that_accepts_late_delays_nothing() -> None:
    """The server answers a POST only when its work is done, and sends a request meanwhile."""
    script = SseServer()
    answered = anyio.Event()

    async def finish_first(peer: Peer, body: bytes) -> None:
        if body == call(1):
            await script.send(b"a question")
            await answered.wait()
        elif body == b"the answer":
            answered.set()
        await peer.send(ACCEPTED)

    script.on_post = finish_first
    async with serving(script) as server, stage(server, HASTY) as on:
        on.send(call(1))
        await on.received()
        on.send(b"the answer", b"more")
        await until(lambda: script.bodies == [call(1), b"the answer", b"more"])


class Narrow:
    """A connection that takes no request with `large` in it until `go`."""

    def __init__(self, stream: ByteStream, go: anyio.Event) -> None:
        self._go = go
        self._stream = stream
        self.receive, self.aclose, self.extra = stream.receive, stream.aclose, stream.extra

    async def send(self, item: bytes) -> None:
        if b"large" in item:
            await self._go.wait()
        await self._stream.send(item)


async def test_what_has_not_left_whole_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message overtakes one that is still being written."""
    script = SseServer()
    go = anyio.Event()
    connect = anyio.connect_tcp

    async def connect_narrowly(host: str, port: int) -> Narrow:
        return Narrow(await connect(host, port), go)

    monkeypatch.setattr(anyio, "connect_tcp", connect_narrowly)
    monkeypatch.setattr(dialer, "is_literal", lambda host: False)  # addresses are connected to without anyio
    async with serving(script) as server, stage(server, HASTY) as on:
        on.send(b"large", b"2")
        await until(lambda: server.connections == 2)
        await anyio.sleep(5 * HASTY.post_wait_s)
        assert server.connections == 2 and not script.bodies and not on.port.sent_bytes
        go.set()
        await on.port.wait_sent(CHANNEL, 6)
        assert script.bodies == [b"large", b"2"]


async def test_only_so_many_messages_are_on_their_way_at_once() -> None:
    script = SseServer()
    go = anyio.Event()

    async def hesitate(peer: Peer, body: bytes) -> None:
        await go.wait()
        await peer.send(ACCEPTED)

    script.on_post = hesitate
    async with serving(script) as server, stage(server, Limits(post_wait_s=0.01, exchanges_per_session_max=2)) as on:
        on.send(b"1", b"2", b"3")
        await on.port.wait_sent(CHANNEL, 2)
        await anyio.wait_all_tasks_blocked()
        assert script.bodies == [b"1", b"2"]
        go.set()
        await on.port.wait_sent(CHANNEL, 3)


async def test_pausing_stops_the_stream_and_resuming_loses_nothing() -> None:
    numbered = [b"%d " % i + b"x" * 65_000 for i in range(600)]
    script = SseServer()
    has_sent_all = anyio.Event()

    async def send_all() -> None:
        await script.send(*numbered)
        has_sent_all.set()

    async with serving(script) as server, stage(server) as on, anyio.create_task_group() as tasks:
        on.upstream.pause()  # before there is a stream
        on.upstream.resume()
        on.upstream.pause()
        tasks.start_soon(send_all)
        await until(lambda: bool(script.streams))
        await anyio.sleep(0.1)
        assert not has_sent_all.is_set() and not on.port.opened_channels
        on.upstream.resume()
        assert await on.received(600) == numbered


# --- Refusals ---------------------------------------------------------------------------------------------------------


async def test_a_refused_request_is_answered_and_the_session_goes_on() -> None:
    script = SseServer()
    own = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}'
    answers = {
        call(1): refusal(401),
        call(2): refusal(500, b"oops"),
        call(3): refusal(400, own),
        NOTIFICATION: refusal(403),
    }

    async def refuse(peer: Peer, body: bytes) -> None:
        await peer.send(answers.get(body, ACCEPTED))

    script.on_post = refuse
    async with serving(script) as server, stage(server) as on:
        on.send(call(1), call(2), call(3), NOTIFICATION, b"last")
        await until(lambda: script.bodies[-1:] == [b"last"])
        frames = [json.loads(message) for message in await on.received(3)]
        assert [frame["id"] for frame in frames] == [1, 2, 3]
        assert [frame["error"]["code"] for frame in frames] == [UPSTREAM_UNAVAILABLE, OUTCOME_UNKNOWN, -32600]
        [line] = on.log
        assert "a notification or answer did not arrive: got HTTP status 403" in line
        await on.port.wait_sent(
            CHANNEL, len(call(1)) * 3 + len(NOTIFICATION) + 4
        )  # refused messages count as sent, too


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_a_safe_message_on_a_closed_connection_is_posted_again(method: str) -> None:
    """A safe request is repeated once, before what was sent after it; any other is answered with an error."""
    server = SseServer()
    request, follows = b'{"jsonrpc":"2.0","id":2,"method":"%b"}' % method.encode(), call(3)

    async def hang_up(peer: Peer, body: bytes) -> None:
        if body == request and server.bodies.count(request) == 1:
            raise anyio.EndOfStream
        await peer.send(ACCEPTED)

    server.on_post = hang_up
    async with serving(server) as scripted, stage(scripted) as on:
        on.send(call(1))
        await until(lambda: len(server.bodies) == 1)
        await until(lambda: bool(on.client.unheld))
        on.send(request, follows)
        await until(lambda: server.bodies[-1:] == [follows])
        if method == "tools/list":
            assert server.bodies == [call(1), request, request, follows]
            assert CHANNEL not in on.port.messages
        else:
            assert server.bodies == [call(1), request, follows]
            (answer,) = await on.received()
            assert json.loads(answer)["error"]["code"] == OUTCOME_UNKNOWN
        await until(lambda: on.port.sent_bytes[CHANNEL] == len(call(1) + request + follows))


async def test_an_answer_over_the_limit_is_an_error_for_its_owner_and_the_session_goes_on() -> None:
    server = SseServer()
    limits = Limits(reply_size_max_bytes=200_000)
    async with serving(server) as scripted, stage(scripted, limits) as on:
        on.send(call(1), call(2))
        large = b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % (b"x" * 300_000)
        await server.send(large, b'{"jsonrpc":"2.0","id":2,"result":{}}')
        refused, answered = await on.received(2)
        assert json.loads(refused)["id"] == 1
        assert json.loads(refused)["error"]["code"] == OVERLOADED
        assert json.loads(answered) == {"jsonrpc": "2.0", "id": 2, "result": {}}
        on.send(call(3))
        await until(lambda: server.bodies[-1:] == [call(3)])


async def test_a_request_whose_connection_broke_is_answered() -> None:
    script = SseServer()

    async def break_off(peer: Peer, body: bytes) -> None:
        raise anyio.EndOfStream

    script.on_post = break_off
    async with serving(script) as server, stage(server) as on:
        on.send(call(1))
        [answer] = await on.received()
        error = json.loads(answer)["error"]
        assert (error["code"], error["data"]) == (OUTCOME_UNKNOWN, {"outcome": "unknown"})


@pytest.mark.parametrize("status", [404, 410])
async def test_an_unknown_session_ends_the_channel(status: int) -> None:
    script = SseServer()

    async def forget(peer: Peer, body: bytes) -> None:
        await peer.send(refusal(status))

    script.on_post = forget
    async with serving(script) as server, stage(server) as on:
        on.send(call(1), call(2))
        cause = await on.cause()
        assert cause == Cause(End.BROKEN, f"the server forgot the session: a message got HTTP status {status}")
        await until(lambda: not on.upstream._posts)
        on.send(call(3))
    assert script.bodies == [call(1)] and not on.port.messages


class Wire:
    """A connection in the test's hands: it receives what is put into `feed`, and counts what is sent."""

    def __init__(self) -> None:
        self.requests = 0
        self.feed, self._fed = anyio.create_memory_object_stream[bytes](9)

    async def receive(self, max_bytes: int) -> bytes:
        return await self._fed.receive()

    async def send(self, item: bytes) -> None:
        self.requests += 1

    def extra(self, attribute: object, default: object) -> object:
        return default

    async def aclose(self) -> None:
        self._fed.close()
        self.feed.close()


@pytest.mark.parametrize("more", [event(b"{}"), LAST_CHUNK])
@pytest.mark.usefixtures("in_order")
async def test_events_after_the_session_was_forgotten_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, more: bytes
) -> None:
    """The refusal and the event arrive at once, the refusal first. The stream is over, and later data on it is no
    failure."""
    wires = [Wire(), Wire()]
    unused = iter(wires)

    async def connect(host: str, port: int) -> Wire:
        return next(unused)

    monkeypatch.setattr(anyio, "connect_tcp", connect)
    async with HttpClient(LIMITS) as client, anyio.create_task_group() as tasks:
        on = Stage(client, Endpoint("http://h/sse"), LIMITS, JOIN)
        tasks.start_soon(on.upstream.run)
        await until(lambda: wires[0].requests == 1)
        wires[0].feed.send_nowait(EVENTS_HEAD + event(b"/messages", b"endpoint"))
        on.send(call(1))
        await until(lambda: wires[1].requests == 1)
        await anyio.wait_all_tasks_blocked()
        wires[1].feed.send_nowait(refusal(404))
        wires[0].feed.send_nowait(more)
        assert (await on.cause()).detail.startswith("the server forgot the session")
    assert not on.port.messages and not caplog.records


# --- Ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "detail"), [(LAST_CHUNK, "the event stream ended"), (b"", "the connection ended within")]
)
async def test_the_end_of_the_stream_is_the_end_of_the_session(last: bytes, detail: str) -> None:
    script = SseServer()

    async def never(peer: Peer, body: bytes) -> None:
        await anyio.sleep_forever()

    script.on_post = never
    async with serving(script) as server, stage(server) as on:
        on.send(call(1), call(2))
        await until(lambda: bool(script.bodies))
        await script.streams[0].send(event(b"last words") + last)
        script.is_over.set()
        cause = await on.cause()
        assert cause.end is End.BROKEN and cause.detail.startswith(detail)
        assert on.port.messages[CHANNEL] == [b"last words"]
    assert script.bodies == [call(1)]


async def test_an_endpoint_elsewhere_is_no_session() -> None:
    script = SseServer()
    script.endpoint = b"http://127.0.0.1:1/messages"
    async with serving(script) as server, stage(server) as on:
        on.send(call(1))
        cause = await on.cause()
        assert cause.end is End.BROKEN
        assert f"at http://127.0.0.1:1, expected one at http://127.0.0.1:{server.port}" in cause.detail
    assert not script.bodies and not on.port.opened_channels


async def test_a_refused_stream_is_reported_with_its_status() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.request()
        await peer.send(refusal(405, b"no"))

    async with serving(refuse) as server, stage(server) as on:
        cause = await on.cause()
        assert (cause.end, cause.status, cause.body) == (End.REFUSED, 405, b"no")


async def test_nobody_listens() -> None:
    async with serving(SseServer()) as server:
        pass
    async with stage(server) as on:
        cause = await on.cause()
        assert cause.end is End.UNREACHABLE and cause.unsent


async def test_headers_that_cannot_be_sent_are_not() -> None:
    async with serving(SseServer()) as server, stage(server, target=Join("s", (("Host", "x"),))) as on:
        cause = await on.cause()
        assert cause.end is End.UNREACHABLE and cause.unsent and "Host" in cause.detail
    assert server.requests == []


async def test_closing_lets_go_of_what_was_queued_and_hangs_up() -> None:
    script = SseServer()

    async def take_and_send(peer: Peer, body: bytes) -> None:
        await script.send(b"too late")
        await peer.send(ACCEPTED)

    script.on_post = take_and_send
    async with serving(script) as server, stage(server) as on:
        await on.port.wait_opened(CHANNEL)
        on.send(b"1", b"2")
        on.close()
        on.close()
        on.send(b"3")
        assert await on.cause() == ORDERLY
        assert script.bodies == [b"1", b"2"]
        assert not on.port.messages and not on.port.sent_bytes


async def test_closing_waits_for_a_server_that_takes_nothing_no_longer_than_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_client, "FLUSH_GRACE_S", 0.05)
    script = SseServer()

    async def never(peer: Peer, body: bytes) -> None:
        await peer.wait_gone()

    script.on_post = never
    async with serving(script) as server, stage(server) as on:
        await on.port.wait_opened(CHANNEL)
        on.send(b"1", b"2")
        on.close()
        assert await on.cause() == ORDERLY
        await server.wait_gone(1)
    assert script.bodies == [b"1"]


@pytest.mark.parametrize("is_dialled", [False, True])
async def test_closing_what_is_not_joined(is_dialled: bool) -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.wait_gone()

    async with serving(silent) as server, stage(server) as on:
        on.send(b"1")
        if is_dialled:
            await until(lambda: bool(server.requests))
        on.close()
        assert await on.cause() == ORDERLY
        if is_dialled:
            await server.wait_gone(0)
    assert len(server.requests) == is_dialled and not on.port.opened_channels


async def test_being_cancelled_ends_the_session() -> None:
    script = SseServer()
    async with serving(script) as server, HttpClient(LIMITS) as client:
        made = Stage(client, server.endpoint, LIMITS, JOIN)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.upstream.run)
            await made.port.wait_opened(CHANNEL)
            tasks.cancel_scope.cancel()
        assert await made.cause() == ORDERLY


async def test_a_client_that_stops_ends_the_session() -> None:
    script = SseServer()
    async with serving(script) as server, anyio.create_task_group() as tasks:
        async with HttpClient(LIMITS) as client:
            made = Stage(client, server.endpoint, LIMITS, JOIN)
            tasks.start_soon(made.upstream.run)
            await made.port.wait_opened(CHANNEL)
        assert await made.cause() == Cause(End.BROKEN, "shutting down")


async def test_a_defect_ends_the_session_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(SseServer()) as server, HttpClient(LIMITS) as client:
        made = Stage(client, server.endpoint, LIMITS, JOIN)
        monkeypatch.setattr(client, "dial", lambda *given, **named: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await made.upstream.run()
        assert await made.cause() == Cause(End.BROKEN, "internal error")
