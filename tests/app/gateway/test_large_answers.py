"""Tests of large answers through the whole proxy, over real sockets and with both drivers: complete, or visibly cut
off."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest
from isthmus.app.config.settings import Core, Server, Settings, Storage, Upstream
from isthmus.app.gateway import running
from working_stub import CALL, Client, Stub

PATIENCE_S: Final = 60.0
SIZE_BYTES: Final = 2_000_000
LIST: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
BEHIND: Final = b'{"result":{"content":[{"type":"text","text":"%b"}]},"jsonrpc":"2.0","id":%b}'
BEFORE: Final = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"%b"}]}}'
TEXT: Final = b"".join(b"%07d " % number for number in range(SIZE_BYTES // 8))
HUGE_BYTES: Final = 40_000_000
"""More than sockets hold on the way."""
HUGE: Final = b"x" * HUGE_BYTES

CHILD: Final = """
import sys
text = b"".join(b"%07d " % number for number in range(%SIZE // 8))
for line in sys.stdin.buffer:
    if b'"id":' not in line:
        continue
    number = line.split(b'"id":')[1].split(b",")[0]
    said = b'{"content":[{"type":"text","text":"' + text + b'"}]}'
    if b'"initialize"' in line:
        said = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}'
    sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":' + number + b',"result":' + said + b"}\\n")
    sys.stdout.buffer.flush()
""".replace("%SIZE", str(SIZE_BYTES))


class LargeStub(Stub):
    """Answers calls with `TEXT`, its id before it or behind it, as much of it as its class says."""

    is_behind = False
    breaks_at: int | None = None

    def reply(self, head: bytes, body: bytes) -> bytes:
        whole = super().reply(head, body)
        if b'"tools/call"' not in body or self.breaks_at is None:
            return whole
        self.transport.write(whole[: self.breaks_at])
        self.transport.close()
        return b""

    def answer(self, body: bytes, id: bytes) -> bytes:
        if b'"tools/call"' not in body:
            return super().answer(body, id)
        return BEHIND % (TEXT, id) if self.is_behind else BEFORE % (id, TEXT)


class BehindStub(LargeStub):
    is_behind = True


class HugeStub(LargeStub):
    latest: HugeStub

    def answer(self, body: bytes, id: bytes) -> bytes:
        if b'"tools/call"' not in body:
            return super().answer(body, id)
        type(self).latest = self
        return BEFORE % (id, HUGE)

    @classmethod
    def unsent_bytes(cls) -> int:
        """The number of bytes of the answer that are not sent yet; 0 before it has begun."""
        return cls.latest.transport.get_write_buffer_size() if hasattr(cls, "latest") else 0


class BreakingStub(LargeStub):
    breaks_at = SIZE_BYTES // 2


@asynccontextmanager
async def proxied(upstream: Upstream) -> AsyncIterator[Client]:
    settings = Settings(
        core=Core(port=0, drain_seconds=1.0),
        storage=Storage(root="/nonexistent"),
        servers=(Server(id="a", upstream=upstream),),
    )
    async with running(settings, listen=True, is_lasting=False) as gateway:
        port = int(gateway.base_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            client = Client(reader, writer, is_modern=False)
            await client.open()
            await client.post(LIST)  # a call before its server is ready takes another way
            yield client
        finally:
            writer.close()


@asynccontextmanager
async def before(stub: type[Stub]) -> AsyncIterator[Client]:
    """A client of a proxy of an HTTP server."""
    server = await asyncio.get_running_loop().create_server(stub, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        async with proxied(Upstream(url=url)) as client:
            yield client


@pytest.fixture(params=["protocols", "anyio"], autouse=True)
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_DRIVER", request.param)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        with anyio.fail_after(PATIENCE_S):
            await test()

    anyio.run(within)


@pytest.mark.parametrize("stub", [LargeStub, BehindStub])
def test_a_large_answer_over_http_is_complete_under_its_clients_id(stub: type[Stub]) -> None:
    """The answers come one after the other on one connection, however the envelope is written."""

    async def test() -> None:
        async with before(stub) as client:
            for number in (41, 42):
                head, body = await client.post(CALL % number)
                assert head.startswith(b"HTTP/1.1 200 ")
                assert body == BEFORE % (b"%d" % number, TEXT)

    run(test)


def test_a_large_answer_of_a_process_is_complete() -> None:
    async def test() -> None:
        async with proxied(Upstream(command=(sys.executable, "-c", CHILD))) as client:
            for number in (41, 42):
                assert (await client.post(CALL % number))[1] == BEFORE % (b"%d" % number, TEXT)

    run(test)


def test_an_answer_that_its_server_breaks_off_is_cut_off() -> None:
    """The client was promised more, and sees the connection end; another call is served."""

    async def test() -> None:
        async with before(BreakingStub) as client:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.post(CALL % 41)
            host, port = client.writer.get_extra_info("peername")
            again = Client(*await asyncio.open_connection(host, port), is_modern=False)
            again.headers = client.headers
            head, _ = await again.post(b'{"jsonrpc":"2.0","id":42,"method":"ping"}')
            assert head.startswith(b"HTTP/1.1 200 ")
            again.writer.close()

    run(test)


def test_a_client_that_takes_nothing_holds_its_server_back() -> None:
    """The waiting data is bounded by the limits and by the buffers of sockets. When the client reads on, nothing is
    missing."""

    async def test() -> None:
        async with before(HugeStub) as client:
            call = CALL % 41
            form = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n%b"
            client.writer.write(form % (client.headers, len(call), call))
            unchanged, unsent_bytes = 0, 0
            while unchanged < 20:
                await asyncio.sleep(0.01)
                size_bytes = HugeStub.unsent_bytes()
                unchanged = unchanged + 1 if size_bytes and size_bytes == unsent_bytes else 0
                unsent_bytes = size_bytes
            assert unsent_bytes > HUGE_BYTES // 4
            head = await client.reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: *([0-9]+)", head, re.IGNORECASE)
            assert found is not None
            body = await client.reader.readexactly(int(found[1]))
            assert body == BEFORE % (b"41", HUGE)

    run(test)
