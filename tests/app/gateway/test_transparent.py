"""Tests of transparent servers as they are run: from a configuration, over real sockets, with bodies of any size."""

from __future__ import annotations

import json
import socket
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream
from http_caller import PATIENCE_S, Caller, fetch, requested
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.plan import to_forward_target, to_header_rules
from isthmus.app.config.settings import Core, Forwarding, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.app.runtime.probe import ServerReport
from isthmus.core.wire.http.reverse_proxy import HeaderRules
from screens import described

LARGE_BYTES = 64 << 20
PIECE = bytes(range(256)) * 256

Serve = Callable[[SocketStream], Awaitable[None]]


@pytest.fixture(params=["protocols", "anyio"], autouse=True)
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test of this file with both drivers."""
    monkeypatch.setenv("ISTHMUS_DRIVER", request.param)


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    """A server of our own on loopback, which serves each connection with `serve`."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                await serve(stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    with anyio.fail_after(PATIENCE_S):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handle)
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/base"
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def transparent(url: str, **options: object) -> AsyncIterator[Gateway]:
    far = Server(id="far", upstream=Upstream(url=url), inspect=False, **options)  # type: ignore[arg-type]
    settings = Settings(core=Core(port=0, drain_seconds=5.0), servers=(far,))
    async with running(settings, listen=True, is_lasting=False) as gateway:
        yield gateway


async def read_head(stream: SocketStream) -> tuple[bytes, bytes]:
    """A head, and what has come of the rest."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


async def connect(gateway: Gateway) -> SocketStream:
    host, _, port = gateway.base_url.removeprefix("http://").partition(":")
    return await anyio.connect_tcp(host, int(port))


def request(path: str = "/mcp/far", *lines: str, method: str = "POST", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: localhost", *lines, "", ""]).encode()


# --- Over sockets ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_large_bodies_cross_in_little_memory() -> None:
    """The bodies cross at the same time in both directions, and whole."""
    taken = 0
    is_taken = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        nonlocal taken
        head, rest = await read_head(stream)
        assert b"content-length: %d" % LARGE_BYTES in head
        taken = len(rest)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_large, stream)
            while taken < LARGE_BYTES:
                taken += len(await stream.receive(1 << 18))
        is_taken.set()

    async def send_large(stream: SocketStream) -> None:
        for _ in range(LARGE_BYTES // len(PIECE)):
            await stream.send(PIECE)

    async with server(serve) as url, transparent(url) as gateway, await connect(gateway) as client:
        tracemalloc.start()
        try:
            async with anyio.create_task_group() as tasks:
                await client.send(request("/mcp", f"Content-Length: {LARGE_BYTES}"))
                tasks.start_soon(send_large, client)
                _, rest = await read_head(client)
                received = len(rest)
                while received < LARGE_BYTES:
                    received += len(await client.receive(1 << 18))
                await is_taken.wait()
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (taken, received) == (LARGE_BYTES, LARGE_BYTES)
        assert peak_bytes < LARGE_BYTES // 8


@pytest.mark.anyio
async def test_a_kept_connection_that_was_closed_meanwhile_is_not_used() -> None:
    """A request that must not run twice goes on a new connection, too."""
    connections = 0

    async def serve(stream: SocketStream) -> None:
        nonlocal connections
        connections += 1
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%02d" % connections)

    async with server(serve) as url, transparent(url) as gateway:
        for n in range(1, 4):
            async with requested(f"{gateway.base_url}/mcp", "POST") as response:
                assert await response.body() == b"%02d" % n
            await anyio.sleep(0.05)  # for the end of the stream to arrive


@pytest.mark.anyio
async def test_a_kept_connection_is_used_again() -> None:
    async def serve(stream: SocketStream) -> None:
        for n in range(3):
            await read_head(stream)
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % n)

    async with server(serve) as url, transparent(url) as gateway:
        for n in range(3):
            async with requested(f"{gateway.base_url}/mcp", "POST") as response:
                assert await response.body() == b"%d" % n


@pytest.mark.anyio
async def test_an_old_client_sees_a_cut_as_a_cut() -> None:
    """An HTTP/1.0 client learns where a response ends from the connection's end only."""

    async def serve(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")

    async with server(serve) as url, transparent(url) as gateway, await connect(gateway) as client:
        await client.send(request(version="1.0"))
        with pytest.raises(anyio.BrokenResourceError):
            while True:
                await client.receive()


@pytest.mark.anyio
async def test_a_call_may_finish_while_the_proxy_stops() -> None:
    is_asked, may_answer = anyio.Event(), anyio.Event()

    async def serve(stream: SocketStream) -> None:
        await read_head(stream)
        is_asked.set()
        await may_answer.wait()
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")

    async def answer_later() -> None:
        await anyio.sleep(0.1)
        may_answer.set()

    async with server(serve) as url, anyio.create_task_group() as tasks:
        async with transparent(url) as gateway:
            client = await connect(gateway)
            await client.send(request())
            await is_asked.wait()
            tasks.start_soon(answer_later)
        head, body = await read_head(client)
        assert b"connection: close" in head and (body or await client.receive()) == b"done"
        await client.aclose()


@pytest.mark.anyio
async def test_the_forwarded_headers_name_the_client() -> None:
    heads = []

    async def serve(stream: SocketStream) -> None:
        heads.append((await read_head(stream))[0].decode())
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    rules = Forwarding(x_forwarded=True, forwarded=True, set={"X-Key": "ours"}, deny=("user-*",))
    async with server(serve) as url, transparent(url, forwarding=rules) as gateway:
        async with requested(f"{gateway.base_url}/mcp", "POST", {"user-agent": "x", "x-key": "theirs"}) as response:
            assert response.status == 200
    where = gateway.base_url.removeprefix("http://")
    assert "x-forwarded-for: 127.0.0.1\r\n" in heads[0] and f"x-forwarded-host: {where}\r\n" in heads[0]
    assert f'forwarded: for=127.0.0.1;host="{where}";proto=http' in heads[0]
    assert "x-key: ours" in heads[0] and "theirs" not in heads[0] and "user-agent" not in heads[0]


@pytest.mark.anyio
async def test_other_servers_are_not_affected_by_a_transparent_one(tmp_path: Path) -> None:
    """Another server of the same proxy is served by the engine, and the transparent one has no part in that."""
    toolbox = str(Path(__file__).parents[1] / "peers" / "toolbox.py")

    async def serve(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nraw")

    async with server(serve) as url:
        servers = (
            Server(id="near", upstream=Upstream(command=(sys.executable, toolbox, "near"))),
            Server(id="far", upstream=Upstream(url=url), inspect=False),
        )
        settings = Settings(core=Core(port=0, drain_seconds=5.0), servers=servers)
        async with running(settings, listen=True, is_lasting=False) as gateway:
            assert [plan.id for plan in gateway.plan.servers] == ["near"]
            caller = Caller(f"{gateway.base_url}/mcp/near")
            await caller.initialize()
            assert await caller.call("echo", text="x") == "near says x"
            async with requested(f"{gateway.base_url}/mcp/far/anything", "PUT") as response:
                assert await response.body() == b"raw"
            assert (await fetch(f"{gateway.base_url}/mcp"))[0] == 404
            assert await gateway.forwarder.probe("far") == ""


@pytest.mark.anyio
async def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with transparent(f"http://127.0.0.1:{port}/x") as gateway:
        status, body = await fetch(f"{gateway.base_url}/mcp", "POST")
        assert (status, body["code"]) == (502, "upstream_unreachable")
        reason = f"connection refused by 127.0.0.1:{port}; is the server running?"
        assert body["detail"] == reason == await gateway.forwarder.probe("far")


# --- Configuration --------------------------------------------------------------------------------------------------


CONSUMER = {"type": "upload_consumer", "tools": ["t"], "file_path_argument": "p"}


def read(server: dict[str, object], core: dict[str, object] | None = None) -> Settings:
    document = {"core": core or {}, "servers": [{"id": "far", **server}]}
    return loads(json.dumps(document), "json", "/etc", {})


def far(url: str = "https://up.example/base", **more: object) -> dict[str, object]:
    return {"upstream": {"url": url, "headers": {"Authorization": "Bearer x", "X-Both": "1"}}, "inspect": False, **more}


@pytest.mark.parametrize(
    "server, complaint",
    [
        ({"upstream": {"command": ["x"]}, "inspect": False}, "servers[0].inspect: got false for a command, expected"),
        (
            far(adapters=[{"type": "upload_consumer", "tools": ["t"], "file_path_argument": "p"}]),
            "servers[0].adapters: got",
        ),
        (far(artifact_roots=["/x"]), "servers[0].artifact_roots: got some, expected none: with inspect: false"),
        (far(hard_linked_roots=["/x"]), "servers[0].hard_linked_roots: got some, expected none: with inspect: false"),
        (far(tools={"include": ["a"]}), "servers[0].tools: got a filter, expected none: with inspect: false"),
        (far(prompts={"exclude": ["a"]}), "servers[0].prompts: got a filter"),
        (far(resources={"include": ["x://*"]}), "servers[0].resources: got a filter"),
        (
            {"upstream": {"url": "https://h/mcp", "pass_headers": ["X-A"]}, "inspect": False},
            "servers[0].upstream.pass_headers: got",
        ),
        (far(start_timeout_seconds=3), "servers[0].start_timeout_seconds: got 3, expected none"),
        (far(tool_time_limits={"a": 3}), "servers[0].tool_time_limits: got"),
        (far(rate_limits=[{"calls": 1, "per_seconds": 1}]), "servers[0].rate_limits: got"),
        (far(cache=True), "servers[0].cache: got true, expected false with inspect: false: results are not read"),
        (
            far(inspect=True, forwarding={"forwarded": True}),
            "servers[0].forwarding: got it for a server that is inspected",
        ),
        (far(forwarding={"allow": ["a b"]}), "servers[0].forwarding.allow[0]: got"),
        (far(forwarding={"deny": ["x:"]}), "servers[0].forwarding.deny[0]: got"),
        (far(forwarding={"set": {"Host": "x"}}), "servers[0].forwarding.set: got header Host"),
        (far(forwarding={"set": {"X": "a\nb"}}), "servers[0].forwarding.set.X: got"),
        (far(forwarding={"dny": []}), "did you mean deny?"),
        (
            {"upstream": {"url": "https://h", "era": "stateless"}, "inspect": False},
            "expected auto with inspect: false: clients are not served in another era",
        ),
        (far(url="sse+http://h/ws"), "a URL without a transport beside inspect: false"),
        (far(url="unix:///run/s"), "a URL without a transport beside inspect: false"),
        (far(url="ftp://h/"), "https://, ws:// or wss:// URL with a host"),
    ],
)
def test_impossible_settings_are_refused(server: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(server)
    assert complaint in raised.value.message


@pytest.mark.parametrize(
    "url, base_url",
    [
        ("https://up.example/base", "https://up.example/base"),
        ("WSS://up.example:8443/ws?key=1#x", "https://up.example:8443/ws?key=1"),
        ("ws://ws.example", "http://ws.example"),
    ],
)
def test_the_settings_become_rules(url: str, base_url: str) -> None:
    forwarding = {"allow": ["Cookie", "X-*"], "deny": ["X-Not"], "set": {"x-both": "2"}, "forwarded": True}
    settings = read(far(url, forwarding=forwarding), {"public_base_url": "https://me.example/pre/"})
    (server,) = settings.servers
    target = to_forward_target(settings, server, b"key")
    assert (target.server, target.base_url, target.public_path) == ("far", base_url, "/pre")
    rules = to_header_rules(server)
    assert msgspec.structs.replace(rules, set=()) == HeaderRules(
        allow=("cookie", "x-*"), deny=("x-not",), forwarded=True
    )
    assert dict(rules.set) == {b"authorization": b"Bearer x", b"x-both": b"2"}


def test_the_screen_names_a_transparent_server() -> None:
    settings = read(far("https://up.example/base?key=secret"))
    (server,) = settings.servers
    lines = described(settings, server, ServerReport(id="far", is_transparent=True))
    assert lines == ["relayed  http  -", "    server  transparent, at https://up.example/base?…"]
    lines = described(settings, server, ServerReport(id="far", is_transparent=True, problem="gone"))
    assert lines == ["FAILED  http  -", "    FAILED  gone"]
