"""Tests of transparent servers and their clients that break rules, over streams in memory and each driver."""

from __future__ import annotations

import json

import anyio
import pytest
from forward_fakes import ForwardWorld, Peer, forward_world
from http_fakes import anyio_backend as anyio_backend
from http_fakes import get, post
from isthmus.core.base.limits import Limits

pytestmark = pytest.mark.anyio

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"
STOLEN = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"


async def begun(w: ForwardWorld, request: bytes) -> Peer:
    """The server's end, when it has the request."""
    await w.client.send(request)
    peer = await w.upstream.accept()
    await peer.request()
    return peer


@pytest.mark.parametrize("only_h11", [False, True])
@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("response", [WHOLE, STREAM + b"5\r\nright\r\n0\r\n\r\n"])
async def test_what_follows_a_response_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch, response: bytes, is_later: bool, only_h11: bool
) -> None:
    """A second response that nobody asked for is not taken for that to the next request."""
    async with forward_world(monkeypatch, only_h11=only_h11) as w:
        peer = await begun(w, post(b"1"))
        await peer.send(response if is_later else response + STOLEN)
        assert (await w.client.read()).body == b"right"
        if is_later:
            await peer.send(STOLEN)
            await anyio.wait_all_tasks_blocked()
        other = await begun(w, post(b"2"))
        assert w.upstream.made == 2
        await other.send(WHOLE)
        assert (await w.client.read()).body == b"right"
        await peer.wait_gone()


@pytest.mark.parametrize("only_h11", [False, True])
async def test_repeated_heads_mean_what_their_requests_make_of_them(
    monkeypatch: pytest.MonkeyPatch, only_h11: bool
) -> None:
    """The head of a response says for a HEAD what it would say of a body that does not come."""
    async with forward_world(monkeypatch, only_h11=only_h11) as w:
        peer = await begun(w, post(b"1"))
        for number, method in enumerate(("POST", "POST", "HEAD", "POST", "GET", "DELETE", "DELETE", "POST"), 1):
            if number > 1:
                await w.client.send(post(b"1") if method == "POST" else get(method=method))
                assert (await peer.request())[0].startswith(method)
            await peer.send(WHOLE.removesuffix(b"right") if method == "HEAD" else WHOLE)
            answer = await w.client.read(method)
            assert answer.body == (b"" if method == "HEAD" else b"right")
            assert answer.headers[b"content-length"] == b"5"
        assert (w.upstream.made, peer.requests) == (1, 8)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding : chunked"],
        ["X: 1\n Transfer-Encoding: chunked"],
    ],
)
async def test_a_request_with_doubtful_framing_reaches_no_server(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    async with forward_world(monkeypatch) as w:
        head = "\r\n".join(["POST /mcp HTTP/1.1", "Host: localhost:8932", *lines, "", ""])
        await w.client.send(head.encode() + b"0\r\n\r\nGET /mcp/far/admin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await w.client.read()
        assert answer.status in (400, 501)
        await w.client.read_eof()
        assert w.upstream.made == 0


async def test_requests_behind_a_large_body_wait_for_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch, capacity=1000) as w:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.send, post(b"x" * 50_000) + post(b"2"))
            peer = await w.upstream.accept()
            assert (await peer.request())[2] == b"x" * 50_000
            await anyio.wait_all_tasks_blocked()
            assert not peer.stream.incoming.data, "the second is not sent before the first is answered"
            await peer.send(WHOLE)
            assert (await w.client.read()).body == b"right"
            assert (await peer.request())[2] == b"2"
            await peer.send(WHOLE)
            assert (await w.client.read()).body == b"right"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_server_that_dies_under_a_body_is_a_502(monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    async with forward_world(monkeypatch, capacity=1000) as w:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.client.stream.send, post(b"x" * 2_000, chunked=chunked))
            peer = await w.upstream.accept()
            await peer.head()
            peer.stream.hang_up()
            answer = await w.client.read()
            assert (answer.status, json.loads(answer.body)["code"]) == (502, "upstream_broken")
            w.client.stream.hang_up()
            tasks.cancel_scope.cancel()


async def test_a_server_that_sends_on_behind_an_early_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forward_world(monkeypatch) as w:
        await w.client.send(post(b"x" * 100)[:-50])
        peer = await w.upstream.accept()
        await peer.head()
        await peer.bytes(50)
        await peer.send(WHOLE)
        answer = await w.client.read()
        assert (answer.body, answer.is_torn, answer.headers[b"connection"]) == (b"right", False, b"close")
        await peer.send(STOLEN)
        await peer.wait_gone()
        assert await w.client.read_eof() == b""


async def test_a_client_that_leaves_while_a_connection_is_made_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with forward_world(monkeypatch) as w:
        w.upstream.may_connect = anyio.Event()
        await w.client.send(post(b"1"))
        await anyio.wait_all_tasks_blocked()
        w.client.stream.hang_up()
        with anyio.fail_after(5):
            await w.forwarder.wait_no_calls()


async def test_many_small_pieces_do_not_stop_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """More pieces than are passed on in one turn, in both directions."""
    body = b"ab" * 30_000
    async with forward_world(monkeypatch, limits=Limits(read_size_bytes=1 << 20), capacity=1 << 20) as w:
        pieces = b"".join(b"1;x\r\n%b\r\n" % body[i : i + 1] for i in range(2_000)) + b"0\r\n\r\n"
        head = post(b"", chunked=True).removesuffix(b"0\r\n\r\n")
        await w.client.send(head + pieces)
        peer = await w.upstream.accept()
        assert (await peer.request())[2] == body[:2_000]
        await peer.send(STREAM + pieces)
        assert (await w.client.read()).body == body[:2_000]
