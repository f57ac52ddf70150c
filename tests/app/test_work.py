"""What one call costs, counted instead of timed: a change that makes the proxy do more for each fails here.

Calls of functions of the product are counted while a fixed conversation goes on over real sockets, and those of
coroutines among them: on asyncio a call in one era needs none. The numbers are what it takes today, with some room;
who needs fewer lowers them, so that the next one cannot use up what was saved.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, NamedTuple

import anyio
import isthmus.core
import pytest
from isthmus.app.service import running
from isthmus.app.settings import Core, Server, Settings, Storage, Upstream

PRODUCT: Final = tuple(
    f"{Path(isthmus.core.__file__).parent.parent / part}/" for part in ("app", "core", "storage", "transports")
)
PATIENCE_S: Final = 30.0
CALLS: Final = 50
"""Counted together, so that what happens now and then, like the Date of replies, hardly shows."""
ROOM: Final = 1.08
"""Interpreters differ a little in what they call a function."""

INITIALIZE: Final = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"client","version":"1"}}}'
)
INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
CALL: Final = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}'
)
META: Final = (
    b',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"client","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
)

HELLO: Final = (
    b'{"jsonrpc":"2.0","id":%b,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"stub","version":"1"}}}'
)
DISCOVERED: Final = (
    b'{"jsonrpc":"2.0","id":%b,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"stub","version":"1"},"resultType":"complete","ttlMs":0,"cacheScope":"private"}}'
)
TOOLS: Final = (
    b'{"jsonrpc":"2.0","id":%b,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],'
    b'"resultType":"complete","ttlMs":0,"cacheScope":"private"}}'
)
ECHO: Final = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"hello"}]%b}}'
UNKNOWN: Final = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}'

EVENTS: Final = 100
PROGRESS: Final = (
    b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress",'
    b'"params":{"progressToken":%b,"progress":%d}}\n\n'
)

_TOKEN: Final = re.compile(rb'"progressToken":([0-9]+)')
_ID: Final = re.compile(rb'"id":("[^"]*"|[0-9]+)')
_LENGTH: Final = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


# --- The server and the client --------------------------------------------------------------------------------------


class Stub(asyncio.Protocol):
    """An MCP server that knows one tool."""

    is_modern = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.held = b""

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n") + 4) > 3:
            found = _LENGTH.search(self.held, 0, end)
            stop = end + (int(found[1]) if found else 0)
            if len(self.held) < stop:
                return
            head, body, self.held = self.held[:end], self.held[end:stop], self.held[stop:]
            self.transport.write(self.reply(head, body))

    def reply(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"POST"):
            return b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
        found = _ID.search(body)
        if found is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        session = b"" if self.is_modern else b"mcp-session-id: s\r\n"
        said = self.answer(body, found[1])
        form = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
        return form % (session, len(said), said)

    def answer(self, body: bytes, id: bytes) -> bytes:
        if b'"tools/call"' in body:
            return ECHO % (id, b',"resultType":"complete"' if self.is_modern else b"")
        if b'"tools/list"' in body:
            return TOOLS % id
        known = b'"server/discover"' if self.is_modern else b'"initialize"'
        return (DISCOVERED if self.is_modern else HELLO) % id if known in body else UNKNOWN % id


class ModernStub(Stub):
    is_modern = True


class TellingStub(Stub):
    """One that tells of its progress first: all at once, or a step whenever it is asked to."""

    at_once = True
    latest: ClassVar[TellingStub]

    def reply(self, head: bytes, body: bytes) -> bytes:
        token = _TOKEN.search(body)
        if token is None:
            return super().reply(head, body)
        TellingStub.latest = self
        found = _ID.search(body)
        assert found is not None
        events = [PROGRESS % (token[1], step) for step in range(EVENTS)]
        begun, *self.due = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
        last = b"event: message\ndata: %b\n\n" % (ECHO % (found[1], b""))
        self.due.append(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
        if self.at_once:
            begun, self.due = b"".join((begun, *self.due)), []
        form = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%b"
        return form % begun

    def tell(self) -> None:
        self.transport.write(self.due.pop(0))


class PacedStub(TellingStub):
    at_once = False


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_modern: bool) -> None:
        self.reader, self.writer, self.is_modern = reader, writer, is_modern
        self.headers = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"

    async def open(self) -> None:
        if self.is_modern:
            self.headers += b"mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: echo\r\n"
            return
        head, _ = await self.post(INITIALIZE)
        found = re.search(rb"mcp-session-id: *([^\r]+)", head, re.IGNORECASE)
        assert found is not None
        self.headers += b"mcp-session-id: %b\r\nmcp-protocol-version: 2025-11-25\r\n" % found[1]
        await self.post(INITIALIZED)

    async def call(self, number: int) -> None:
        said = CALL % number
        _, body = await self.post(said[:-2] + META if self.is_modern else said)
        assert b'"hello"' in body and b'"result"' in body, body

    async def call_for_progress(self, number: int) -> None:
        """A call that is told of its progress; where that is due step by step, the next when one has come."""
        told = CALL % number
        body = told[:-2] + b',"_meta":{"progressToken":%d}}}' % number
        form = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n%b"
        self.writer.write(form % (self.headers, len(body), body))
        await self.reader.readuntil(b"\r\n\r\n")
        for step in range(EVENTS):
            event = await self.reader.readuntil(b"}}\n\n")
            assert b'"progressToken":%d,"progress":%d}' % (number, step) in event, event
            if TellingStub.latest.due:
                TellingStub.latest.tell()
        assert b'"hello"' in await self.reader.readuntil(b"\r\n0\r\n\r\n")

    async def post(self, body: bytes, *, method: bytes = b"POST") -> tuple[bytes, bytes]:
        form = b"%b /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n%b"
        self.writer.write(form % (method, self.headers, len(body), body))
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        return head, await self.reader.readexactly(int(found[1]) if found else 0)


@asynccontextmanager
async def connected(stub: type[Stub], *, is_modern: bool) -> AsyncIterator[Client]:
    """A client of a proxy of a server, all in this loop, with connections that are open."""
    server = await asyncio.get_running_loop().create_server(stub, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        settings = Settings(
            core=Core(port=0, drain_seconds=1.0),
            storage=Storage(root="/nonexistent"),
            servers=(Server(id="a", upstream=Upstream(url=url)),),
        )
        async with running(settings, listen=True, is_lasting=False) as service:
            port = int(service.base_url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                client = Client(reader, writer, is_modern=is_modern)
                await client.open()
                yield client
            finally:
                writer.close()


# --- Counting -------------------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """For one call: functions of the product that were called, and steps of coroutines among them."""

    functions: float
    steps: float


class Counter:
    def __init__(self) -> None:
        self.functions = self.steps = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            self.functions += 1
            self.steps += bool(frame.f_code.co_flags & inspect.CO_COROUTINE)


async def counted(call: Callable[[int], Awaitable[None]], calls: int = CALLS) -> Work:
    for number in range(1, 11):  # what is learnt once is learnt
        await call(number)
    counter, before = Counter(), sys.getprofile()
    sys.setprofile(counter)
    try:
        for number in range(11, 11 + calls):
            await call(number)
    finally:
        sys.setprofile(before)
    return Work(counter.functions / calls, counter.steps / calls)


BUDGETS: Final = {
    ("legacy", "legacy"): Work(167, 0),
    ("modern", "modern"): Work(183, 0),
    ("modern", "legacy"): Work(186, 0),
    ("legacy", "modern"): Work(177, 0),
}
"""By the eras of client and server, over HTTP."""


@pytest.mark.parametrize(("client_era", "server_era"), BUDGETS)
def test_a_call_over_http_takes_no_more_work_than_it_did(client_era: str, server_era: str) -> None:
    async def run() -> Work:
        stub = ModernStub if server_era == "modern" else Stub
        with anyio.fail_after(PATIENCE_S):
            async with connected(stub, is_modern=client_era == "modern") as client:
                return await counted(client.call)

    work, budget = anyio.run(run), BUDGETS[client_era, server_era]
    assert work.functions <= budget.functions * ROOM
    assert work.steps <= budget.steps + 0.2
    assert work.functions > budget.functions * 0.8, f"it takes less now, which is to be kept: write {work}"


PROGRESS_BUDGETS: Final = {TellingStub: Work(3.8, 0), PacedStub: Work(64.4, 0)}
"""For one step of progress, a hundredth of its call included: where all of them come at once, and one by one."""


@pytest.mark.parametrize("stub", PROGRESS_BUDGETS)
def test_a_step_of_progress_takes_no_more_work_than_it_did(stub: type[TellingStub]) -> None:
    async def run() -> Work:
        with anyio.fail_after(PATIENCE_S):
            async with connected(stub, is_modern=False) as client:
                return await counted(client.call_for_progress, calls=5)

    work, budget = anyio.run(run), PROGRESS_BUDGETS[stub]
    functions, steps = work.functions / EVENTS, work.steps / EVENTS
    assert functions <= budget.functions * ROOM
    assert steps <= budget.steps + 0.2
    assert functions > budget.functions * 0.8, f"it takes less now, which is to be kept: write {functions:.1f}"


class SessionStub(Stub):
    """It has a stream for each session."""

    def reply(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"GET"):
            return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        if head.startswith(b"DELETE"):
            return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        return super().reply(head, body)


SESSIONS: Final = 20
SESSION_BUDGET: Final = Work(1302, 3.0)
"""Of a session: opened, with one call in it, and closed. The steps make the connection of its stream to the server."""


def test_a_session_over_http_takes_no_more_work_than_it_did() -> None:
    async def live(client: Client, headers: bytes) -> None:
        client.headers = headers
        await client.open()
        await client.call(1)
        await client.post(b"", method=b"DELETE")

    async def run() -> Work:
        with anyio.fail_after(PATIENCE_S):
            async with connected(SessionStub, is_modern=False) as client:
                headers = client.headers[: client.headers.index(b"mcp-session-id")]
                for _ in range(5):
                    await live(client, headers)
                counter, before = Counter(), sys.getprofile()
                sys.setprofile(counter)
                try:
                    for _ in range(SESSIONS):
                        await live(client, headers)
                finally:
                    sys.setprofile(before)
                return Work(counter.functions / SESSIONS, counter.steps / SESSIONS)

    work = anyio.run(run)
    assert work.functions <= SESSION_BUDGET.functions * ROOM
    assert work.steps <= SESSION_BUDGET.steps + 0.5
    assert work.functions > SESSION_BUDGET.functions * 0.8, f"it takes less now, which is to be kept: write {work}"


IDLE_SESSIONS: Final = 200
IDLE_BUDGET_BYTES: Final = 8_350
"""What objects of the product take for a session that holds a stream to its client and one to its server."""
IDLE_ROOM: Final = 1.1
"""Interpreters differ in how large objects are."""


def test_an_idle_session_takes_no_more_memory_than_it_did_and_no_timer() -> None:
    async def open_one(client: Client, headers: bytes) -> asyncio.StreamWriter:
        client.headers = headers
        await client.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", client.writer.get_extra_info("peername")[1])
        said = client.headers.replace(b"application/json, text/event-stream", b"text/event-stream")
        writer.write(b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%b\r\n" % said)
        await reader.readuntil(b"\r\n\r\n")
        await client.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        return writer

    async def run() -> tuple[float, float]:
        with anyio.fail_after(PATIENCE_S):
            async with connected(SessionStub, is_modern=False) as client:
                headers = client.headers[: client.headers.index(b"mcp-session-id")]
                writers = [await open_one(client, headers) for _ in range(10)]
                timers, size_bytes = timers_of(asyncio.get_running_loop()), of_product()
                writers += [await open_one(client, headers) for _ in range(IDLE_SESSIONS)]
                timers = timers_of(asyncio.get_running_loop()) - timers
                size_bytes = of_product() - size_bytes
                for writer in writers:
                    writer.close()
                return size_bytes / IDLE_SESSIONS, timers / IDLE_SESSIONS

    tracemalloc.start()
    try:
        size_bytes, timers = anyio.run(run)
    finally:
        tracemalloc.stop()
    assert size_bytes <= IDLE_BUDGET_BYTES * IDLE_ROOM
    assert timers < 0.5
    assert size_bytes > IDLE_BUDGET_BYTES * 0.8, f"it takes less now, which is to be kept: write {size_bytes:.0f}"


def timers_of(loop: asyncio.AbstractEventLoop) -> int:
    return sum(not timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]


def of_product() -> int:
    gc.collect()
    kept = [tracemalloc.Filter(True, f"{folder}*") for folder in PRODUCT]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(kept).traces)
