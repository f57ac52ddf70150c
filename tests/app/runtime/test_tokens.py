"""Tests of a proxy with a server that wants tokens: what its clients get, with one and without."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from client_dialer import reply
from client_fakes import Peer, serving
from isthmus.app.disk.workspaces import Workspaces
from isthmus.app.runtime.hub import Hub
from isthmus.core.base.errors import UPSTREAM_UNAVAILABLE
from isthmus.core.base.events import PipeOpening
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.bulk import BulkEngine
from isthmus.storage.memory import MemoryBlobs, MemoryRecords
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.memory import MemoryClient
from token_fakes import CHALLENGE, WANTED, FakeTokens, authorizations, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PATIENCE_S = 30.0
Json = dict[str, Any]
LOGIN = {
    "code": UPSTREAM_UNAVAILABLE,
    "message": WANTED.message,
    "data": {"httpStatus": 401, "login": {"command": "isthmus login files"}},
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class McpServer:
    """A server of Streamable HTTP with sessions. It refuses each request without an accepted token."""

    def __init__(self, *accepted: bytes) -> None:
        self.accepted = self.accepted_next = set(accepted)  # the next: from a request of an unknown session on
        self.sessions = 0
        self.known: set[bytes] = set()
        self.calls: list[bytes] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            head, _, body = request.partition(b"\r\n\r\n")
            if not self.accepted.issuperset(authorizations(request) or [b""]):
                await peer.send(refusal(b"401 Unauthorized", CHALLENGE))
            elif not head.startswith(b"POST"):
                await peer.send(refusal(b"405 Method Not Allowed", body=b""))
            else:
                await peer.send(self.answer(head.lower(), json.loads(body)))

    def answer(self, head: bytes, message: Json) -> bytes:
        result: Json = {}
        if message["method"] == "initialize":
            self.sessions += 1
            self.known = {b"mcp-session-id: s%d" % self.sessions}
            info = {"name": "files", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif not any(known in head for known in self.known):
            self.accepted = self.accepted_next
            return refusal(b"404 Not Found", body=b"no such session")
        elif "id" not in message:
            return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        elif message["method"] == "tools/call":
            self.calls.append(message["params"]["name"].encode())
            result = {"content": [{"type": "text", "text": "done"}]}
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        return reply(text, b"200 OK", b"Mcp-Session-Id: s%d" % self.sessions)


class Client:
    def __init__(self, hub: Hub) -> None:
        self.peer = MemoryClient(hub)
        self.peer.open(PipeOpening(server="files"))
        self._last_id = 0

    async def request(self, method: str, params: Json) -> Json:
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self.peer.say(json.dumps(message).encode())
        while True:
            answer: Json = json.loads(await self.peer.receive())
            if answer.get("id") == self._last_id:
                return answer

    async def initialize(self) -> Json:
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = await self.request("initialize", params)
        self.peer.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer

    async def call(self, name: str, **more: Json) -> Json:
        return await self.request("tools/call", {"name": name, "arguments": {}, **more})


@asynccontextmanager
async def proxy(
    root: Path, script: Callable[[Peer], Awaitable[None]], tokens: FakeTokens, *, limits: Limits | None = None
) -> AsyncIterator[Hub]:
    # A pause after a failure that would last longer than any test.
    limits = limits or Limits(restart_backoff_s=1000, restart_backoff_max_s=1000)
    workspaces = Workspaces(
        str(root / "workspaces"),
        MemoryRecords(),
        MemoryBlobs(),
        artifact_roots={},
        working_directories={},
        limits=limits,
        tmp_root=str(root),
    )
    await workspaces.start_up()
    plan = Plan(
        servers=(ServerPlan(id="files", kind=Kind.HTTP),),
        workspaces_path=workspaces.root,
        fallback_base_url="http://127.0.0.1:1",
        link_keys=(bytes(32),),
    )

    def engine(unix_at_zero: float) -> BulkEngine:
        return BulkEngine(
            plan, entropy=random.Random(1).randbytes, unix_at_zero=unix_at_zero, has_storage=True, limits=limits
        )

    with anyio.fail_after(PATIENCE_S):
        async with serving(script) as server, anyio.create_task_group() as tasks:
            upstreams = {"files": Endpoint(server.url)}
            hub = Hub(
                engine, plan, upstreams, workspaces, limits, log_server=lambda server, line: None,
                tokens={"files": lambda _: tokens},
            )  # fmt: skip
            await tasks.start(hub.run)
            yield hub
            await hub.stop(0)


async def test_calls_get_their_tokens_and_a_renewed_one_after_a_refusal(tmp_path: Path) -> None:
    tokens, script = FakeTokens(b"Bearer 1", b"Bearer 2", b"Bearer 3"), McpServer(b"Bearer 2")
    async with proxy(tmp_path, script, tokens) as hub:
        client = Client(hub)
        assert "result" in await client.initialize()
        assert "result" in await client.call("one")
        script.accepted = {b"Bearer 3"}
        assert "result" in await client.call("two")
        assert "result" in await client.call("three")
    assert script.calls == [b"one", b"two", b"three"] and script.sessions == 1
    assert [value for value, _, _ in tokens.refusals] == [b"Bearer 1", b"Bearer 2"]


@pytest.mark.parametrize("values", [[], [b"Bearer old"], [b"Bearer old", b"Bearer older"]])
async def test_a_client_without_a_login_is_told_how_to_log_in(tmp_path: Path, values: list[bytes]) -> None:
    """The login is told to a client of sessions, to one without, and to each that comes later; then it is there."""
    tokens, script = FakeTokens(*values), McpServer(b"Bearer new")
    async with proxy(tmp_path, script, tokens) as hub:
        assert (await Client(hub).initialize())["error"] == LOGIN
        stateless = Client(hub)
        for _ in range(3):
            assert (await stateless.call("one", _meta=META))["error"] == LOGIN
        tokens.values = [b"Bearer new"]
        client = Client(hub)
        assert "result" in await client.initialize()
        assert "result" in await client.call("two")
        assert "result" in await stateless.call("three", _meta=META)
    assert script.calls == [b"two", b"three"]


async def test_a_session_outlives_a_login_that_was_lost(tmp_path: Path) -> None:
    tokens, script = FakeTokens(b"Bearer 1"), McpServer(b"Bearer 1")
    async with proxy(tmp_path, script, tokens) as hub:
        client = Client(hub)
        assert "result" in await client.initialize()
        for lost in ([], [b"Bearer 0"]):  # it is known to be gone; the server finds it out
            tokens.values = list(lost)
            assert (await client.call("lost"))["error"] == LOGIN
            tokens.values = [b"Bearer 1"]
            assert "result" in await client.call("found")
    assert script.calls == [b"found", b"found"] and script.sessions == 1


async def test_a_new_session_is_tried_as_soon_as_there_is_a_login(tmp_path: Path) -> None:
    """A server that forgot the session, without a login: there is no pause before the next handshake."""
    tokens, script = FakeTokens(b"Bearer 1"), McpServer(b"Bearer 1")
    async with proxy(tmp_path, script, tokens) as hub:
        client = Client(hub)
        assert "result" in await client.initialize()
        assert "result" in await client.call("first")
        script.known, script.accepted_next = set(), set()
        for _ in range(2):
            assert (await client.call("lost"))["error"] == LOGIN
        tokens.values, script.accepted = [b"Bearer 1"], {b"Bearer 1"}
        assert "result" in await client.call("found")
    assert script.calls == [b"first", b"found"] and script.sessions == 2
