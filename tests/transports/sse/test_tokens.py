"""Tests of HTTP+SSE servers that want tokens, over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from client_dialer import EVENTS_HEAD, chunk
from client_fakes import PATIENCE_S, WITH_BOTH_DRIVERS, Peer, ScriptedServer, new_client, serving, until
from client_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Close, Join, Send
from isthmus.core.base.errors import UPSTREAM_UNAVAILABLE
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.sse.client import SseUpstream
from ports import RecordingPort
from token_fakes import CHALLENGE, WANTED, FakeTokens, authorizations, refusal

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]

CHANNEL = ChannelId(1)
LIMITS = Limits(post_wait_s=PATIENCE_S)
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"' + b"x" * 5_000_000 + b'"}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class SseServer:
    """Accepts what has one of `accepted` as its token, and refuses the rest."""

    def __init__(self, *accepted: bytes) -> None:
        self.accepted = set(accepted)
        self.bodies: list[bytes] = []
        self.gets = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            is_get = request.startswith(b"GET ")
            self.gets += is_get
            if not self.accepted.issuperset(authorizations(request) or [b""]):
                await peer.send(refusal(b"401 Unauthorized", CHALLENGE))
            elif is_get:
                await peer.send(EVENTS_HEAD, chunk(b"event: endpoint\ndata: /messages?session=1\n\n"))
                await peer.wait_gone()
            else:
                self.bodies.append(request.partition(b"\r\n\r\n")[2])
                await peer.send(ACCEPTED)


@asynccontextmanager
async def session(server: ScriptedServer, tokens: FakeTokens) -> AsyncIterator[tuple[SseUpstream, RecordingPort]]:
    with anyio.fail_after(PATIENCE_S):
        async with new_client(LIMITS) as client, anyio.create_task_group() as tasks:
            port, log = RecordingPort(), list[str]()
            upstream = SseUpstream(
                server.endpoint, Join("s"), CHANNEL, port, LIMITS, client, log=log.append, tokens=tokens
            )
            tasks.start_soon(upstream.run)
            yield upstream, port
            upstream.close(Close(CHANNEL))
            await port.wait_closed(CHANNEL)


async def test_the_stream_and_each_post_are_sent_once_more() -> None:
    tokens, script = FakeTokens(b"Bearer 1", b"Bearer 2", b"Bearer 3"), SseServer(b"Bearer 2")
    async with serving(script) as server, session(server, tokens) as (upstream, port):
        assert await port.wait_opened(CHANNEL) == Connected()
        assert script.gets == 2
        script.accepted = {b"Bearer 3"}  # the second one expires while the stream goes on
        upstream.send(Send(CHANNEL, CALL))
        upstream.send(Send(CHANNEL, NOTIFICATION))
        await until(lambda: len(script.bodies) == 2)
        assert script.bodies == [CALL, NOTIFICATION] and port.messages[CHANNEL] == []
    values = [authorizations(request)[0][-1:] for request in server.requests]
    assert values == [b"1", b"2", b"2", b"3", b"3"]
    assert await port.wait_closed(CHANNEL) == Cause(End.DONE)


async def test_a_stream_that_is_refused_twice_ends_the_session() -> None:
    tokens, script = FakeTokens(b"Bearer 1", b"Bearer 2", b"Bearer 3"), SseServer()
    async with serving(script) as server, session(server, tokens) as (_, port):
        cause = await port.wait_closed(CHANNEL)
    assert (cause.end, cause.status, cause.detail, cause.login) == (End.REFUSED, 401, WANTED.message, WANTED.login)
    assert script.gets == 2 and len(tokens.refusals) == 1


async def test_a_stream_that_is_refused_and_gets_no_other_token() -> None:
    tokens, script = FakeTokens(b"Bearer 1"), SseServer()
    async with serving(script) as server, session(server, tokens) as (_, port):
        cause = await port.wait_closed(CHANNEL)
    assert (cause.end, cause.status, cause.detail, cause.login) == (End.REFUSED, 401, WANTED.message, WANTED.login)
    assert cause.body == b"no" and "invalid_token" in cause.challenge and script.gets == 1


async def test_a_session_without_a_token_is_not_begun() -> None:
    async with serving(SseServer()) as server, session(server, FakeTokens()) as (_, port):
        cause = await port.wait_closed(CHANNEL)
        assert server.connections == 0
    assert (cause.end, cause.status, cause.login) == (End.REFUSED, 401, WANTED.login)


@pytest.mark.parametrize("spare", [[], [b"Bearer 2"], [b"Bearer 2", b"Bearer 3"]])
async def test_a_request_that_is_refused_gets_an_error_that_says_how_to_log_in(spare: list[bytes]) -> None:
    tokens, script = FakeTokens(b"Bearer 1", *spare), SseServer(b"Bearer 1")
    async with serving(script) as server, session(server, tokens) as (upstream, port):
        await port.wait_opened(CHANNEL)
        script.accepted = set()
        upstream.send(Send(CHANNEL, b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}'))
        (message,) = await port.wait_message(CHANNEL, 1)
        assert CHANNEL not in port.closes  # the session goes on
    data = {"httpStatus": 401, "login": {"command": "isthmus login files"}}
    error = {"code": UPSTREAM_UNAVAILABLE, "message": WANTED.message, "data": data}
    assert json.loads(message) == {"jsonrpc": "2.0", "id": 7, "error": error}
    assert len(server.requests) == (3 if spare else 2)


@pytest.mark.parametrize("is_joined", [False, True])
async def test_a_session_that_is_closed_while_it_waits_for_a_token(is_joined: bool) -> None:
    tokens, script = FakeTokens(b"Bearer 1"), SseServer(b"Bearer 1")
    gate = anyio.Event()
    tokens.gate = None if is_joined else gate
    async with serving(script) as server, session(server, tokens) as (upstream, port):
        if is_joined:
            await port.wait_opened(CHANNEL)
            tokens.gate = gate
            upstream.send(Send(CHANNEL, NOTIFICATION))
        await until(lambda: tokens.waiting == 1)
    assert tokens.was_cancelled == 1 and tokens.waiting == 0 and script.bodies == []
    assert await port.wait_closed(CHANNEL) == Cause(End.DONE)
