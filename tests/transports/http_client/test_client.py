"""Tests of the HTTP client against a server that follows a script to the byte."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from client_dialer import (
    ANSWER,
    CLOSE,
    DONE,
    EVENTS_HEAD,
    LAST_CHUNK,
    LIMITS,
    NOW,
    TYPE,
    answer_all,
    chunk,
    dialer,
    event,
    reply,
)
from client_fakes import PATIENCE_S, WITH_BOTH_DRIVERS, FakePort, Peer, Report, new_client, serving, until
from client_fakes import anyio_backend as anyio_backend
from client_fakes import in_order as in_order
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.errors import OVERLOADED, LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End, Primed
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base import dialer as dialling
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.input_probe import InputProbe
from isthmus.transports.http_client import anyio_driver
from isthmus.transports.http_client import connection as http_client_connection
from turns import watched

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]


async def test_a_defect_met_with_one_connection_ends_its_request_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def blunder(connection: object) -> None:
        raise ZeroDivisionError("a mistake of our own")

    async with serving(answer_all) as server, dialer(failures=1) as dial:
        with monkeypatch.context() as patch:
            patch.setattr(http_client_connection.Connection, "advance", blunder)
            assert await dial.exchange(server.endpoint) == [Cause(End.BROKEN, "internal error")]
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":1}', DONE]


# --- Requests and replies -------------------------------------------------------------------------------------------


async def test_requests_in_turn_use_one_connection_and_are_written_as_they_should() -> None:
    async with serving(answer_all) as server, dialer() as dial:
        endpoint = Endpoint(server.url + "#part", (("Authorization", "Bearer x"), ("X-Name", "\xe9")))
        reports = [
            await dial.exchange(endpoint, Post("s", b"{}", "sid", "2025-06-18")),
            await dial.exchange(endpoint, Delete("s", "sid")),
            await dial.exchange(endpoint, Post("s", b"[]")),
        ]
    assert reports == [
        [Connected(status=200), b'{"on":0}', DONE],
        [Connected(status=200), DONE],
        [Connected(status=200), b'{"on":0}', DONE],
    ]
    assert server.connections == 1
    host = b"host: 127.0.0.1:%d\r\n" % server.port
    ours = b"user-agent: isthmus\r\nauthorization: Bearer x\r\nx-name: \xe9\r\naccept-encoding: identity\r\n"
    post = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
    assert [request.lower() for request in server.requests] == [
        request.lower()
        for request in (
            b"POST /mcp?a=b HTTP/1.1\r\n" + host + ours + post
            + b"mcp-session-id: sid\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: 2\r\n\r\n{}",
            b"DELETE /mcp?a=b HTTP/1.1\r\n" + host + ours + b"mcp-session-id: sid\r\n\r\n",
            b"POST /mcp?a=b HTTP/1.1\r\n" + host + ours + post + b"content-length: 2\r\n\r\n[]",
        )
    ]  # fmt: skip


async def test_requests_at_once_use_a_connection_each_and_later_ones_use_them_again() -> None:
    both = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            both.set()
        await both.wait()
        await peer.send(reply())
        await answer_all(peer)

    async with serving(script) as server, dialer() as dial:
        dial(server.endpoint)
        dial(Endpoint(server.url, (("a", "b"),)))
        await dial.port.until_closed(1)
        await dial.port.until_closed(2)
        for _ in range(3):
            await dial.exchange(server.endpoint)
        assert server.connections == 2


async def test_a_request_caused_by_a_replys_end_finds_the_connection_free() -> None:
    async with serving(answer_all) as server, dialer() as dial:

        def ask_again(channel: ChannelId, report: Report) -> None:
            if isinstance(report, Cause) and dial.count < 5:
                dial(server.endpoint)

        dial.port.on_report = ask_again
        dial(server.endpoint)
        await dial.port.until_closed(5)
        assert server.connections == 1


@pytest.mark.parametrize(
    "sent",
    [
        reply(b"", b"202 Accepted"),
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"Accepted") + LAST_CHUNK,
    ],
)
async def test_an_accepted_notification_has_no_message_and_its_connection_lives(sent: bytes) -> None:
    """The connection is kept even if the rest of the response trickles in after the exchange is over."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            for i in range(len(sent)):
                await peer.send(sent[i : i + 1])

    async with serving(script) as server, dialer() as dial:
        for _ in range(3):
            assert await dial.exchange(server.endpoint) == [Connected(status=int(sent[9:12])), DONE]
            [connection] = dial.client.unheld
            await until(lambda connection=connection: connection.is_idle)
        assert server.connections == 1


async def test_an_endless_body_behind_an_accepted_notification_costs_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await peer.send(chunk(b"x" * 10_000))

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == [Connected(status=202), DONE]
        await server.wait_gone(0)


async def test_events_arrive_as_they_trickle() -> None:
    go = [anyio.Event() for _ in range(3)]

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD)
        for i in range(3):
            for byte in event(b"%d" % i):
                await peer.send(bytes([byte]))
            await go[i].wait()
        await peer.send(LAST_CHUNK)
        await answer_all(peer)

    async with serving(script) as server, dialer() as dial:
        dial(server.endpoint, Listen("s", "sid"))
        for i in range(3):
            assert (await dial.port.until_reports(1, i + 2))[-1] == b"%d" % i
            go[i].set()
        assert await dial.port.until_closed(1) == [Connected(status=200), b"0", b"1", b"2", DONE]
        assert b"\r\naccept: text/event-stream\r\n" in server.requests[0].lower()
        await dial.exchange(server.endpoint)
        assert server.connections == 1


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + reply(),
            [Connected(status=200), ANSWER, DONE],
        ),
        (reply(ANSWER, b"200 OK", b"Mcp-Session-Id: abc"), [Connected("abc", status=200), ANSWER, DONE]),
        (
            reply(ANSWER, b"404 Not Found"),
            [Cause(End.REFUSED, "got HTTP status 404, expected success; is the path of its URL right?", 404, ANSWER)],
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://other.example/x?secret\r\nContent-Length: 0\r\n\r\n",
            [
                Cause(
                    End.REFUSED,
                    "got a redirect (HTTP status 302) to http://other.example, not followed: a POST may lose its "
                    "message; expected the final URL, or HTTP status 307 or 308",
                    302,
                )
            ],
        ),
        (EVENTS_HEAD + event(b"[1]") + event(b"[2]") + LAST_CHUNK, [Connected(status=200), b"[1]", b"[2]", DONE]),
    ],
)
async def test_replies_that_leave_the_connection_usable(sent: bytes, expected: list[Report]) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(sent)

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == expected
        assert await dial.exchange(server.endpoint) == expected
        assert server.connections == 1


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (reply(ANSWER, b"200 OK", b"Connection: close"), [Connected(status=200), ANSWER, DONE]),
        (b"HTTP/1.0 200 OK\r\n" + TYPE + b"\r\n" + ANSWER, [Connected(status=200), ANSWER, DONE]),
        (b"HTTP/1.1 200 OK\r\n" + TYPE + b"\r\n" + ANSWER, [Connected(status=200), ANSWER, DONE]),
        (reply() + b"HTTP/1.1 200 OK\r\n", [Connected(status=200), ANSWER, DONE]),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 99999\r\n\r\n<",
            ["expected application/json"],
        ),
        (b"", ["the connection ended before a response"]),
        (b"HTTP/1.1 200 O", ["the connection ended before a response"]),
        (reply()[:-1], [Connected(status=200), "the connection ended within the response"]),
        (
            b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(ANSWER),
            [Connected(status=200), "the connection ended within the response"],
        ),
        (
            EVENTS_HEAD + event(b"1") + b"99\r\nda",
            [Connected(status=200), b"1", "the connection ended within the event stream"],
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ["got a malformed HTTP response: "]),
        (b"\x00\xff" * 1000 + b"\r\n\r\n", ["got a malformed HTTP response: "]),
        (EVENTS_HEAD + b"zz\r\n", [Connected(status=200), "got a malformed HTTP response: "]),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000 + b"\r\n\r\n", ["limit of 1000 bytes"]),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50, ["limit of 1000 bytes"]),
    ],
)
async def test_replies_that_cost_the_connection(sent: bytes, wanted: list[Report | str]) -> None:
    """The reply ends the connection. A text stands for a `Cause` that the connection is broken, with these words;
    the request may have run."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(sent)

    async with serving(script) as server, dialer(Limits(head_size_max_bytes=1000)) as dial:
        for number in (1, 2):
            reports = await dial.exchange(server.endpoint)
            assert len(reports) == len(wanted)
            for was, expected in zip(reports, wanted, strict=True):
                if isinstance(expected, str):
                    assert isinstance(was, Cause)
                    assert was.end is End.BROKEN and not was.unsent and expected in was.detail
                else:
                    assert was == expected
            assert server.connections == number


async def test_a_head_of_just_the_limit_passes_however_much_follows_at_once() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: 5000\r\nX: "
    head += b"x" * (1000 - len(head) - 4) + b"\r\n\r\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + b"y" * 5000)

    async with serving(script) as server, dialer(Limits(head_size_max_bytes=1000)) as dial:
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b"y" * 5000, DONE]


async def test_a_large_request_arrives_whole() -> None:
    async with serving(answer_all) as server, dialer() as dial:
        body = bytes(range(32, 127)) * 20_000
        assert (await dial.exchange(server.endpoint, Post("s", body)))[-1] == DONE
        assert server.requests[0].endswith(b"\r\n\r\n" + body)


async def test_a_refusal_before_the_body_is_read_is_reported() -> None:
    """The refusal is reported though the body is far larger than the buffers of sockets and nobody takes it."""

    async def script(peer: Peer) -> None:
        await peer.stream.receive(100)
        await peer.send(reply(b"{}", b"413 Content Too Large"))
        await anyio.sleep_forever()

    async with serving(script) as server, dialer() as dial:
        cause = Cause(End.REFUSED, "got HTTP status 413, expected success", 413, b"{}")
        for number in (1, 2):
            assert await dial.exchange(server.endpoint, Post("s", b"x" * 20_000_000)) == [cause]
            assert server.connections == number  # half a request was written: the connection cannot be used again


async def test_an_event_over_the_limit_is_an_error_for_its_owner_and_the_stream_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = b'{"jsonrpc":"2.0","id":7,"result":"%b"}' % (b"x" * 300_000)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD, event(large), event(b"x" * 300_000), event(b"2"), LAST_CHUNK)
        await answer_all(peer)

    async with serving(script) as server, dialer(Limits(reply_size_max_bytes=200_000)) as dial:
        connected, error, message, cause = await dial.exchange(server.endpoint)
        assert (connected, message) == (Connected(status=200), b"2")
        assert isinstance(error, bytes)
        answer = json.loads(error)
        assert (answer["id"], answer["error"]["code"]) == (7, OVERLOADED)
        assert isinstance(cause, Cause)
        assert cause.end is End.DONE and "over the limit of 200000 bytes" in cause.detail
        await dial.exchange(server.endpoint)
        assert server.connections == 1
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert f"127.0.0.1:{server.port}: got an event of 30" in caplog.text
        assert "xxx" not in caplog.text


async def test_a_document_over_the_limit_is_an_error_without_an_id_and_is_not_read_on() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: 9999999999\r\n\r\n")
        while True:
            await peer.send(b"x" * 100_000)

    async with serving(script) as server, dialer(Limits(reply_size_max_bytes=200_000)) as dial:
        connected, error, cause = await dial.exchange(server.endpoint)
        assert connected == Connected(status=200)
        assert isinstance(error, bytes)
        answer = json.loads(error)
        assert (answer["id"], answer["error"]["code"]) == (None, OVERLOADED)
        assert cause == Cause(End.BROKEN, "got a reply over the limit of 200000 bytes")
        await server.wait_gone(0)


async def test_event_ids_and_retry_times_of_a_stream_are_reported() -> None:
    sent = [b"retry: 100\nid: 1\n\n", b"id: 2\ndata: {}\n\n"]

    async def script(peer: Peer) -> None:
        if b"Last-Event-ID: 2\r\n".lower() not in (await peer.request()).lower():
            await peer.send(EVENTS_HEAD, *map(chunk, sent))
            return
        await peer.send(EVENTS_HEAD, event(b"[]"), LAST_CHUNK)

    cut = "the connection ended within the event stream"
    async with serving(script) as server, dialer() as dial:
        first = await dial.exchange(server.endpoint)
        assert first == [
            Connected(status=200),
            Primed(),
            b"{}",
            Cause(End.BROKEN, cut, last_event_id="2", retry_ms=100),
        ]
        again = Listen("s", "sid", headers=(("X-Trace", "1"),), last_event_id="2")
        assert await dial.exchange(server.endpoint, again) == [Connected(status=200), b"[]", DONE]
        assert b"\r\nx-trace: 1\r\n" in server.requests[1].lower()


# --- The pool -------------------------------------------------------------------------------------------------------


async def test_a_connection_closed_while_idle_is_not_used_again() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply())

    async with serving(script) as server, dialer() as dial:
        for number in (1, 2, 3):
            assert (await dial.exchange(server.endpoint))[-1] == DONE
            assert server.connections == number
            await server.wait_finished(number - 1)
            await dial.until_unheld(0)


async def test_bytes_nobody_asked_for_cost_the_connection() -> None:
    may_answer = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply())
        if peer.number == 0:
            await may_answer.wait()
            await peer.send(reply(b'{"forged":true}'))
        await answer_all(peer)

    async with serving(script) as server, dialer() as dial:
        await dial.exchange(server.endpoint)
        may_answer.set()
        await server.wait_gone(0)
        assert await dial.exchange(server.endpoint) == [Connected(status=200), ANSWER, DONE]


class PlainServer:
    """A server in a thread of its own, which goes on while the event loop is blocked."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(f"http://127.0.0.1:{self.listener.getsockname()[1]}/")
        self.close_first = threading.Event()
        self.is_closed = threading.Event()
        self.bodies: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        for number in itertools.count():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE_S)
                self._answer(connection)
                if number == 0:
                    self.close_first.wait(PATIENCE_S)
                else:
                    self._answer(connection)
            self.is_closed.set()

    def _answer(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"{}"):
            more = connection.recv(65536)
            if not more:
                return
            data += more
        self.bodies.append(data)
        connection.sendall(reply())


async def test_a_connection_is_looked_at_before_it_is_used_again() -> None:
    """A connection that was closed while the event loop was busy is not written to, so a tool call stays safe to
    send."""
    server = PlainServer()
    with server.listener:
        async with dialer() as dial:
            await dial.exchange(server.endpoint, Post("s", b"{}"))
            await dial.until_unheld(1)
            server.close_first.set()
            assert server.is_closed.wait(PATIENCE_S)
            assert await dial.exchange(server.endpoint, Post("s", b"{}")) == [Connected(status=200), ANSWER, DONE]
        assert len(server.bodies) == 2


async def test_a_request_on_a_used_connection_that_ends_without_a_word_is_stale() -> None:
    """All other idle connections count as stale then, too. The same on a new connection says nothing about others."""
    all_there = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            all_there.set()
        await all_there.wait()
        if peer.number < 2:
            await peer.send(reply())
            await peer.request()

    async with serving(script) as server, dialer() as dial:
        dial(server.endpoint)
        dial(server.endpoint)
        await dial.port.until_closed(1)
        await dial.port.until_closed(2)
        await dial.until_unheld(2)
        lost = "the connection ended before a response"
        assert await dial.exchange(server.endpoint) == [Cause(End.BROKEN, lost, stale=True)]
        await until(lambda: [gone.is_set() for gone in server.gone].count(True) == 1)
        assert not dial.client.unheld
        assert await dial.exchange(server.endpoint) == [
            Cause(End.BROKEN, f"{lost}; if the server wants TLS, write https:// in its URL")
        ]
        assert server.connections == 3


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"H"])
async def test_a_server_that_has_begun_to_answer_has_looked(beginning: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply())
        await peer.request()
        await peer.send(beginning)

    async with serving(script) as server, dialer() as dial:
        await dial.exchange(server.endpoint)
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause)
        assert (cause.end, cause.stale, cause.unsent) == (End.BROKEN, False, False)


@pytest.mark.parametrize("is_used", [False, True])
async def test_a_request_of_which_the_end_was_never_written_is_unsent(is_used: bool) -> None:
    """The server took a part of the request and closed. The rest is far larger than the buffers of sockets."""

    async def script(peer: Peer) -> None:
        if is_used and peer.number == 0:
            await peer.request()
            await peer.send(reply())
        await peer.stream.receive(1000)

    async with serving(script) as server, dialer() as dial:
        if is_used:
            await dial.exchange(server.endpoint)
        (cause,) = await dial.exchange(server.endpoint, Post("s", b"x" * 30_000_000))
        assert isinstance(cause, Cause)
        assert (cause.end, cause.stale, cause.unsent) == (End.BROKEN, is_used, True)


async def test_a_request_that_is_given_up_says_nothing_about_other_connections() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply())
        await peer.request()  # it is not known whether it left

    async with serving(script) as server, dialer() as dial:
        dial(server.endpoint)
        dial(server.endpoint)
        await dial.port.until_closed(1)
        await dial.port.until_closed(2)
        await dial.until_unheld(2)
        dial(server.endpoint).close(CLOSE)
        assert await dial.port.until_closed(3) == [DONE]
        await anyio.wait_all_tasks_blocked()
        assert len(dial.client.unheld) == 1


class FakeConnection:
    """A connection in the test's hands. It takes requests while `is_listening`, and receives what is put into
    `feed`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_listening = True
        self.requests = 0
        self.feed, self._fed = anyio.create_memory_object_stream[bytes](9)
        connect = anyio.connect_tcp
        monkeypatch.setattr(dialling, "is_literal", lambda host: False)  # else there is no stream

        async def connect_here(host: str, port: int) -> FakeConnection:
            monkeypatch.setattr(anyio, "connect_tcp", connect)
            return self

        monkeypatch.setattr(anyio, "connect_tcp", connect_here)

    async def receive(self, max_bytes: int) -> bytes:
        return await self._fed.receive()

    async def send(self, item: bytes) -> None:
        self.requests += 1
        if not self.is_listening:
            raise anyio.BrokenResourceError

    def extra(self, attribute: object, default: object) -> object:
        return default

    async def aclose(self) -> None:
        self._fed.close()
        self.feed.close()


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.usefixtures("in_order")
async def test_a_request_that_meets_a_dying_idle_connection_goes_to_another(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """A request of which nothing was written is safe to send again, however far the other connection's end has come."""
    connection = FakeConnection(monkeypatch)
    async with serving(answer_all) as server, dialer() as dial:
        dial(server.endpoint)
        await until(lambda: connection.requests == 1)
        connection.feed.send_nowait(reply())
        await dial.port.until_closed(1)
        await anyio.wait_all_tasks_blocked()
        connection.feed.close()
        for _ in range(turns):
            await anyio.lowlevel.cancel_shielded_checkpoint()
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":0}', DONE]
        assert connection.requests == 1


@pytest.mark.usefixtures("in_order")
async def test_data_on_an_idle_connection_is_no_answer_to_the_next_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some servers send 408 before they close. The writer sees the input while the reader is being woken for it."""
    monkeypatch.setattr(InputProbe, "has_input", lambda probe: True)
    connection = FakeConnection(monkeypatch)
    async with serving(answer_all) as server, dialer() as dial:
        dial(server.endpoint)
        await until(lambda: connection.requests == 1)
        connection.feed.send_nowait(reply())
        await dial.port.until_closed(1)
        await anyio.wait_all_tasks_blocked()
        dial(server.endpoint)
        connection.feed.send_nowait(reply(b"", b"408 Request Timeout"))
        assert await dial.port.until_closed(2) == [Connected(status=200), b'{"on":0}', DONE]
        assert connection.requests == 1
        assert not caplog.records


class Overtaken(FakeConnection):
    """A connection whose `send` returns only when the response is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.is_answered = anyio.Event()

    async def receive(self, max_bytes: int) -> bytes:
        data = await super().receive(max_bytes)
        self.is_answered.set()
        return data

    async def send(self, item: bytes) -> None:
        await super().send(item)
        await self.is_answered.wait()


@pytest.mark.usefixtures("in_order")
async def test_a_response_that_overtakes_the_writer_does_not_cost_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Overtaken(monkeypatch)
    async with dialer() as dial:
        for _ in range(2):
            dial(Endpoint("http://h/"))
            await until(lambda: connection.requests == dial.count)
            connection.feed.send_nowait(reply())
            assert await dial.port.until_closed(dial.count) == [Connected(status=200), ANSWER, DONE]


async def test_a_write_that_fails_does_not_hide_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = FakeConnection(monkeypatch)
    connection.is_listening = False
    async with dialer() as dial:
        dial(Endpoint("http://h/"))
        await until(lambda: connection.requests == 1)
        connection.feed.send_nowait(reply(b"{}", b"413 Content Too Large"))
        assert (await dial.port.cause(1)).status == 413
        await until(lambda: not dial.client.unheld)


async def test_a_write_that_fails_without_a_word_of_the_server_ends_the_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anyio_driver, "LINGER_S", 0.01)
    FakeConnection(monkeypatch).is_listening = False
    async with dialer() as dial:
        assert await dial.exchange(Endpoint("http://h/")) == [Cause(End.BROKEN, "h took no more of the request")]


async def test_idle_connections_are_closed_in_time_and_no_more_are_kept_than_may_be() -> None:
    all_there = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 2:
            all_there.set()
        await all_there.wait()
        await peer.send(reply())
        await peer.wait_gone()

    limits = Limits(pool_idle_max=2, pool_idle_timeout_s=0.05)
    async with serving(script) as server, dialer(limits) as dial:
        for _ in range(3):
            dial(server.endpoint)
        for channel in (1, 2, 3):
            await dial.port.until_closed(channel)
            assert len(dial.client.unheld) <= 2
        for number in range(3):
            await server.wait_gone(number)
        assert not dial.client.unheld


async def test_at_the_limit_requests_wait_in_turn_and_then_are_refused() -> None:
    go = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await go.wait()
        await peer.send(reply())
        await answer_all(peer)

    async with serving(script) as server, dialer(Limits(upstream_connections_max=2)) as dial:
        for i in range(5):
            dial(server.endpoint, Post("s", b"%d" % i))
        cause = await dial.port.cause(5)
        assert cause.end is End.UNREACHABLE and cause.unsent and cause.detail.startswith("overloaded: 2 connections")
        await until(lambda: len(server.requests) == 2)
        go.set()
        for channel in (1, 2, 3, 4):
            assert await dial.port.cause(channel) == DONE
        assert server.connections == 2
        bodies = [request[-1:] for request in server.requests]
        assert sorted(bodies[:2]) == [b"0", b"1"] and sorted(bodies[2:]) == [b"2", b"3"]


async def test_waiting_requests_get_the_place_of_a_connection_that_dies() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"nonsense\r\n\r\n")

    async with serving(script) as server, dialer(Limits(upstream_connections_max=1)) as dial:
        dial(server.endpoint)
        dial(server.endpoint)
        assert [(await dial.port.cause(channel)).end for channel in (1, 2)] == [End.BROKEN, End.BROKEN]
        assert server.connections == 2


# --- Orders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [False, True])
async def test_pausing_stops_the_server_and_resuming_loses_nothing(is_stream: bool) -> None:
    """The reply is far larger than the buffers of sockets. A single document is reported only when it is complete."""
    is_blocked = anyio.Event()
    numbered = [b"%d " % i + b"x" * 65_000 for i in range(600)]
    before: list[Report] = [Connected(status=200), b"first"] if is_stream else []
    pieces = [EVENTS_HEAD, event(b"first"), *map(event, numbered), LAST_CHUNK]
    messages = numbered
    if not is_stream:
        messages = [b"".join(numbered)]
        pieces = [b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: %d\r\n\r\n" % len(messages[0]), *numbered]

    async def script(peer: Peer) -> None:
        await peer.request()
        for piece in pieces:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                await peer.send(piece)
                tasks.cancel_scope.cancel()
        await peer.wait_gone()

    async def watch() -> None:
        await anyio.sleep(0.3)
        is_blocked.set()

    async with serving(script) as server, dialer() as dial:

        def pause_at_first(channel: ChannelId, report: Report) -> None:
            if report == b"first":
                outlet.pause()
                outlet.pause()

        dial.port.on_report = pause_at_first
        outlet = dial(server.endpoint)
        if not is_stream:
            outlet.pause()
        with anyio.fail_after(PATIENCE_S):
            await is_blocked.wait()
        assert dial.port.reports.get(ChannelId(1), []) == before
        outlet.resume()
        assert await dial.port.until_closed(1) == [*(before or [Connected(status=200)]), *messages, DONE]


async def test_data_before_the_connections_end_is_reported_after_resuming() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD + event(b"1"))
        await is_paused.wait()
        await peer.send(event(b"2"))

    def pause_at_first(channel: ChannelId, report: Report) -> None:
        if report == b"1":
            outlet.pause()
            is_paused.set()

    is_paused = anyio.Event()
    async with serving(script) as server, dialer() as dial:
        dial.port.on_report = pause_at_first
        outlet = dial(server.endpoint)
        assert await dial.port.until_reports(1, 2) == [Connected(status=200), b"1"]
        await server.wait_finished(0)
        assert dial.port.reports[ChannelId(1)] == [Connected(status=200), b"1"]
        outlet.resume()
        lost = Cause(End.BROKEN, "the connection ended within the event stream")
        assert await dial.port.until_closed(1) == [Connected(status=200), b"1", b"2", lost]


@pytest.mark.parametrize("sent", [reply(), reply(b"", b"202 Accepted")])
async def test_pausing_at_the_end_holds_nothing_up(sent: bytes) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(sent)

    async with serving(script) as server, dialer() as dial:
        dial.port.on_report = lambda channel, report: None if isinstance(report, Connected) else outlet.pause()
        for _ in range(2):
            outlet = dial(server.endpoint)
            await dial.port.until_closed(dial.count)
            await anyio.wait_all_tasks_blocked()
        assert server.connections == 1


@pytest.mark.parametrize("is_paused", [False, True])
async def test_closing_a_request_in_progress_hangs_up(is_paused: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD + event(b"1"))
        if is_paused:
            await has_first.wait()
            await peer.send(event(b"2"))
        await peer.wait_gone()

    has_first = anyio.Event()
    async with serving(script) as server, dialer() as dial:

        def pause_or_close(channel: ChannelId, report: Report) -> None:
            if report == b"1":
                has_first.set()
                if is_paused:
                    outlet.pause()
                else:
                    outlet.close(CLOSE)

        dial.port.on_report = pause_or_close
        outlet = dial(server.endpoint)
        await dial.port.until_reports(1, 2)
        outlet.close(CLOSE)
        outlet.close(CLOSE)
        assert await dial.port.until_closed(1) == [Connected(status=200), b"1", DONE]
        outlet.close(CLOSE)
        outlet.resume()
        await server.wait_gone(0)
        assert not dial.client.unheld


async def test_closing_while_no_byte_of_the_reply_is_there() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.wait_gone()

    asked = anyio.Event()
    async with serving(script) as server, dialer() as dial:
        outlet = dial(server.endpoint)
        with anyio.fail_after(PATIENCE_S):
            await asked.wait()
        outlet.close(CLOSE)
        assert await dial.port.until_closed(1) == [DONE]
        await server.wait_gone(0)


async def test_closing_at_a_replys_last_message_ends_it_once() -> None:
    """The last message is reported together with all the rest of the reply."""
    async with serving(answer_all) as server, dialer() as dial:
        dial.port.on_report = lambda channel, report: outlet.close(CLOSE)
        outlet = dial(server.endpoint)
        assert await dial.port.until_closed(1) == [Connected(status=200), b'{"on":0}', DONE]


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.wait_gone()


async def test_closing_what_waits_or_connects_or_was_just_dialled() -> None:
    """An https connection to a server that never shakes hands is connecting for ever."""
    async with serving(silent) as server, dialer(Limits(upstream_connections_max=1)) as dial:
        secure = Endpoint(server.url.replace("http:", "https:"))
        outlets = [dial(server.endpoint), dial(server.endpoint), dial(server.endpoint), dial(secure)]
        outlets[1].close(CLOSE)
        assert not dial.port.reports, "reported from within an order"
        assert await dial.port.until_closed(2) == [DONE]
        assert await dial.port.cause(3) == Cause(
            End.UNREACHABLE,
            "overloaded: 1 connections to this server are busy and as many requests wait",
            unsent=True,
        )
        await until(lambda: server.connections == 2)
        outlets[3].close(CLOSE)
        assert await dial.port.until_closed(4) == [DONE]
        outlets[0].close(CLOSE)
        assert await dial.port.until_closed(1) == [DONE]
        dial(server.endpoint).close(CLOSE)
        assert await dial.port.until_closed(5) == [DONE]


async def test_a_message_for_an_exchange_is_our_mistake() -> None:
    async with serving(silent) as server, dialer() as dial:
        with pytest.raises(LocalProtocolError):
            dial(server.endpoint).send(None)  # type: ignore[arg-type]


async def test_leaving_ends_all_channels() -> None:
    async with serving(silent) as server:
        async with dialer(Limits(upstream_connections_max=1)) as dial:
            dial(server.endpoint)
            await until(lambda: bool(server.requests))
            dial(server.endpoint)
        assert dial.port.reports == {
            ChannelId(1): [Cause(End.BROKEN, "shutting down")],
            ChannelId(2): [Cause(End.BROKEN, "shutting down", unsent=True)],
        }
        await server.wait_gone(0)
        with pytest.raises(LocalProtocolError):
            dial(server.endpoint)


async def test_running_as_a_task_ends_all_channels_when_cancelled() -> None:
    async with serving(silent) as server:
        client, port = new_client(LIMITS), FakePort()
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: client.run(task_status=task_status))
            client.dial(server.endpoint, NOW, ChannelId(1), port)

            def insist(channel: ChannelId, report: Report) -> None:
                if channel < 3:
                    client.dial(server.endpoint, NOW, ChannelId(channel + 1), port)

            port.on_report = insist
            tasks.cancel_scope.cancel()
        assert [reports[-1].end for reports in port.reports.values()] == [End.BROKEN] * 3  # type: ignore[union-attr]


# --- Connecting -----------------------------------------------------------------------------------------------------


async def test_nobody_listens() -> None:
    async with serving(silent) as server:
        pass
    async with dialer() as dial:
        detail = f"connection refused by 127.0.0.1:{server.port}; is the server running?"
        assert await dial.exchange(server.endpoint) == [Cause(End.UNREACHABLE, detail, unsent=True)]


async def test_no_such_host() -> None:
    async with dialer() as dial:
        cause = (await dial.exchange(Endpoint("http://a..b/")))[-1]
        assert isinstance(cause, Cause) and (cause.end, cause.unsent) == (End.UNREACHABLE, True)
        assert cause.detail.startswith("cannot resolve a..b: ")


async def test_set_up_has_a_time_limit() -> None:
    async def script(peer: Peer) -> None:
        await anyio.sleep_forever()

    async with serving(script) as server, dialer(Limits(connect_timeout_s=0.05)) as dial:
        detail = f"no connection to 127.0.0.1:{server.port} within 0.05 s"
        reports = await dial.exchange(Endpoint(server.url.replace("http:", "https:")))
        assert reports == [Cause(End.UNREACHABLE, detail, unsent=True)]


async def test_tls_with_the_right_name(authority: Path, server_tls: ssl.SSLContext) -> None:
    names: list[str | None] = []
    server_tls.sni_callback = lambda _socket, name, _context: names.append(name)
    async with serving(answer_all, server_tls) as server, dialer() as dial:
        endpoint = Endpoint(f"https://localhost:{server.port}/mcp", ca_file=str(authority / "ca.pem"))
        for body in (b"{}", b"x" * 1_000_000, b"{}"):
            assert await dial.exchange(endpoint, Post("s", body)) == [Connected(status=200), b'{"on":0}', DONE]
        assert (server.connections, names) == (1, ["localhost"])


async def test_tls_that_cannot_be_trusted_is_refused_before_anything_is_sent(
    authority: Path, server_tls: ssl.SSLContext
) -> None:
    ca_file = str(authority / "ca.pem")
    async with serving(answer_all, server_tls) as server, dialer() as dial:
        unknown = Endpoint(f"https://localhost:{server.port}/mcp")
        misnamed = Endpoint(server.url, ca_file=ca_file)
        unread = Endpoint(server.url, ca_file=ca_file + "-missing")
        wrong = Endpoint(server.url, ca_file=str(authority / "ca.key"))
        for endpoint, words in [
            (
                unknown,
                "is not of an authority that this machine trusts: unable to get local issuer certificate; name the PEM",
            ),
            (misnamed, "IP address mismatch, certificate is not valid for '127.0.0.1'; write a name"),
            (unread, f"cannot use upstream.ca_file {ca_file}-missing: [Errno 2] No such file or directory"),
            (wrong, f"cannot use upstream.ca_file {authority}/ca.key: [X509: NO_CERTIFICATE_OR_CRL_FOUND]"),
        ]:
            cause = (await dial.exchange(endpoint))[-1]
            assert isinstance(cause, Cause) and (cause.end, cause.unsent) == (End.UNREACHABLE, True)
            assert words in cause.detail
        assert server.requests == []
        assert (await dial.exchange(Endpoint(server.url, verify_tls=False)))[-1] == DONE


async def test_tls_to_a_server_that_speaks_none() -> None:
    async def script(peer: Peer) -> None:
        await peer.stream.receive()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(script) as server, dialer() as dial:
        cause = (await dial.exchange(Endpoint(server.url.replace("http:", "https:"))))[-1]
        assert isinstance(cause, Cause) and (cause.end, cause.unsent) == (End.UNREACHABLE, True)
        assert cause.detail.endswith("write http:// in its URL (WRONG_VERSION_NUMBER)")


@pytest.mark.parametrize("only_h11", [True, False])
async def test_a_reply_in_tiny_pieces_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch, only_h11: bool) -> None:
    """h11 gives each chunk by itself; otherwise all events of one read come at once."""
    tiny = chunk(b":\n") if only_h11 else event(b"1")

    async def send_tiny(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD + tiny * 5000 + event(ANSWER) + LAST_CHUNK)

    watching = watched(monkeypatch) if only_h11 else watched(monkeypatch, FakePort, "message")
    async with serving(send_tiny) as server, dialer(only_h11=only_h11) as dial, watching as turns:
        assert (await dial.exchange(server.endpoint))[-2:] == [ANSWER, DONE]
        assert turns.longest <= 4 * http_client_connection.TURN_EVENTS < 5000 < turns.events
