"""Tests of transparent servers over streams in memory: forwarding, flow control, and the ends of both sides."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import zlib

import anyio
import h11
import pytest
from event_loop_clock import EventLoopClock
from forward_fakes import ForwardWorld, Peer, forward_world, target
from http_fakes import LIMIT_S, Answer, get, post
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http import reverse_proxy_exchange as exchanges
from isthmus.core.wire.http.reverse_proxy import HeaderRules
from isthmus.transports.http_server.framing import SKIP_MAX_BYTES

pytestmark = pytest.mark.anyio

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PAGE = "Origin: http://localhost:6274"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def begun(w: ForwardWorld, request: bytes) -> Peer:
    """The server's end, when it has the request."""
    await w.client.send(request)
    peer = await w.upstream.accept()
    await peer.request()
    return peer


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["code"]


# --- Both ways ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, 1, 7])
@pytest.mark.parametrize("chunked", [False, True])
async def test_requests_and_responses_cross_as_they_are(
    monkeypatch: pytest.MonkeyPatch, cut: int | None, chunked: bool
) -> None:
    async with forward_world(monkeypatch) as w:
        body = bytes(range(256))
        for n in range(3):
            await w.client.send(post(body, f"X-Mine: {n}", path=f"/mcp/far/a%20b?n={n}", chunked=chunked), cut=cut)
            if n == 0:
                peer = await w.upstream.accept()
            first, headers, taken = await peer.request()
            assert first == f"POST /base/a%20b?n={n} HTTP/1.1"
            assert taken == body
            assert headers["host"] == "up.example" and headers["x-mine"] == str(n)
            assert ("transfer-encoding" in headers) is chunked
            await peer.answer(body[::-1], "Date: then", "X-Theirs: yes", "Keep-Alive: 5", status="299 Odd")
            answer = await w.client.read()
            assert (answer.status, answer.body) == (299, body[::-1])
            assert answer.headers[b"date"] == b"then" and answer.headers[b"x-theirs"] == b"yes"
            assert b"keep-alive" not in answer.headers and b"connection" not in answer.headers
        assert w.upstream.made == 1, "the connection is used again"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
async def test_any_method_crosses(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(get("/mcp", method=method))
        peer = await w.upstream.accept()
        first, headers, _ = await peer.request()
        assert first == f"{method} /base HTTP/1.1"
        assert "content-length" not in headers and "transfer-encoding" not in headers
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if method == "HEAD" else b"ab"))
        answer = await w.client.read(method)
        assert (answer.status, answer.body) == (200, b"" if method == "HEAD" else b"ab")
        assert answer.headers[b"content-length"] == b"2"
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).body == b"fine\n"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified", "307 Temporary Redirect", "500 Oh", "401 No"])
async def test_any_status_crosses(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """Every status passes. Redirects do too, as they are the client's to follow."""
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(f"HTTP/1.1 {status}\r\nLocation: /elsewhere\r\nWWW-Authenticate: Bearer\r\n".encode())
        await peer.send(b"\r\n" if status[0] == "2" or status[:3] == "304" else b"Content-Length: 0\r\n\r\n")
        answer = await w.client.read()
        assert (answer.status, answer.body) == (int(status[:3]), b"")
        assert answer.headers[b"location"] == b"/elsewhere"
        assert answer.headers[b"www-authenticate"] == b"Bearer"


async def test_a_redirect_within_the_server_leads_back_through_us(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://up.example/base/\r\n")
        await peer.send(b"Content-Location: /base/x\r\nContent-Length: 0\r\n\r\n")
        answer = await w.client.read()
        assert answer.headers[b"content-location"] == b"/mcp/far/x"
        location = answer.headers[b"location"].decode()
        assert location.startswith("/mcp/far/~/")
        await w.client.send(post(b"1", path=location))
        assert (await peer.request())[0] == "POST /base/ HTTP/1.1"
        await peer.answer(b"there")
        assert (await w.client.read()).body == b"there"


async def test_pipelined_requests_cross_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(post(b"1") + get("/mcp/far/x") + get("/healthz") + post(b"2", chunked=True))
        peer = await w.upstream.accept()
        assert (await peer.request())[2] == b"1"
        await anyio.wait_all_tasks_blocked()
        await peer.answer(b"one")
        assert (await peer.request())[0] == "GET /base/x HTTP/1.1"
        await peer.answer(b"two")
        assert [(await w.client.read(method)).body for method in ("POST", "GET", "GET")] == [b"one", b"two", b"fine\n"]
        assert (await peer.request())[2] == b"2"
        await peer.answer(b"three")
        assert (await w.client.read()).body == b"three"


async def test_a_response_without_a_length_is_complete_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nall of ")
        await peer.send(b"it")
        await peer.stream.aclose()
        answer = await w.client.read()
        assert (answer.body, answer.is_torn) == (b"all of it", False)
        peer = await begun(w, post(b"1"))
        await peer.answer(b"another connection")
        assert (await w.client.read()).body == b"another connection"


async def test_a_length_beside_chunks_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n")
        await peer.send(chunk(b"more than that") + b"0\r\nX-Trailer: x\r\n\r\n")
        answer = await w.client.read()
        assert (answer.body, answer.is_torn) == (b"more than that", False)


async def test_events_arrive_as_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        for method in ("POST", "GET"):
            if method == "GET":
                await w.client.send(get())
                await peer.request()
            await peer.send(STREAM)
            assert (await w.client.read_head(method)).headers[b"content-type"] == b"text/event-stream"
            for data in (b": ping\n\n", b"id: 1\nevent: message\ndata: {}\n\n", b"data: \r\r"):
                await peer.send(chunk(data))
                assert await w.client.read_piece() == data
            await peer.send(b"0\r\n\r\n")
            assert await w.client.read_piece() is None


async def test_what_servers_say_before_their_response_ends_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await peer.answer(b"1")
        answer = await w.client.read()
        assert (answer.status, answer.informational) == (200, [])
        await w.client.send(post(b"1"))
        await peer.request()
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n" * (exchanges.INTERIM_MAX + 1))
        assert code(await w.client.read()) == (502, "upstream_broken")


async def test_a_client_gets_100_continue_when_the_server_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(post(b"12", "Expect: 100-continue")[:-2])
        peer = await w.upstream.accept()
        _, headers = await peer.head()
        assert "expect" not in headers
        with anyio.fail_after(5):
            assert (await w.client.stream.receive()).startswith(b"HTTP/1.1 100 ")
        await w.client.send(b"12")
        assert await peer.bytes(2) == b"12"
        await peer.answer(b"1")
        assert (await w.client.read()).body == b"1"
        await anyio.wait_all_tasks_blocked()
        await w.forwarder.close_idle()
        w.upstream.error = ConnectionRefusedError()
        await w.client.send(post(b"12", "Expect: 100-continue")[:-2])
        answer = await w.client.read()
        assert answer.status == 502 and answer.informational == []


async def test_old_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1").replace(b"HTTP/1.1", b"HTTP/1.0"))
        await peer.send(STREAM + chunk(b"data: 1\n\n") + b"0\r\n\r\n")
        raw = await w.client.read_eof()
        assert raw.endswith(b"\r\n\r\ndata: 1\n\n") and b"chunked" not in raw


async def test_pages_get_our_cors_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = ("Access-Control-Allow-Origin: *", "Access-Control-Allow-Credentials: true")
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1", PAGE))
        await peer.answer(b"1", *theirs)
        answer = await w.client.read()
        assert answer.headers[b"access-control-allow-origin"] == b"http://localhost:6274"
        assert b"access-control-allow-credentials" not in answer.headers
        await w.client.send(post(b"1"))
        await peer.request()
        await peer.answer(b"1", *theirs)
        assert b"access-control-allow-origin" not in (await w.client.read()).headers


async def test_headers_cross_by_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = HeaderRules(set=((b"authorization", b"ours"),), forwarded=True, x_forwarded=True)
    async with forward_world(monkeypatch, rules=rules) as w:
        await w.client.send(post(b"1", "Authorization: theirs", "Cookie: c", "Connection: X-Hop", "X-Hop: 1", PAGE))
        peer = await w.upstream.accept()
        _, headers, _ = await peer.request()
        assert headers["authorization"] == "ours"
        assert not {"cookie", "connection", "x-hop", "origin", "x-forwarded-for"} & set(headers)
        assert headers["x-forwarded-host"] == "localhost:8932"
        assert headers["forwarded"] == 'for=unknown;host="localhost:8932";proto=http'
        await peer.answer(b"1", "Set-Cookie: a=b", "Connection: X-Hop", "X-Hop: 1")
        answer = await w.client.read()
        assert not {b"set-cookie", b"x-hop", b"connection"} & set(answer.headers)


# --- Flow control ---------------------------------------------------------------------------------------------------


async def test_a_slow_server_holds_its_client_back(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(read_size_bytes=1000)
    async with forward_world(monkeypatch, limits=limits, capacity=1000) as w:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.stream.send, post(b"x" * 100_000))
            peer = await w.upstream.accept()
            await anyio.wait_all_tasks_blocked()
            assert len(w.client.stream.outgoing.data) == 1000, "it waits"
            assert (await peer.request())[2] == b"x" * 100_000
            await peer.answer(b"1")
        assert (await w.client.read()).body == b"1"


async def test_a_slow_client_holds_its_server_back(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(read_size_bytes=1000)
    async with forward_world(monkeypatch, limits=limits, capacity=1000) as w:
        peer = await begun(w, get())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.answer, b"x" * 100_000)
            await anyio.wait_all_tasks_blocked()
            assert len(peer.stream.outgoing.data) == 1000, "it waits"
            assert (await w.client.read("GET")).body == b"x" * 100_000


# --- Endpoint events ------------------------------------------------------------------------------------------------


async def test_an_endpoint_leads_back_through_us(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch, url="http://up.example/sse") as w:
        peer = await begun(w, get("/mcp/far"))
        await peer.send(STREAM.replace(b"chunked", b"chunked\r\nVary: x"))
        answer = await w.client.read_head("GET")
        assert answer.headers[b"vary"] == b"x"
        await peer.send(chunk(b"event: endpoint\ndata: /messages/"))
        await peer.send(chunk(b"?session_id=1\n\nevent: mess"))
        piece = await w.client.read_piece()
        marked = target("http://up.example/sse").to_client("/messages/?session_id=1", b"/sse")
        assert piece == f"event: endpoint\ndata: {marked}\n\n".encode()
        await peer.send(chunk(b"age\ndata: 1\n\n") + b"0\r\n\r\n")
        assert await w.client.read_piece() == b"event: message\ndata: 1\n\n"
        assert await w.client.read_piece() is None
        await w.client.send(post(b"{}", path=marked))
        assert (await peer.request())[0] == "POST /messages/?session_id=1 HTTP/1.1"
        await peer.answer(b"Accepted", status="202 Accepted")
        assert (await w.client.read()).body == b"Accepted"


async def test_a_length_that_could_be_wrong_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        await peer.answer(b"event: endpoint\ndata: /m\n\n", "Content-Type: Text/Event-Stream; charset=utf-8")
        answer = await w.client.read("GET")
        assert answer.body.startswith(b"event: endpoint\ndata: /mcp/far/~/") and b"content-length" not in answer.headers


async def test_an_endpoint_elsewhere_cuts_the_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        await peer.send(STREAM + chunk(b"data: 1\n\nevent: endpoint\ndata: http://evil.example/\n\ndata: 2\n\n"))
        answer = await w.client.read("GET")
        assert (answer.body, answer.is_torn) == (b"data: 1\n\n", True)
        await peer.wait_gone()
        assert "evil.example" in caplog.text


async def test_other_bodies_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    event = b"event: endpoint\ndata: http://evil.example/\n\n"
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        await peer.answer(event, "Content-Type: text/plain")
        assert (await w.client.read("GET")).body == event
        await w.client.send(post(b"1"))
        await peer.request()
        await peer.answer(event, "Content-Type: text/event-stream")
        assert (await w.client.read()).body == event
        await w.client.send(post(b"1"))
        await peer.request()
        await peer.answer(gzip.compress(event), "Content-Type: text/event-stream", "Content-Encoding: gzip")
        answer = await w.client.read()
        assert (gzip.decompress(answer.body), answer.headers[b"content-encoding"]) == (event, b"gzip")


async def test_a_compressed_event_stream_is_decoded_where_its_endpoint_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest = b": much that takes little\n\n" * 20_000
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        body = gzip.compress(b"event: endpoint\ndata: /m\n\n" + rest)
        await peer.answer(body, "Content-Type: text/event-stream", "Content-Encoding: gzip")
        answer = await w.client.read("GET")
        endpoint, _, passed = answer.body.partition(b"/m\n\n")
        assert endpoint.startswith(b"event: endpoint\ndata: /mcp/far/~/") and passed == rest
        assert b"content-encoding" not in answer.headers and b"content-length" not in answer.headers


@pytest.mark.parametrize("flaw", ["no gzip", "no end"])
async def test_a_compressed_event_stream_with_a_flaw_is_cut(monkeypatch: pytest.MonkeyPatch, flaw: str) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        await peer.send(STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"))
        packer = zlib.compressobj(wbits=31)
        await peer.send(chunk(packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)))
        assert (await w.client.read_head("GET")).status == 200
        assert await w.client.read_piece() == b"data: 1\n\n"
        await peer.send(chunk(b"\xff" * 30) if flaw == "no gzip" else b"0\r\n\r\n")
        with pytest.raises(h11.RemoteProtocolError):
            await w.client.read_piece()


async def test_an_event_stream_with_an_unknown_coding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        await peer.answer(b"data: 1\n\n", "Content-Type: text/event-stream", "Content-Encoding: compress")
        assert code(await w.client.read("GET")) == (502, "upstream_broken")


# --- The client's end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["body", "waiting", "stream"])
async def test_a_client_that_hangs_up_takes_its_request_with_it(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(post(b"12")[: -1 if when == "body" else None])
        peer = await w.upstream.accept()
        await peer.head()
        await peer.bytes(1 if when == "body" else 2)
        if when == "stream":
            await peer.send(STREAM + chunk(b"data: 1\n\n"))
            await w.client.read_head()
        await anyio.wait_all_tasks_blocked()
        w.client.stream.hang_up()
        await peer.wait_gone()


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("how", ["silent", "malformed"])
async def test_a_body_that_breaks_off(monkeypatch: pytest.MonkeyPatch, how: str, has_begun: bool) -> None:
    clock = EventLoopClock(monkeypatch)
    async with forward_world(monkeypatch, limits=Limits(body_timeout_s=LIMIT_S)) as w:
        await w.client.send(post(b"12", chunked=True)[: -len(b"0\r\n\r\n")])
        peer = await w.upstream.accept()
        await peer.head()
        assert await peer.bytes(7) == b"2\r\n12\r\n"
        if has_begun:
            await peer.send(STREAM + chunk(b"data: 1\n\n"))
            await w.client.read_head()
            assert await w.client.read_piece() == b"data: 1\n\n"
        if how == "malformed":
            await w.client.send(b"zz\r\n")
        else:
            await clock.set_forward(LIMIT_S)
        await peer.wait_gone()
        if has_begun:
            with pytest.raises(h11.RemoteProtocolError):
                await w.client.read_piece()
        else:
            assert (await w.client.read()).status == (408 if how == "silent" else 400)


async def test_a_client_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch, limits=Limits(write_timeout_s=0.05), capacity=1000) as w:
        peer = await begun(w, get())
        with pytest.raises(anyio.BrokenResourceError):
            await peer.answer(b"x" * 100_000)


# --- The server's end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [STREAM + chunk(b"data: 1\n\n"), STREAM + b"9\r\ndata: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_part_is_never_taken_for_the_whole(
    monkeypatch: pytest.MonkeyPatch, response: bytes, method: str
) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get() if method == "GET" else post(b"1"))
        await peer.send(response)
        await anyio.wait_all_tasks_blocked()
        await peer.stream.aclose()
        answer = await w.client.read(method)
        assert (answer.status, answer.is_torn) == (200, True)


@pytest.mark.parametrize(
    "response", [b"", b"HTTP/1.1 2", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 101 No\r\n\r\n"]
)
async def test_a_server_that_does_not_answer_in_http(monkeypatch: pytest.MonkeyPatch, response: bytes) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(response) if response else None
        await peer.stream.aclose()
        assert code(await w.client.read()) == (502, "upstream_broken")
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).status == 200


@pytest.mark.parametrize(
    "error, status, detail",
    [
        (ConnectionRefusedError(), 502, "connection refused by up.example:80"),
        (TimeoutError(), 504, "no connection to up.example:80 within 10 s"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), 502, "; raise the limit of open files (ulimit -n)"),
        (anyio.BrokenResourceError(), 502, "closed the connection during set-up"),
    ],
)
@pytest.mark.parametrize("size", [0, 10, SKIP_MAX_BYTES + 1])
async def test_a_server_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, detail: str, size: int
) -> None:
    async with forward_world(monkeypatch) as w:
        w.upstream.error = error
        await w.client.send(post(b"x" * size, PAGE))
        answer = await w.client.read()
        is_kept = size <= SKIP_MAX_BYTES
        assert (answer.status, answer.headers.get(b"connection")) == (status, None if is_kept else b"close")
        assert detail in json.loads(answer.body)["detail"]
        assert answer.headers[b"access-control-allow-origin"] == b"http://localhost:6274"
        if is_kept:
            w.upstream.error = None
            peer = await begun(w, post(b"1"))
            await peer.answer(b"back")
            assert (await w.client.read()).body == b"back"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch, is_stream: bool) -> None:
    """Event streams have a quota of their own, and leave the connections of calls alone."""
    limits = Limits(upstream_connections_max=1, upstream_streams_max=1)
    async with forward_world(monkeypatch, limits=limits) as w:
        request = get() if is_stream else post(b"1")
        peer = await begun(w, request)
        other = w.http.connect()
        await other.send(request)
        assert code(await other.read()) == (503, "overloaded")
        third = w.http.connect()
        await third.send(post(b"2") if is_stream else get())
        assert await (await w.upstream.accept()).request()
        await peer.answer(b"back")
        assert (await w.client.read()).body == b"back"
        again = w.http.connect()
        await again.send(request)
        assert await peer.request(), "on the connection that is free again"


async def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with forward_world(monkeypatch, limits=Limits(forward_reply_timeout_s=LIMIT_S)) as w:
        peer = await begun(w, post(b"1"))
        await clock.set_forward(LIMIT_S)
        assert code(await w.client.read()) == (504, "upstream_timed_out")
        await peer.wait_gone()


async def test_a_server_may_wait_for_a_slow_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with forward_world(monkeypatch, limits=Limits(forward_reply_timeout_s=LIMIT_S)) as w:
        await w.client.send(post(b"12")[:-1])
        peer = await w.upstream.accept()
        await peer.head()
        await clock.set_forward(LIMIT_S)
        await w.client.send(b"2")
        await peer.bytes(2)
        await peer.answer(b"1")
        assert (await w.client.read()).body == b"1"


async def test_a_stream_that_falls_silent_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with forward_world(monkeypatch, limits=Limits(forward_idle_timeout_s=LIMIT_S)) as w:
        peer = await begun(w, get())
        await peer.send(STREAM)
        await w.client.read_head("GET")
        await clock.set_forward(LIMIT_S)
        with pytest.raises(h11.RemoteProtocolError):
            await w.client.read_piece()
        await peer.wait_gone()


@pytest.mark.parametrize("is_closing", [False, True])
async def test_a_server_may_answer_before_it_has_the_body(monkeypatch: pytest.MonkeyPatch, is_closing: bool) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(post(b"x" * 100)[:-50])
        peer = await w.upstream.accept()
        await peer.head()
        await peer.bytes(50)
        await peer.answer(b"too much", *(("Connection: close",) if is_closing else ()), status="413 Content Too Large")
        answer = await w.client.read()
        assert (answer.status, answer.body, answer.headers[b"connection"]) == (413, b"too much", b"close")
        if not is_closing:
            await w.client.send(b"x" * 50)
            assert await peer.bytes(50) == b"x" * 50
        else:
            await peer.wait_gone()
        assert await w.client.read_eof() == b""


async def test_a_client_that_has_its_answer_need_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with forward_world(monkeypatch, limits=Limits(body_timeout_s=LIMIT_S)) as w:
        await w.client.send(post(b"x" * 100)[:-50])
        peer = await w.upstream.accept()
        await peer.head()
        await peer.bytes(50)
        await peer.answer(b"enough")
        answer = await w.client.read()
        assert (answer.body, answer.is_torn) == (b"enough", False)
        await clock.set_forward(LIMIT_S)
        await peer.wait_gone()
        assert await w.client.read_eof() == b""


async def test_a_server_that_takes_no_more_may_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "LINGER_S", 0.05)
    for explains in (True, False):
        async with forward_world(monkeypatch, capacity=1000) as w:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.client.stream.send, post(b"x" * 10_000))
                peer = await w.upstream.accept()
                await peer.head()
                if explains:
                    await peer.answer(b"no", status="413 Content Too Large")
                peer.stream.incoming.is_broken = True
                peer.stream.incoming.changed()
                answer = await w.client.read()
            assert answer.status == (413 if explains else 502)
            peer.stream.hang_up()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_kept_connection_that_ends_as_it_is_used(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A request that may run twice is sent again on another connection; the client decides about the others."""
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.answer(b"1")
        await w.client.read()
        await w.client.send(get() if method == "GET" else post(b"1"))
        await peer.request()
        await peer.stream.aclose()
        if method == "GET":
            other = await w.upstream.accept()
            assert (await other.request())[0] == "GET /base HTTP/1.1"
            await other.answer(b"2")
            assert (await w.client.read("GET")).body == b"2"
        else:
            assert code(await w.client.read()) == (502, "upstream_broken")


async def test_a_kept_connection_that_has_ended_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.answer(b"1")
        await w.client.read()
        await peer.stream.aclose()
        await anyio.wait_all_tasks_blocked()
        other = await begun(w, post(b"1"))
        await other.answer(b"2")
        assert (await w.client.read()).body == b"2"


async def test_a_new_connection_that_ends_is_not_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, get())
        await peer.stream.aclose()
        assert code(await w.client.read("GET")) == (502, "upstream_broken")
        assert w.upstream.made == 1


async def test_unused_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await begun(w, post(b"1"))
        await peer.answer(b"1")
        await w.client.read()
        await anyio.wait_all_tasks_blocked()
        await w.forwarder.close_idle(since=0)
        assert not peer.stream.incoming.is_eof
        await w.forwarder.close_idle()
        await peer.wait_gone()


async def test_calls_are_waited_for_and_streams_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    has_waited = []

    async def wait() -> None:
        await w.forwarder.wait_no_calls()
        has_waited.append(True)

    async with forward_world(monkeypatch) as w:
        await begun(w, get())
        with anyio.fail_after(1):
            await w.forwarder.wait_no_calls()
        other = w.http.connect()
        await other.send(post(b"1"))
        peer = await w.upstream.accept()
        await peer.request()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not has_waited
            await peer.answer(b"1")
        assert (await other.read()).body == b"1"


# --- WebSocket ------------------------------------------------------------------------------------------------------

UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k", "Sec-WebSocket-Version: 13")
UPGRADE += ("Sec-WebSocket-Protocol: mcp", "Sec-WebSocket-Extensions: permessage-deflate")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
SWITCHED += b"Sec-WebSocket-Accept: a\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"


async def switched(w: ForwardWorld, *, behind: bytes = b"") -> Peer:
    await w.client.send(get("/mcp/far/ws", *UPGRADE))
    peer = await w.upstream.accept()
    first, headers, _ = await peer.request()
    assert first == "GET /base/ws HTTP/1.1"
    assert (headers["upgrade"], headers["connection"]) == ("websocket", "Upgrade")
    assert headers["sec-websocket-protocol"] == "mcp"
    assert headers["sec-websocket-extensions"] == "permessage-deflate"
    await anyio.wait_all_tasks_blocked()
    assert not w.client.stream.incoming.data, "the client is not answered before the server agrees"
    await peer.send(SWITCHED + behind)
    with anyio.fail_after(5):
        head = b""
        while b"\r\n\r\n" not in head:
            head += await w.client.stream.receive(1)
    assert head.startswith(b"HTTP/1.1 101 ")
    for line in (b"sec-websocket-protocol: mcp", b"sec-websocket-accept: a", b"upgrade: websocket"):
        assert line in head.lower()
    return peer


async def received(w: ForwardWorld, size: int) -> bytes:
    data = b""
    with anyio.fail_after(5):
        while len(data) < size:
            data += await w.client.stream.receive(size - len(data))
    return data


async def test_a_web_socket_passes_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch, capacity=1000) as w:
        peer = await switched(w, behind=b"\x81\x01a")
        assert await received(w, 3) == b"\x81\x01a"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.send, b"\x00\xff" * 5000)
            tasks.start_soon(peer.send, b"GET / HTTP/1.1\r\n\r\n" * 500)
            assert await peer.bytes(10_000) == b"\x00\xff" * 5000
            assert await received(w, 9000) == b"GET / HTTP/1.1\r\n\r\n" * 500


async def test_a_web_socket_ends_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        peer = await switched(w)
        await peer.send(b"\x88\x02\x03\xe8")
        await peer.stream.aclose()
        assert await w.client.read_eof() == b"\x88\x02\x03\xe8"


async def test_a_web_socket_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A side that has closed its sending direction still receives."""
    async with forward_world(monkeypatch) as w:
        peer = await switched(w)
        await w.client.send(b"\x88\x82....")
        await w.client.stream.send_eof()
        assert await peer.bytes(6) == b"\x88\x82...."
        await peer.wait_gone()
        await peer.send(b"\x88\x02\x03\xe8")
        await peer.stream.aclose()
        assert await w.client.read_eof() == b"\x88\x02\x03\xe8"
    async with forward_world(monkeypatch) as w:
        peer = await switched(w)
        w.client.stream.hang_up()
        await peer.wait_gone()


async def test_a_web_socket_that_both_sides_forget_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with forward_world(monkeypatch, limits=Limits(forward_idle_timeout_s=LIMIT_S)) as w:
        peer = await switched(w)
        await clock.set_forward(LIMIT_S)
        assert await w.client.read_eof() == b""
        await peer.wait_gone()


async def test_a_refused_upgrade_is_a_response_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(get("/mcp/far", *UPGRADE))
        peer = await w.upstream.accept()
        await peer.request()
        await peer.answer(b"no", status="403 Forbidden")
        answer = await w.client.read("GET")
        assert (answer.status, answer.body) == (403, b"no")
        await w.client.send(get("/healthz"))
        assert (await w.client.read("GET")).body == b"fine\n"


async def test_an_upgrade_of_an_unreachable_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        w.upstream.error = ConnectionRefusedError()
        await w.client.send(get("/mcp/far", *UPGRADE))
        assert code(await w.client.read("GET")) == (502, "upstream_unreachable")


async def test_failures_are_logged_without_payloads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with forward_world(monkeypatch) as w:
            w.upstream.error = ConnectionRefusedError()
            await w.client.send(post(b"secret", path="/mcp/far?token=secret"))
            await w.client.read()
    assert "connection refused" in caplog.text and "secret" not in caplog.text
