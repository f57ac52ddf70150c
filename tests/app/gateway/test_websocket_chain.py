"""Tests of two proxies joined by a WebSocket, HTTP before it and a child process behind: messages, and the loss of
the link."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from http_caller import PATIENCE_S, Caller, Json
from isthmus.app.config.settings import Core, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.base.errors import OUTCOME_UNKNOWN

pytestmark = pytest.mark.anyio

CHILD = Upstream(command=(sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py"), "box"))


@asynccontextmanager
async def proxy(upstream: Upstream) -> AsyncIterator[Gateway]:
    settings = Settings(core=Core(port=0, drain_seconds=5.0), servers=(Server(id="box", upstream=upstream, warm=0),))
    async with running(settings, listen=True, is_lasting=False) as gateway:
        yield gateway


@asynccontextmanager
async def chain(path: str = "/ws") -> AsyncIterator[tuple[Gateway, Gateway]]:
    """The proxy that clients call, and the one behind it whose server is a child process."""
    async with proxy(CHILD) as far:
        url = far.base_url.replace("http:", "ws:") + path
        async with proxy(Upstream(url=url)) as near:
            yield near, far


async def test_a_session_crosses_a_websocket() -> None:
    async with chain() as (near, far):
        callers = [Caller(f"{near.base_url}/mcp") for _ in range(2)]
        for caller in callers:
            assert (await caller.initialize())["serverInfo"]["name"] == "box"
            for text in ("héllo", "x" * 3_000_000):
                assert await caller.call("echo", text=text) == f"box says {text}"
        assert len(far.hub.child_pids) == 2, "each client session has a server of its own"
        assert far.hub.engine.session_count == 2
    assert not far.hub.child_pids


async def test_the_server_may_ask_and_report() -> None:
    async with chain("/ws/box") as (near, _):
        caller = Caller(f"{near.base_url}/mcp")
        await caller.initialize(sampling={})
        params = {"name": "ask", "arguments": {}}
        with anyio.fail_after(PATIENCE_S):
            async with caller.post(id=caller.next_id(), method="tools/call", params=params) as response:
                async for message in response.messages():
                    if message.get("method") == "sampling/createMessage":
                        content = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "asked"}}
                        await caller.send(id=message["id"], result=content)
                    elif "result" in message:
                        assert message["result"]["content"][0]["text"] == "asked"
                        return
    raise AssertionError("there was no answer")


@asynccontextmanager
async def relay(port: int) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port that forwards to another, and a function that cuts the connections through it."""
    scopes: list[anyio.CancelScope] = []

    async def pump(source: ByteStream, sink: ByteStream, scope: anyio.CancelScope) -> None:
        try:
            while True:
                await sink.send(await source.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()

    async def handle(near: ByteStream) -> None:
        async with near, await anyio.connect_tcp("127.0.0.1", port) as far, anyio.create_task_group() as tasks:
            scopes.append(tasks.cancel_scope)
            tasks.start_soon(pump, near, far, tasks.cancel_scope)
            tasks.start_soon(pump, far, near, tasks.cancel_scope)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as serving:
        serving.start_soon(listener.serve, handle)
        yield listener.extra(SocketAttribute.local_port), lambda: [scope.cancel() for scope in scopes] and None
        serving.cancel_scope.cancel()


async def test_a_lost_socket_settles_the_call_and_the_next_one_works(tmp_path: Path) -> None:
    answers: list[Json] = []
    started = tmp_path / "started"
    async with proxy(CHILD) as far, relay(urlsplit(far.base_url).port or 0) as (number, cut):
        async with proxy(Upstream(url=f"ws://127.0.0.1:{number}/ws")) as near:
            caller = Caller(f"{near.base_url}/mcp")
            await caller.initialize()
            await caller.call("echo", text="once")

            async def call() -> None:
                arguments = {"started": str(started), "until": str(tmp_path / "go")}
                answers.append(await caller.request("tools/call", {"name": "wait", "arguments": arguments}))

            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    while not started.exists():  # noqa: ASYNC110
                        await anyio.sleep(0.005)
                    cut()
            (tmp_path / "go").touch()  # the remaining waiters need not wait
            assert answers[0]["error"]["code"] == OUTCOME_UNKNOWN
            assert "the server hung up without closing the WebSocket" in json.dumps(answers)
            assert await caller.call("echo", text="again") == "box says again"


async def test_a_proxy_that_stops_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with chain() as (near, far):
        await Caller(f"{near.base_url}/mcp").initialize()
        with anyio.fail_after(PATIENCE_S):
            await far.hub.drain(1.0)
            while "upstream lost" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.005)
    assert "upstream lost: the server closed with 1001: the proxy is shutting down" in caplog.text


@pytest.mark.parametrize(
    "path, reason",
    [
        ("/nothing", "got HTTP status 404, expected success; is the path of its URL right?"),
        (None, "connection refused"),
    ],
)
async def test_the_reason_of_a_failed_join_is_reported(path: str | None, reason: str) -> None:
    async with proxy(CHILD) as far:
        url = "ws://127.0.0.1:9/" if path is None else far.base_url.replace("http:", "ws:") + path
        async with proxy(Upstream(url=url)) as near:
            with pytest.raises(AssertionError) as raised:
                await Caller(f"{near.base_url}/mcp").initialize()
    assert f"the server could not be connected to: {reason}" in str(raised.value)
