"""The two neighbours of the HTTP client: a `Port` that records, and a server that follows a script to the byte."""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener
from isthmus.core.base.events import Cause, Connected, End, Opening, PostOpening, Primed, Queued
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.port import Outlet
from isthmus.transports.http_client.client import HttpClient

PATIENCE_S = 30.0

uses_protocols = False
"""The driver of the client under test."""

WITH_BOTH_DRIVERS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio", "protocols"], indirect=True)
"""The parameters for a module that imports `anyio_backend` too."""


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The event loop, and the driver of the client."""
    is_protocols = request.param == "protocols"
    monkeypatch.setattr(sys.modules[__name__], "uses_protocols", is_protocols)
    return "asyncio" if is_protocols else str(request.param)


@pytest.fixture
def in_order(anyio_backend: str) -> None:
    """Fixes the order of the event loop's turns, for a test that counts them."""
    if anyio_backend == "trio":
        pytest.skip("trio wakes tasks at random")


def new_client(limits: Limits, *, only_h11: bool = False) -> HttpClient:
    return HttpClient(limits, protocols=uses_protocols, only_h11=only_h11)


class Part(NamedTuple):
    """A part of a message. The first part carries the message's size."""

    data: bytes
    size_bytes: int


Report = Connected | Primed | Queued | bytes | Part | Cause


async def until(is_so: Callable[[], bool]) -> None:
    """Waits by polling, for conditions that set no event."""
    with anyio.fail_after(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await anyio.sleep(0.001)


class FakePort:
    """Records the reports about each dialled channel. `on_report` may act at once, as an engine's orders do."""

    def __init__(self) -> None:
        self.reports: dict[ChannelId, list[Report]] = {}
        self.wants_parts = False
        self.begun: list[tuple[bytes, int]] = []
        self.on_report: Callable[[ChannelId, Report], None] | None = None
        self._changed = anyio.Event()

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        raise AssertionError("no client opens a downstream channel")

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        raise AssertionError("no client opens a downstream channel")

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        assert messages
        for message in messages:
            self.message(channel, message)

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        self.opened(channel, opening)
        if message is not None:
            self.message(channel, message)
        self.closed(channel, Cause(End.DONE))

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        raise AssertionError("no request is sent in parts")

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        assert isinstance(opening, Connected | Primed | Queued)
        before = [type(report) for report in self.reports.get(channel, [])]
        if isinstance(opening, Connected):
            assert before in ([], [Queued])
        else:
            assert before == ([Connected] if isinstance(opening, Primed) else [])
        self._report(channel, opening)

    def message(self, channel: ChannelId, message: bytes) -> None:
        assert any(isinstance(report, Connected) for report in self.reports[channel][:2])
        self._report(channel, message)

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        self.message(channel, b"".join(pieces))

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        self.begun.append((beginning, size_bytes))
        return self.wants_parts

    def part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        is_last: bool = False,
    ) -> None:
        assert (opening is not None) is bool(size_bytes)
        if opening is not None:
            self.opened(channel, opening)
        self._report(channel, Part(b"".join(pieces), size_bytes))
        if is_last:
            self.closed(channel, Cause(End.DONE))

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        raise AssertionError("no request is sent in parts")

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        self._report(channel, cause)

    def _report(self, channel: ChannelId, report: Report) -> None:
        reports = self.reports.setdefault(channel, [])
        assert not reports or not isinstance(reports[-1], Cause), "a report about a closed channel"
        reports.append(report)
        self._changed.set()
        self._changed = anyio.Event()
        if self.on_report is not None:
            self.on_report(channel, report)

    async def until(self, is_so: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not is_so():
                await self._changed.wait()

    async def until_reports(self, channel: int, count: int) -> list[Report]:
        await self.until(lambda: len(self.reports.get(ChannelId(channel), ())) >= count)
        return self.reports[ChannelId(channel)]

    async def until_closed(self, channel: int) -> list[Report]:
        """Returns all reports about the channel once the last one, its `Cause`, is there."""
        await self.until(lambda: isinstance((self.reports.get(ChannelId(channel)) or [b""])[-1], Cause))
        return self.reports[ChannelId(channel)]

    async def cause(self, channel: int) -> Cause:
        last = (await self.until_closed(channel))[-1]
        assert isinstance(last, Cause)
        return last


class Peer:
    """The server's end of one connection."""

    def __init__(self, server: ScriptedServer, stream: ByteStream, number: int) -> None:
        self.number = number
        self.stream = stream
        self._server = server
        self._buffer = b""

    async def request(self) -> bytes:
        """The next request, head and body."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += await self.stream.receive()
        head, _, more = self._buffer.partition(b"\r\n\r\n")
        rest = bytearray(more)
        size = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        while len(rest) < size:
            rest += await self.stream.receive()
        self._buffer = bytes(rest[size:])
        request = b"%b\r\n\r\n%b" % (head, rest[:size])
        self._server.requests.append(request)
        return request

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.stream.send(piece)

    async def wait_gone(self) -> None:
        """Waits until the client closes the connection. Any data before that is a failure."""
        try:
            more = await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self._server.gone[self.number].set()
        else:
            raise AssertionError(f"got {more!r}, expected the connection to be closed")


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}/mcp?a=b"
        self.endpoint = Endpoint(self.url)
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone: list[anyio.Event] = []
        self.finished: list[anyio.Event] = []

    async def wait_finished(self, number: int) -> None:
        """Waits until the script of connection `number` (from 0) has run and the server has closed it."""
        with anyio.fail_after(PATIENCE_S):
            await self.finished[number].wait()

    async def wait_gone(self, number: int) -> None:
        """Waits until the script of connection `number` (from 0) has seen the client leave."""
        await until(lambda: number < len(self.gone) and self.gone[number].is_set())


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """Runs `script` on every connection to a fresh port of 127.0.0.1, then closes the connection."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server = ScriptedServer(listener.extra(SocketAttribute.local_port), "http" if tls is None else "https")

    async def handle(stream: ByteStream) -> None:
        number = server.connections
        server.connections += 1
        server.gone.append(anyio.Event())
        server.finished.append(anyio.Event())
        try:
            await script(Peer(server, stream, number))
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            server.gone[number].set()
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
            server.finished[number].set()

    async with listener, anyio.create_task_group() as tasks:
        if tls is None:
            tasks.start_soon(listener.serve, handle)
        else:
            tasks.start_soon(TLSListener(listener, tls, standard_compatible=False).serve, handle)
        yield server
        tasks.cancel_scope.cancel()
