"""Streams in memory, a scripted port and file service, and a client built on h11."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import h11
import pytest
from anyio.abc import ByteStream, TaskGroup
from isthmus.core.access.gate import Gate
from isthmus.core.access.issuer_answers import Wanted
from isthmus.core.base.events import Cause, Connected, End, Opening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import Append, Receive, Serve
from isthmus.core.wire.http.admin_routes import Page
from isthmus.core.wire.http.error_responses import page_answer
from isthmus.core.wire.http.hop import HopReceiver
from isthmus.core.wire.http.routes import PageRoute, Refused, Surface
from isthmus.transports.base.port import Outlet
from isthmus.transports.http_server.replies import Exchange, FileExchange
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.reverse_proxy.forwarder import Forwarder
from isthmus.transports.reverse_proxy.replicas import Replicas

WAIT_S = 30.0
"""The longest wait of a test, in seconds."""

LIMIT_S = WAIT_S / 4
"""A time limit that runs out when the clock of the event loop is set forward, and not before."""

uses_protocols = False
"""The driver of the listener. A module that imports `anyio_backend` runs each test with both drivers."""

SURFACE = Surface(("files",), frozenset({"localhost", "127.0.0.1", "[::1]"}), frozenset())


@pytest.fixture(params=["asyncio", "trio", "protocols"])
def anyio_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    is_protocols = request.param == "protocols"
    monkeypatch.setattr(sys.modules[__name__], "uses_protocols", is_protocols)
    return "asyncio" if is_protocols else str(request.param)


class Pipe:
    """One direction of a stream: at most `capacity` bytes under way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray()
        self.is_eof = False  # the writer is through
        self.is_broken = False  # the reader is gone
        self.on_change: Callable[[], None] = lambda: None
        self._changed = anyio.Event()

    def changed(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        self.on_change()

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        await anyio.lowlevel.checkpoint()
        while view:
            if self.is_broken:
                raise anyio.BrokenResourceError
            room = self.capacity - len(self.data)
            if room <= 0:
                await self._changed.wait()
                continue
            self.data += view[:room]
            view = view[room:]
            self.changed()

    async def read(self, max_bytes: int) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self.data:
            if self.is_eof:
                raise anyio.EndOfStream
            await self._changed.wait()
        data = bytes(self.data[:max_bytes])
        del self.data[:max_bytes]
        self.changed()
        return data


class MemoryStream(ByteStream):
    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.incoming = incoming
        self.outgoing = outgoing

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self.incoming.read(max_bytes)

    async def send(self, item: bytes) -> None:
        await self.outgoing.write(item)

    async def send_eof(self) -> None:
        self.outgoing.is_eof = True
        self.outgoing.changed()

    async def aclose(self) -> None:
        self.hang_up()
        await anyio.lowlevel.checkpoint()

    def hang_up(self) -> None:
        self.outgoing.is_eof = True
        self.incoming.is_broken = True
        self.outgoing.changed()
        self.incoming.changed()


def stream_pair(capacity: int = 1 << 20) -> tuple[MemoryStream, MemoryStream]:
    there, back = Pipe(capacity), Pipe(capacity)
    return MemoryStream(back, there), MemoryStream(there, back)


class FakePort:
    """Records each report. `on_open` and `on_message` may give orders to the outlet at once."""

    def __init__(self) -> None:
        self.openings: dict[ChannelId, Opening] = {}
        self.outlets: dict[ChannelId, Outlet] = {}
        self.messages: list[tuple[ChannelId, bytes]] = []
        self.closes: dict[ChannelId, Cause] = {}
        self.sent_bytes: dict[ChannelId, int] = {}
        self.log: list[tuple[str, ChannelId]] = []
        self.on_open: Callable[[ChannelId, Opening, Outlet], None] = lambda channel, opening, outlet: None
        self.on_message: Callable[[ChannelId, bytes, Outlet], None] = lambda channel, message, outlet: None
        self._changed = anyio.Event()

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        channel = ChannelId(len(self.openings) + 1)
        self.openings[channel] = opening
        self.outlets[channel] = outlet
        self._record("open", channel)
        self.on_open(channel, opening, outlet)
        return channel

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        channel = self.open(opening, outlet)
        assert isinstance(outlet, Exchange)
        if not outlet.is_ended:  # messages for a closed channel are ignored
            self.message(channel, message)
        return channel

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        raise AssertionError("nothing was dialled")

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        raise AssertionError("nothing was dialled")

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        raise AssertionError("nothing was dialled")

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        raise AssertionError("nothing was dialled")

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        raise AssertionError("nothing was dialled")

    def part(self, channel: ChannelId, pieces: tuple[bytes, ...], **options: object) -> None:
        raise AssertionError("nothing was dialled")

    def message(self, channel: ChannelId, message: bytes) -> None:
        assert channel not in self.closes
        self.messages.append((channel, message))
        self._record("message", channel)
        self.on_message(channel, message, self.outlets[channel])

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        assert channel not in self.closes
        self.sent_bytes[channel] = self.sent_bytes.get(channel, 0) + size_bytes

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        self.sent(channel, size_bytes)
        self.closed(channel, Cause(End.DONE))

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        assert channel not in self.closes, "a channel ends once"
        self.closes[channel] = cause
        self._record("closed", channel)

    def _record(self, what: str, channel: ChannelId) -> None:
        self.log.append((what, channel))
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not condition():
                await self._changed.wait()

    async def wait_closed(self, channel: int) -> End:
        await self.until(lambda: ChannelId(channel) in self.closes)
        return self.closes[ChannelId(channel)].end

    async def wait_message(self, count: int = 1) -> None:
        await self.until(lambda: len(self.messages) >= count)

    async def wait_open(self, count: int = 1) -> None:
        await self.until(lambda: len(self.openings) >= count)

    def file_outlet(self, channel: int) -> FileExchange:
        outlet = self.outlets[ChannelId(channel)]
        assert isinstance(outlet, FileExchange)
        return outlet


class FakeFiles:
    """Stores what is uploaded in `taken`, and serves `content` in pieces of `piece` bytes."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.content_type = ""
        self.stop_after_bytes: int | None = None
        self.refusal: Exception | None = None
        self.was_cancelled = False
        self.content = b""
        self.piece = 7
        self.given_chunks = 0
        self.is_released = False
        self.break_at: int | None = None

    async def take_in(self, order: Receive, content_type: str, body: AsyncIterator[bytes]) -> bytes:
        self.content_type = content_type
        size = 0
        try:
            async for data in body:
                self.taken.append(data)
                size += len(data)
                if self.stop_after_bytes is not None and size >= self.stop_after_bytes:
                    break
        except BaseException:
            self.was_cancelled = True
            raise
        if self.refusal is not None:
            raise self.refusal
        return b'{"files":[]}'

    async def append(self, order: Append, body: AsyncIterator[bytes], report: Callable[[bytes], None]) -> None:
        """Reports the number of bytes so far, with an exclamation mark once the upload is complete."""
        size, end = 0, "?"
        try:
            async for data in body:
                self.taken.append(data)
                size += len(data)
            end = "!"
        finally:
            report(f"{size}{end}".encode())

    async def give_out(self, order: Serve, start: int, stop: int) -> AsyncIterator[bytes]:
        try:
            for at in range(start, stop, self.piece):
                if self.break_at is not None and at >= self.break_at:
                    raise OSError("disk on fire")
                self.given_chunks += 1
                yield self.content[at : min(at + self.piece, stop)]
        finally:
            self.is_released = True


@dataclass
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    informational: list[int] = field(default_factory=list)
    is_torn: bool = False


class Client:
    """Writes requests as bytes, and reads responses with h11."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes, *, cut: int | None = None) -> None:
        for start in range(0, len(data), cut or max(1, len(data))):
            with anyio.fail_after(WAIT_S):
                await self.stream.send(data[start : start + (cut or len(data))])
                for _ in range(3 if cut else 0):  # let the server read each piece by itself
                    await anyio.lowlevel.checkpoint()

    def expect(self, method: str) -> None:
        """Tells h11 of the request, which it needs to read the response."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._http.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self._http.send(h11.EndOfMessage())

    async def read_head(self, method: str = "POST") -> Answer:
        self.expect(method)
        informational = []
        while True:
            event = await self._event()
            if isinstance(event, h11.InformationalResponse):
                informational.append(event.status_code)
            else:
                assert isinstance(event, h11.Response), event
                return Answer(event.status_code, dict(event.headers), informational=informational)

    async def read_piece(self) -> bytes | None:
        """The next piece of a body; None at its end."""
        event = await self._event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return None

    async def read(self, method: str = "POST") -> Answer:
        answer = await self.read_head(method)
        try:
            while (piece := await self.read_piece()) is not None:
                answer.body += piece
        except h11.RemoteProtocolError:
            answer.is_torn = True
        return answer

    async def read_eof(self) -> bytes:
        """The rest of the stream."""
        rest = bytearray(self._http.trailing_data[0])
        with anyio.fail_after(WAIT_S):
            try:
                while True:
                    rest += await self.stream.receive()
            except anyio.EndOfStream:
                return bytes(rest)

    async def _event(self) -> h11.Event:
        with anyio.fail_after(WAIT_S):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                try:
                    self._http.receive_data(await self.stream.receive())
                except anyio.EndOfStream:
                    self._http.receive_data(b"")
        assert not isinstance(event, type)
        return event


class Failures(logging.Handler):
    """Collects the failures that the server logs when one of its connections fails by its own fault."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "a connection failed":
            self.seen.append(record.exc_info)


@dataclass
class World:
    server: HttpServer
    port: FakePort
    files: FakeFiles
    client: Client
    connect: Callable[[], Client]


async def pages(route: PageRoute, body: bytes) -> Refused:
    """The pages of a test: health is fine, a call echoes its body once that is complete, and one page is broken."""
    if route.page is Page.INFO:
        raise ZeroDivisionError
    return page_answer(200, body if route.is_posted else b"fine\n")


@asynccontextmanager
async def world(
    limits: Limits | None = None,
    *,
    surface: Surface = SURFACE,
    capacity: int = 1 << 20,
    forwarder: Forwarder | None = None,
    only_h11: bool = False,
    gate: Gate | None = None,
    wait_for_issuer: Callable[[Wanted], Awaitable[None]] | None = None,
    replicas: Replicas | None = None,
    hops: HopReceiver | None = None,
) -> AsyncIterator[World]:
    """A server, and one client connected to it.

    At the end the clients hang up. Every channel must then be closed, and no connection may have failed by itself.
    """
    port, files = FakePort(), FakeFiles()
    server = HttpServer(
        surface,
        port,
        files,
        limits or Limits(),
        pages=pages,
        forwarder=forwarder,
        only_h11=only_h11,
        gate=gate,
        wait_for_issuer=wait_for_issuer,
        replicas=replicas,
        hops=hops,
    )
    failures = Failures()
    logger = logging.getLogger("isthmus.http")
    logger.addHandler(failures)
    streams: list[MemoryStream] = []
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:

            def connect() -> Client:
                near, far = stream_pair(capacity)
                streams.append(near)
                if uses_protocols:
                    serve_transport(server, far, tasks)
                else:
                    tasks.start_soon(server.handle, far)
                return Client(near)

            yield World(server, port, files, connect(), connect)
            for stream in streams:
                stream.hang_up()
        logger.removeHandler(failures)
        assert set(port.closes) == set(port.openings)
        assert not failures.seen


def serve_transport(server: HttpServer, stream: MemoryStream, tasks: TaskGroup) -> None:
    """Serves streams as `HttpServer.handle` does."""
    from pipe_transport import PipeTransport

    async def connect(protocol: asyncio.Protocol) -> None:
        PipeTransport(stream, protocol)

    server.handle_transport(connect, tasks, lambda connection: None)


def post(body: bytes = b"{}", *extra: str, path: str = "/mcp", chunked: bool = False) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost:8932",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *extra,
    ]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (1, body[i : i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str = "/mcp", *extra: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost:8932", "Accept: text/event-stream", *extra]
    return "\r\n".join([*lines, "", ""]).encode()
