"""Tests of WebSocket servers that want tokens, over real sockets: the upgrade waits for one, and is sent once more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.dialer import Dialer
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.websocket.client import SocketServer
from ports import PATIENCE_S, RecordingPort
from socket_fakes import SocketPeer
from token_fakes import CHALLENGE, STEP_UP, WANTED, FakeTokens, authorizations, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

ONE = ChannelId(1)


class Server:
    """Accepts upgrades with one of `accepted` as their token, and echoes messages; refuses the rest."""

    def __init__(self, *accepted: bytes, status: bytes = b"401 Unauthorized", challenge: bytes = CHALLENGE) -> None:
        self.accepted = set(accepted)
        self.refusal = refusal(status, challenge)
        self.upgrades: list[list[bytes]] = []
        self.url = ""

    async def __call__(self, stream: ByteStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            self.upgrades.append(authorizations(head))
            if not self.accepted.issuperset(self.upgrades[-1] or [b""]):
                await stream.send(self.refusal)
                return
            peer = SocketPeer(_Replayed(head, stream), is_client=False)
            await peer.accept_upgrade()
            text = await peer.read()
            assert isinstance(text, str)
            await peer.send_text(text)
            await peer.read()  # the close, which it answers


class _Replayed(ByteStream):
    def __init__(self, beginning: bytes, stream: ByteStream) -> None:
        self._beginning, self._stream = beginning, stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._beginning:
            beginning, self._beginning = self._beginning, b""
            return beginning
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def joining(script: Server, tokens: FakeTokens) -> AsyncIterator[tuple[SocketServer, RecordingPort]]:
    port = RecordingPort()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    number = listener.extra(SocketAttribute.local_port)
    endpoint = Endpoint(f"ws://127.0.0.1:{number}/ws", (("Authorization", "Bearer static"),))
    dialer = Dialer(endpoint, endpoint.address(), Limits())
    with anyio.fail_after(PATIENCE_S):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, script)
            outlet = SocketServer(dialer, endpoint, (("authorization", "theirs"),), ONE, port, Limits(), tokens=tokens)
            tasks.start_soon(outlet.run)
            yield outlet, port
            outlet.close(Close(ONE))
            await port.wait_closed(ONE)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("is_ready", [True, False])
@pytest.mark.parametrize("first", [b"Bearer old", b""])
async def test_an_upgrade_is_sent_once_more(first: bytes, is_ready: bool) -> None:
    tokens, script = FakeTokens(first, b"Bearer new", is_ready=is_ready), Server(b"Bearer new")
    async with joining(script, tokens) as (outlet, port):
        outlet.send(Send(ONE, b"{}"))
        assert await port.wait_opened(ONE) == Connected()
        assert await port.wait_message(ONE, 1) == [b"{}"]
    assert script.upgrades == [[first] if first else [], [b"Bearer new"]]
    assert [(value, status) for value, _, status in tokens.refusals] == [(first, 401)]
    assert port.closes == {ONE: Cause(End.DONE)}


@pytest.mark.parametrize(
    ("status", "challenge", "upgrades"),
    [(b"401 Unauthorized", CHALLENGE, 2), (b"403 Forbidden", STEP_UP, 3), (b"403 Forbidden", b"X: y", 1)],
)
async def test_so_many_refusals_are_final(status: bytes, challenge: bytes, upgrades: int) -> None:
    tokens = FakeTokens(*(b"Bearer %d" % number for number in range(9)))
    async with joining(script := Server(status=status, challenge=challenge), tokens) as (_, port):
        cause = await port.wait_closed(ONE)
    assert (cause.end, cause.status, cause.detail) == (End.REFUSED, int(status[:3]), WANTED.message)
    assert cause.login == WANTED.login
    assert script.upgrades == [[b"Bearer %d" % number] for number in range(upgrades)]


async def test_a_token_that_the_server_repeats_is_not_told_on() -> None:
    challenge = b'WWW-Authenticate: Bearer error_description="got token-of-the-proxy"'
    async with joining(Server(challenge=challenge), FakeTokens(b"Bearer token-of-the-proxy")) as (_, port):
        cause = await port.wait_closed(ONE)
    assert cause.challenge == 'Bearer error_description="got [withheld]"'


@pytest.mark.parametrize("values", [[], [b"Bearer old"]])
async def test_without_a_token_the_session_is_refused(values: list[bytes]) -> None:
    async with joining(script := Server(), FakeTokens(*values)) as (_, port):
        cause = await port.wait_closed(ONE)
    assert (cause.end, cause.status, cause.login) == (End.REFUSED, 401, WANTED.login)
    assert len(script.upgrades) == len(values)


@pytest.mark.parametrize("is_refused", [True, False])
async def test_a_session_that_is_closed_while_it_waits(is_refused: bool) -> None:
    tokens, gate = FakeTokens(b"Bearer old", b"Bearer new", is_ready=is_refused), anyio.Event()
    tokens.gate = None if is_refused else gate

    class Gated(Server):
        async def __call__(self, stream: ByteStream) -> None:
            tokens.gate = gate
            await super().__call__(stream)

    async with joining(script := Gated(b"Bearer new"), tokens) as (outlet, port):
        while tokens.waiting == 0:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        outlet.close(Close(ONE))
        assert await port.wait_closed(ONE) == Cause(End.DONE)
    assert tokens.was_cancelled == 1 and len(script.upgrades) == is_refused
