"""A server that knows one tool, a client of it, and a proxy between them: all in one loop, over real sockets."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

import msgspec
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.profile_settings import Profile
from isthmus.app.config.settings import Core, Server, Settings, Storage, Upstream
from isthmus.app.config.telemetry_settings import Telemetry
from isthmus.app.gateway import Gateway, running
from isthmus.app.workers.listening import PORT
from isthmus.app.workers.messages import Handover, hand_over
from isthmus.app.workers.worker import Worker

PATIENCE_S: Final = 30.0

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
        self.unread = b""

    def data_received(self, data: bytes) -> None:
        self.unread += data
        while (end := self.unread.find(b"\r\n\r\n") + 4) > 3:
            found = _LENGTH.search(self.unread, 0, end)
            stop = end + (int(found[1]) if found else 0)
            if len(self.unread) < stop:
                return
            head, body, self.unread = self.unread[:end], self.unread[end:stop], self.unread[stop:]
            self.transport.write(self.reply(head, body))

    def reply(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"POST"):
            return b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
        found = _ID.search(body)
        if found is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        session = b"" if self.is_modern else b"mcp-session-id: s\r\n"
        result = self.answer(body, found[1])
        form = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
        return form % (session, len(result), result)

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
    """A server that sends progress first: all at once, or a step whenever the test lets it."""

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

    def send_step(self) -> None:
        self.transport.write(self.due.pop(0))


class PacedStub(TellingStub):
    at_once = False


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_modern: bool, tool: bytes = b"echo"
    ) -> None:
        self.reader, self.writer, self.is_modern, self.tool = reader, writer, is_modern, tool
        self.headers = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"

    async def open(self) -> None:
        if self.is_modern:
            form = b"mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: %b\r\n"
            self.headers += form % self.tool
            return
        head, _ = await self.post(INITIALIZE)
        found = re.search(rb"mcp-session-id: *([^\r]+)", head, re.IGNORECASE)
        assert found is not None
        self.headers += b"mcp-session-id: %b\r\nmcp-protocol-version: 2025-11-25\r\n" % found[1]
        await self.post(INITIALIZED)

    async def call(self, number: int) -> None:
        message = (CALL % number).replace(b'"echo"', b'"%b"' % self.tool)
        _, body = await self.post(message[:-2] + META if self.is_modern else message)
        assert b'"hello"' in body and b'"result"' in body, body

    async def call_for_progress(self, number: int) -> None:
        """Makes a call with progress. Where that is due step by step, the next step is let out when one has come."""
        message = CALL % number
        body = message[:-2] + b',"_meta":{"progressToken":%d}}}' % number
        form = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n%b"
        self.writer.write(form % (self.headers, len(body), body))
        await self.reader.readuntil(b"\r\n\r\n")
        for step in range(EVENTS):
            event = await self.reader.readuntil(b"}}\n\n")
            assert b'"progressToken":%d,"progress":%d}' % (number, step) in event, event
            if TellingStub.latest.due:
                TellingStub.latest.send_step()
        assert b'"hello"' in await self.reader.readuntil(b"\r\n0\r\n\r\n")

    async def post(self, body: bytes, *, method: bytes = b"POST") -> tuple[bytes, bytes]:
        form = b"%b /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n%b"
        self.writer.write(form % (method, self.headers, len(body), body))
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        return head, await self.reader.readexactly(int(found[1]) if found else 0)


@asynccontextmanager
async def connected(
    stub: type[Stub], *, is_modern: bool, profile: int = 0, telemetry: Telemetry | None = None
) -> AsyncIterator[Client]:
    """A client of a proxy of a server, all in this loop, with connections that are open. With `profile`, the server is
    one of so many of a profile; the others are never needed."""
    server = await asyncio.get_running_loop().create_server(stub, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        others = [f"other-{number}" for number in range(1, profile)]
        settings = Settings(
            core=Core(port=0, drain_seconds=1.0),
            storage=Storage(root="/nonexistent"),
            servers=(
                Server(id="a", upstream=Upstream(url=url)),
                *(Server(id=id, upstream=Upstream(command=("/nonexistent",))) for id in others),
            ),
            profiles=(Profile(id="all", servers=("a", *others)),) if profile else (),
            telemetry=telemetry or Telemetry(),
        )
        async with running(settings, listen=True, is_lasting=False) as gateway:
            port = int(gateway.base_url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                client = Client(reader, writer, is_modern=is_modern, tool=b"a__echo" if profile else b"echo")
                await client.open()
                yield client
            finally:
                writer.close()


@asynccontextmanager
async def connected_through_another(stub: type[Stub], folder: Path, count: int) -> AsyncIterator[list[Client]]:
    """Clients whose sessions are at one of two workers, and whose requests come to the other, all in this loop."""
    server = await asyncio.get_running_loop().create_server(stub, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        settings = Settings(
            core=Core(port=0, drain_seconds=1.0),
            storage=Storage(root=str(folder / "data")),
            servers=(Server(id="a", upstream=Upstream(url=url)),),
        )
        async with _worker(settings, "w1", folder) as owner, _worker(settings, "w2", folder) as other:
            ports = [int(gateway.base_url.rpartition(":")[2]) for gateway in (owner, other)]
            clients = []
            for _ in range(count):
                client = Client(*await asyncio.open_connection("127.0.0.1", ports[0]), is_modern=False)
                await client.open()
                client.writer.close()
                client.reader, client.writer = await asyncio.open_connection("127.0.0.1", ports[1])
                clients.append(client)
            try:
                yield clients
            finally:
                for client in clients:
                    client.writer.close()


@asynccontextmanager
async def _worker(settings: Settings, tag: str, folder: Path) -> AsyncIterator[Gateway]:
    """A worker in this process, with a port of its own."""
    cluster = Cluster(replica=tag, socket=str(folder / f"{tag}.sock"), secret="a-secret-of-all-workers")
    settings = msgspec.structs.replace(settings, cluster=cluster)
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    sockets = {PORT: (listener.detach(),)}
    supervisor, channel = socket.socketpair()
    with supervisor, channel:
        handover = Handover(settings, tag, str(folder), base_url, sockets, probes=False, count=2)
        supervisor.sendall(hand_over(handover))
        async with running(settings, listen=True, is_lasting=True, worker=Worker(channel)) as gateway:
            yield gateway
