"""Tests of servers that speak HTTP/2 alone: how it is found out, and exchanges with them."""

from __future__ import annotations

import dataclasses
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from client_dialer import ANSWER, CLOSE, DONE, NOW, anyio_backend, dialer, in_order, reply
from client_dialer import answer_all as answer_http1
from client_fakes import Peer, serving, until
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from http2_peers import Http2Peer, answer_all, at_localhost, serving_http2
from http2_server import EVENTS, frame, goaway, reset
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.wire.http.egress import parse_proxy
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_client import pool
from isthmus.transports.http_client.http2_connection import Http2Connection
from proxy_fakes import tunnel

__all__ = ["anyio_backend", "in_order"]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["protocols", "asyncio", "trio"], indirect=True),
]

SETTINGS = frame(SettingsFrame(0, {}))


@pytest.fixture
def without_http2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package h2 is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "h2" or ".http2" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h2", None)
    pool._find_http2.cache_clear()
    yield
    pool._find_http2.cache_clear()


# --- Which version is spoken ----------------------------------------------------------------------------------------


async def test_a_server_that_answers_in_http_2_is_asked_again_in_it() -> None:
    async with serving_http2(answer_all) as server, dialer() as dial:
        for count in (1, 2, 3):
            assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":1}', DONE]
            assert (server.refused, server.connections) == (1, 2), count


@pytest.mark.parametrize("refuses", [True, False])
async def test_the_same_over_tls(refuses: bool, authority: Path, server_tls: ssl.SSLContext) -> None:
    """Some servers end the handshake, others go on without ALPN and answer in HTTP/2."""
    async with serving_http2(answer_all, server_tls, refuses=refuses) as server, dialer() as dial:
        for _ in range(3):
            assert await dial.exchange(at_localhost(server, authority)) == [Connected(status=200), b'{"on":1}', DONE]
        assert (server.refused, server.connections) == (1, 2)


async def test_a_server_that_speaks_both_is_spoken_to_in_http_1_1(authority: Path, server_tls: ssl.SSLContext) -> None:
    """`server_tls` prefers HTTP/2."""
    async with serving(answer_http1, server_tls) as server, dialer() as dial:
        for _ in range(2):
            assert await dial.exchange(at_localhost(server, authority)) == [Connected(status=200), b'{"on":0}', DONE]
        assert server.connections == 1 and server.requests[0].startswith(b"POST /mcp HTTP/1.1\r\n")


async def test_calls_at_once_find_out_together() -> None:
    async def meet(peer: Http2Peer) -> None:
        request = await peer.request()
        waiting.append(peer.number)
        await until(lambda: len(waiting) >= 5)
        await peer.reply(request)
        await answer_all(peer)

    waiting: list[int] = []
    async with serving_http2(meet) as server, dialer() as dial:
        for _ in range(5):
            dial(server.endpoint)
        for channel in range(1, 6):
            assert await dial.port.until_closed(channel) == [Connected(status=200), ANSWER, DONE]
        assert (server.refused, server.connections) == (5, 10)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_the_first_frame_may_come_in_pieces(is_cut: bool) -> None:
    async def script(peer: Peer) -> None:
        if peer.number:
            speaker = Http2Peer(peer)
            return await answer_all(speaker)
        await peer.request()
        for at in range(len(SETTINGS)) if is_cut else ():
            await peer.send(SETTINGS[at : at + 1])
            await anyio.sleep(0.01)
        if not is_cut:
            await peer.send(SETTINGS)
        await peer.wait_gone()
        return None

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":1}', DONE]


async def test_the_first_frame_may_come_before_the_request() -> None:
    """Many servers send it at once, and trio has the reader or the writer begin."""
    async with serving_http2(answer_all, is_eager=True) as server:
        for _ in range(20):
            async with dialer() as dial:
                for _ in range(2):
                    assert (await dial.exchange(server.endpoint))[-1] == DONE


@pytest.mark.usefixtures("without_http2")
async def test_without_the_package_it_is_named_whoever_begins() -> None:
    async with serving_http2(answer_all, is_eager=True) as server:
        for _ in range(20):
            async with dialer() as dial:
                (cause,) = await dial.exchange(server.endpoint)
                assert isinstance(cause, Cause) and "pip install 'isthmus[http2]'" in cause.detail


@pytest.mark.usefixtures("without_http2")
async def test_without_the_package_it_is_named() -> None:
    async with serving_http2(answer_all) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and cause.end is End.BROKEN
        assert "speaks HTTP/2 alone" in cause.detail and "pip install 'isthmus[http2]'" in cause.detail
        assert server.connections == 1


@pytest.mark.usefixtures("without_http2")
async def test_without_the_package_it_is_named_over_tls(authority: Path, server_tls: ssl.SSLContext) -> None:
    async with serving_http2(answer_all, server_tls) as server, dialer() as dial:
        (cause,) = await dial.exchange(at_localhost(server, authority))
        assert isinstance(cause, Cause) and cause.end is End.UNREACHABLE and cause.unsent
        assert "speaks HTTP/2 alone" in cause.detail and "pip install 'isthmus[http2]'" in cause.detail
        assert server.connections == 1


async def test_a_server_that_refuses_both_is_asked_once_in_each(authority: Path) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.stream.receive()
        await peer.send(b"\x15\x03\x03\x00\x02\x02\x78")

    async with serving(refuse) as server, dialer() as dial:
        for count in (1, 2):
            (cause,) = await dial.exchange(Endpoint(f"https://127.0.0.1:{server.port}/mcp"))
            assert isinstance(cause, Cause) and cause.end is End.UNREACHABLE and "(ALPN)" in cause.detail
            assert "pip install" not in cause.detail and server.connections == 2 * count


async def test_a_server_that_answers_each_version_in_the_other_is_left() -> None:
    async def contradict(peer: Peer) -> None:
        beginning = await peer.stream.receive()
        await peer.send(reply(ANSWER) if beginning.startswith(b"PRI") else SETTINGS)

    async with serving(contradict) as server, dialer() as dial:
        for count in (1, 2):
            (cause,) = await dial.exchange(server.endpoint)
            assert isinstance(cause, Cause) and cause.end is End.BROKEN and server.connections == 2 * count


async def test_a_server_that_came_to_speak_http_1_1_is_spoken_to_in_it() -> None:
    """The server was replaced, or its settings were changed."""
    is_new = False

    async def script(peer: Peer) -> None:
        if not is_new:
            beginning = await peer.stream.receive()
            if not beginning.startswith(b"PRI"):
                return await peer.send(SETTINGS)
            speaker = Http2Peer(peer)
            speaker.server.receive(beginning)
            await speaker.reply(await speaker.request())
            return None
        if peer.number == 2:
            assert (await peer.stream.receive()).startswith(b"PRI * HTTP/2.0\r\n")
            return await peer.send(reply(b"", b"400 Bad Request"))
        return await answer_http1(peer)

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == [Connected(status=200), ANSWER, DONE]
        await server.wait_finished(1)
        is_new = True
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":3}', DONE]
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":3}', DONE]


async def test_a_server_may_ask_for_http_1_1() -> None:
    async def script(peer: Peer) -> None:
        beginning = await peer.stream.receive()
        if peer.number == 0:
            return await peer.send(SETTINGS)
        if peer.number == 1:
            assert beginning.startswith(b"PRI")
            return await peer.send(SETTINGS + reset(1, ErrorCodes.HTTP_1_1_REQUIRED))
        return await peer.send(reply(ANSWER))

    async with serving(script) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and "HTTP_1_1_REQUIRED" in cause.detail, "this exchange had both"
        assert await dial.exchange(server.endpoint) == [Connected(status=200), ANSWER, DONE]


# --- Exchanges ------------------------------------------------------------------------------------------------------


async def test_a_request_is_sent_with_its_headers() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def script(peer: Http2Peer) -> None:
        while True:
            request = await peer.request()
            seen.append(request.headers)
            await peer.reply(request)

    async with serving_http2(script) as server, dialer() as dial:
        endpoint = Endpoint(server.url, headers=(("Authorization", "Bearer x"),))
        for target in (NOW, Post("s", NOW.message, session="abc"), Delete("s", session="abc")):
            await dial.exchange(endpoint, target)
    assert [headers[b":method"] for headers in seen] == [b"POST", b"POST", b"DELETE"]
    assert seen[1] == {
        b":method": b"POST",
        b":scheme": b"http",
        b":authority": f"127.0.0.1:{server.port}".encode(),
        b":path": b"/mcp?a=b",
        b"user-agent": b"isthmus",
        b"authorization": b"Bearer x",
        b"accept-encoding": b"identity",
        b"content-type": b"application/json",
        b"accept": b"application/json, text/event-stream",
        b"mcp-session-id": b"abc",
        b"content-length": b"%d" % len(NOW.message),
    }


async def test_large_bodies_pass_both_ways() -> None:
    """Many times the windows of both."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"' + b"x" * 5_000_000 + b'"}}'

    async def script(peer: Http2Peer) -> None:
        while True:
            request = await peer.request()
            peer.server.begin(request.stream)
            await peer.send_all(request.stream, request.body, is_last=True)

    async with serving_http2(script, settings={SettingCodes.INITIAL_WINDOW_SIZE: 10_000}) as server, dialer() as dial:
        for _ in range(2):
            assert await dial.exchange(server.endpoint, Post("s", body)) == [Connected(status=200), body, DONE]
        assert server.connections == 2


async def test_an_event_stream_and_calls_go_side_by_side() -> None:
    async def script(peer: Http2Peer) -> None:
        while True:
            request = await peer.request()
            if request.headers[b":method"] == b"POST":
                await peer.reply(request)
                continue
            peer.server.begin(request.stream, EVENTS)
            await peer.flush()
            for number in range(100):
                peer.server.send(request.stream, b"data: %d\n\n" % number)
                await peer.flush(frame(PingFrame(0, b"12345678")))
                await peer.read()
            peer.server.send(request.stream, b"", is_last=True)
            await peer.flush()

    async with serving_http2(script) as server, dialer() as dial:
        dial(server.endpoint, Listen("s", session="a"))
        await dial.port.until_reports(1, 20)
        for _ in range(3):
            assert await dial.exchange(server.endpoint) == [Connected(status=200), ANSWER, DONE]
        assert await dial.port.until_closed(1) == [
            Connected(status=200),
            *(b"%d" % number for number in range(100)),
            DONE,
        ]


async def test_a_redirect_is_followed_on_the_connection() -> None:
    async def script(peer: Http2Peer) -> None:
        while True:
            request = await peer.request()
            if request.headers[b":path"] == b"/mcp?a=b":
                peer.server.begin(request.stream, [(b"location", b"/mcp/"), (b"content-length", b"0")], b"307")
                peer.server.send(request.stream, b"", is_last=True)
                await peer.flush()
            else:
                await peer.reply(request, request.headers[b":path"])

    async with serving_http2(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b"/mcp/", DONE]
        assert server.connections == 2


async def test_a_paused_exchange_takes_no_more_than_the_buffers_hold() -> None:
    """The client reads nothing meanwhile, so the windows stay closed, and the server waits."""
    sent = 0

    async def script(peer: Http2Peer) -> None:
        nonlocal sent
        request = await peer.request()
        peer.server.begin(request.stream, EVENTS)
        data = b"data: %s\n\n" % (b"x" * 10_000)
        for _ in range(2000):
            await peer.send_all(request.stream, data, is_last=False)
            sent += len(data)
        await peer.send_all(request.stream, b"", is_last=True)

    async with serving_http2(script) as server, dialer() as dial:
        outlet = dial(server.endpoint)
        await dial.port.until_reports(1, 3)
        outlet.pause()
        before = len(dial.port.reports[1])
        stalled = -1
        while stalled != sent:  # until it sends no more
            stalled = sent
            await anyio.sleep(0.2)
        assert sent < 10_000_000 and len(dial.port.reports[1]) <= before + 200
        outlet.resume()
        assert len(await dial.port.until_closed(1)) == 2002


async def test_an_exchange_that_is_given_up_closes_its_connection() -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.request()
        if peer.number == 1:
            while True:
                await peer.read()
        await answer_all(peer)

    async with serving_http2(script) as server, dialer() as dial:
        outlet = dial(server.endpoint)
        await until(lambda: server.connections == 2)
        outlet.close(CLOSE)
        assert await dial.port.until_closed(1) == [DONE]
        await server.wait_gone(1)


async def test_an_idle_connection_answers_and_is_used_again() -> None:
    is_answered = anyio.Event()

    async def script(peer: Http2Peer) -> None:
        await peer.reply(await peer.request())
        await peer.flush(frame(PingFrame(0, b"12345678")) + frame(SettingsFrame(0, {4: 70_000})))
        while not any(type(event).__name__ == "PingAckReceived" for event in peer.server.events):
            await peer.read()
        is_answered.set()
        await answer_all(peer)

    async with serving_http2(script) as server, dialer() as dial:
        await dial.exchange(server.endpoint)
        with anyio.fail_after(30):
            await is_answered.wait()
        assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":1}', DONE]


@pytest.mark.parametrize(
    "ending", [goaway(1), goaway(1, 11), frame(HeadersFrame(2, b"\x88", flags=["END_HEADERS"])), b""]
)
async def test_an_idle_connection_that_ends_is_left(ending: bytes) -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.reply(await peer.request(), b'{"on":%d}' % peer.number)
        if peer.number == 1:
            if not ending:
                return
            await peer.flush(ending)
            while True:
                await peer.read()
        await answer_all(peer)

    async with serving_http2(script) as server, dialer() as dial:
        assert (await dial.exchange(server.endpoint))[1] == b'{"on":1}'
        await server.wait_finished(1)
        assert (await dial.exchange(server.endpoint))[1] == b'{"on":2}'


REFUSALS = {
    "GOAWAY": lambda stream: goaway(stream - 2),
    "REFUSED_STREAM": lambda stream: reset(stream, ErrorCodes.REFUSED_STREAM),
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_request_that_a_used_connection_did_not_run_is_sent_on_another(kind: str) -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.reply(await peer.request(), b'{"on":%d}' % peer.number)
        request = await peer.request()
        if peer.number == 1:
            await peer.flush(REFUSALS[kind](request.stream))
            while True:
                await peer.read()
        await peer.reply(request)

    async with serving_http2(script) as server, dialer() as dial:
        assert (await dial.exchange(server.endpoint))[1] == b'{"on":1}'
        assert (await dial.exchange(server.endpoint))[1] == b'{"on":2}'
        assert server.connections == 3


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_new_connection_that_runs_nothing_ends_the_request(kind: str) -> None:
    async def script(peer: Http2Peer) -> None:
        request = await peer.request()
        await peer.flush(REFUSALS[kind](request.stream) if kind != "GOAWAY" else goaway(0, ErrorCodes.INTERNAL_ERROR))

    async with serving_http2(script) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and cause.end is End.BROKEN and cause.unsent and not cause.stale
        assert ("REFUSED_STREAM" if kind != "GOAWAY" else "INTERNAL_ERROR") in cause.detail
        assert server.connections == 2


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("ending", [b"", reset(1, ErrorCodes.INTERNAL_ERROR), b"\xff" * 9])
async def test_a_request_that_may_have_run_is_not_sent_again(ending: bytes, is_used: bool) -> None:
    async def script(peer: Http2Peer) -> None:
        if is_used:
            await peer.reply(await peer.request())
        request = await peer.request()
        await peer.flush(reset(request.stream, ErrorCodes.INTERNAL_ERROR) if ending[3:4] == b"\x03" else ending)

    async with serving_http2(script) as server, dialer() as dial:
        if is_used:
            await dial.exchange(server.endpoint)
        (cause,) = (await dial.exchange(server.endpoint))[-1:]
        assert isinstance(cause, Cause) and cause.end is End.BROKEN and not cause.unsent
        assert cause.stale is is_used, "whoever asked knows whether the request may be repeated"
        assert server.connections == 2


async def test_a_response_that_is_cut_off_is_not_taken_for_an_unread_request() -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.reply(await peer.request())
        request = await peer.request()
        peer.server.begin(request.stream)
        await peer.flush()

    async with serving_http2(script) as server, dialer() as dial:
        await dial.exchange(server.endpoint)
        (cause,) = (await dial.exchange(server.endpoint))[-1:]
        assert isinstance(cause, Cause) and cause.end is End.BROKEN and not cause.unsent and not cause.stale


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_request_that_was_answered_in_part_is_not_sent_again(kind: str) -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.reply(await peer.request())
        request = await peer.request()
        peer.server.begin(request.stream, EVENTS)
        peer.server.send(request.stream, b"data: 1\n\n")
        await peer.flush(REFUSALS[kind](request.stream))
        while True:
            await peer.read()

    async with serving_http2(script) as server, dialer() as dial:
        await dial.exchange(server.endpoint)
        opened, message, cause = await dial.exchange(server.endpoint)
        assert (opened, message) == (Connected(status=200), b"1")
        assert isinstance(cause, Cause) and cause.end is End.BROKEN and not cause.unsent and not cause.stale
        assert server.connections == 2


async def test_goaway_within_a_response_lets_it_end() -> None:
    async def script(peer: Http2Peer) -> None:
        request = await peer.request()
        peer.server.begin(request.stream)
        await peer.flush(goaway(request.stream))
        peer.server.send(request.stream, b'{"on":%d}' % peer.number, is_last=True)
        await peer.flush()
        while True:
            await peer.read()

    async with serving_http2(script) as server, dialer() as dial:
        for number in (1, 2):
            assert await dial.exchange(server.endpoint) == [Connected(status=200), b'{"on":%d}' % number, DONE]


async def test_a_refusal_before_the_whole_body_was_sent() -> None:
    async def script(peer: Http2Peer) -> None:
        while not peer.server.requests:
            await peer.read()
        peer.server.begin(1, [(b"content-length", b"0")], b"413")
        peer.server.send(1, b"", is_last=True)
        await peer.flush(reset(1, ErrorCodes.NO_ERROR))
        while True:
            await peer.stream.receive()

    settings = {SettingCodes.INITIAL_WINDOW_SIZE: 0}
    async with serving_http2(script, settings=settings) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and (cause.end, cause.status) == (End.REFUSED, 413)


async def test_a_flood_ends_the_connection() -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.request()
        while True:
            await peer.flush(frame(PingFrame(0, b"12345678")) * 1000)

    async with serving_http2(script) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and cause.end is End.BROKEN
        assert "in a row" in cause.detail or "takes answers" in cause.detail


async def test_the_rest_of_a_response_is_dropped_and_the_connection_kept() -> None:
    async def script(peer: Http2Peer) -> None:
        while True:
            request = await peer.request()
            peer.server.begin(request.stream, [(b"content-type", b"text/html")], b"202")
            await peer.send_all(request.stream, b"x" * 1000, is_last=True)

    async with serving_http2(script) as server, dialer() as dial:
        for _ in range(3):
            assert await dial.exchange(server.endpoint) == [Connected(status=202), DONE]
            await dial.until_unheld(1)
            await until(lambda: next(iter(dial.client.unheld)).is_idle)
        assert server.connections == 2


async def test_many_pieces_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    advance = Http2Connection.advance

    def counted(self: Http2Connection) -> object:
        nonlocal turns
        turns += 1
        return advance(self)

    monkeypatch.setattr(Http2Connection, "advance", counted)

    async def script(peer: Http2Peer) -> None:
        request = await peer.request()
        peer.server.begin(request.stream, EVENTS)
        piece = frame(DataFrame(request.stream, b"data: 1\n\n"))
        await peer.flush(piece * 3000)
        await peer.flush(frame(DataFrame(request.stream, b"", flags=["END_STREAM"])))
        await peer.read()

    async with serving_http2(script) as server, dialer() as dial:
        assert len(await dial.exchange(server.endpoint)) == 3002
        assert turns >= 3000 / 200


async def test_a_client_that_stops_ends_what_is_under_way() -> None:
    async def script(peer: Http2Peer) -> None:
        await peer.request()
        while True:
            await peer.read()

    async with serving_http2(script) as server:
        async with dialer() as dial:
            dial(server.endpoint)
            await until(lambda: server.connections == 2)
        (cause,) = dial.port.reports[1]
        assert isinstance(cause, Cause) and cause.end is End.BROKEN
        await server.wait_gone(1)


async def test_through_a_tunnel_it_is_found_out_as_well(authority: Path, server_tls: ssl.SSLContext) -> None:
    async with serving_http2(answer_all, server_tls) as server, serving(tunnel) as between, dialer() as dial:
        proxy = parse_proxy(f"http://127.0.0.1:{between.port}", "HTTPS_PROXY")
        endpoint = dataclasses.replace(at_localhost(server, authority), proxy=proxy)
        for _ in range(2):
            assert await dial.exchange(endpoint) == [Connected(status=200), b'{"on":1}', DONE]
        assert (server.refused, server.connections, between.connections) == (1, 2, 2)


async def test_through_a_proxy_it_stays_with_http_1_1() -> None:
    """A proxy that is told the whole URL speaks HTTP/1.1; what comes in HTTP/2 is no server's answer."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SETTINGS)

    async with serving(script) as server, dialer() as dial:
        proxy = parse_proxy(f"http://127.0.0.1:{server.port}", "HTTP_PROXY")
        (cause,) = await dial.exchange(Endpoint("http://server.invalid/mcp", proxy=proxy))
        assert isinstance(cause, Cause) and "got HTTP/2" in cause.detail and server.connections == 1
