"""Tests of the engine in an ASGI application, by the ASGI interface and behind a real server."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ground import BLUNT, HELLO, ROOT, SEEN, TIMEOUT_S, WORKSHOP, at_rest, call, request, until, visit

Headers = dict[bytes, bytes]
ACCEPT = {b"accept": b"application/json, text/event-stream", b"content-type": b"application/json"}


class Exchange:
    """One request to the application, and its response.

    Args:
        pieces: the body.
        is_taken: False if the client does not read, so that `send` waits, as with full buffers.
        is_cut: True if the client leaves within its body.
    """

    def __init__(
        self,
        app: Any,
        method: str,
        path: str,
        headers: Headers,
        *pieces: bytes,
        is_taken: bool = True,
        is_cut: bool = False,
    ) -> None:
        self.status = 0
        self.headers: Headers = {}
        self.body = b""
        self.is_whole = False
        self._takes = asyncio.Event()
        if is_taken:
            self._takes.set()
        self._news = asyncio.Condition()
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for number, piece in enumerate(pieces or (b"",), 1):
            is_more = is_cut or number < len(pieces)
            self._incoming.put_nowait({"type": "http.request", "body": piece, "more_body": is_more})
        if is_cut:
            self.leave()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": list(({b"host": b"localhost"} | headers).items()),
        }
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        await self._takes.wait()
        async with self._news:
            if message["type"] == "http.response.start":
                assert not self.status
                self.status, self.headers = message["status"], dict(message["headers"])
            else:
                assert self.status
                assert not self.is_whole
                self.body += message.get("body", b"")
                self.is_whole = not message.get("more_body", False)
            self._news.notify_all()

    async def until(self, condition: Callable[[], object]) -> None:
        async with self._news:
            await self._news.wait_for(condition)

    def take(self) -> None:
        self._takes.set()

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> Any:
        """Returns the only message of the response, as JSON."""
        await self.task
        assert self.is_whole
        return json.loads(self.body) if self.headers[b"content-type"] == b"application/json" else self.events()[-1]

    def events(self) -> list[Any]:
        return [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: {")]


class Ground:
    """The application, started as a server starts it."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.session: Headers = {}
        self._incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._outgoing: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._life = asyncio.ensure_future(app({"type": "lifespan"}, self._incoming.get, self._outgoing.put))
        self._is_stopped = False

    async def start(self) -> None:
        self._incoming.put_nowait({"type": "lifespan.startup"})
        assert await self._outgoing.get() == {"type": "lifespan.startup.complete"}

    async def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        self._incoming.put_nowait({"type": "lifespan.shutdown"})
        assert await self._outgoing.get() == {"type": "lifespan.shutdown.complete"}
        await self._life

    def post(self, *pieces: bytes, **more: Any) -> Exchange:
        return Exchange(self.app, "POST", "/mcp", ACCEPT | self.session, *pieces, **more)

    def get(self) -> Exchange:
        return Exchange(self.app, "GET", "/mcp", ACCEPT | self.session)

    async def shake_hands(self) -> int:
        """Does the handshake. Returns the server's process id."""
        hello = self.post(request("hello", "initialize", **HELLO))
        version = (await hello.answer())["result"]["serverInfo"]["version"]
        assert hello.headers[b"content-type"] == b"application/json"
        revision = HELLO["protocolVersion"]
        assert isinstance(revision, str)
        self.session = {b"mcp-session-id": hello.headers[b"mcp-session-id"], b"mcp-protocol-version": revision.encode()}
        confirmed = self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        await confirmed.task
        assert (confirmed.status, confirmed.body, confirmed.is_whole) == (202, b"", True)
        return int(version)


Play = Callable[[Callable[[Ground], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module, with links in place of its copy of the core."""
    folder = tmp_path_factory.mktemp("application")
    (folder / "mcp_engine").symlink_to(ROOT / "core")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.syspath_prepend(ROOT / "examples")
        patch.setenv("MCP_COMMAND", shlex.join(BLUNT))
        yield importlib.import_module("asgi")
    for name in [name for name in sys.modules if name.split(".")[0] in ("asgi", "asgi_process", "mcp_engine")]:
        del sys.modules[name]


@pytest.fixture
def play(application: Any) -> Play:
    """A function that runs a scene and checks that nothing is left in the application."""

    async def whole(scene: Callable[[Ground], Awaitable[None]]) -> None:
        app = application.Gateway(application.Kind.PIPE, application.run)
        async with asyncio.timeout(TIMEOUT_S):
            ground = Ground(app)
            await ground.start()
            await scene(ground)
            await ground.stop()
        assert not app.channels

    return lambda scene: asyncio.run(whole(scene))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_session_from_its_first_request_to_its_last(play: Play) -> None:
    """Calls are answered with JSON, or with events if they report progress. DELETE ends the session and its server."""

    async def scene(ground: Ground) -> None:
        pid = await ground.shake_hands()
        first = ground.post(call(1, "echo", text="one"))
        assert (await first.answer())["result"]["content"][0]["text"] == "one"
        assert int(first.headers[b"content-length"]) == len(first.body)
        large = ground.post(call("large", "echo", text="x" * 2**17))
        assert len((await large.answer())["result"]["content"][0]["text"]) == 2**17
        poured = ground.post(call(2, "pour", count=3, size_bytes=1, tally="/dev/null"))
        assert (await poured.answer())["result"]["content"][0]["text"] == "poured 3"
        assert [event["params"]["progress"] for event in poured.events()[:-1]] == [1, 2, 3]
        end = Exchange(ground.app, "DELETE", "/mcp", ground.session)
        await end.task
        assert end.status == 204
        await asyncio.to_thread(until, lambda: is_gone(pid))
        late = ground.post(call(3, "echo", text="late"))
        await late.task
        assert late.status == 404

    play(scene)


def test_an_event_stream_opens_at_once_and_ends_with_its_client(play: Play) -> None:
    async def scene(ground: Ground) -> None:
        await ground.shake_hands()
        for _ in range(2):
            stream = ground.get()
            await stream.until(lambda stream=stream: stream.status == 200)
            assert stream.headers[b"content-type"] == b"text/event-stream"
            assert not stream.task.done()
            stream.leave()
            await stream.task
        assert len(ground.app.channels) == 1  # the server's

    play(scene)


def test_a_client_that_leaves_harms_no_other(play: Play) -> None:
    """The client leaves within its body, or while it waits. Nothing is left of its request but what its session
    owes."""

    async def scene(ground: Ground) -> None:
        await ground.shake_hands()
        torn = ground.post(b'{"jsonrpc"', is_cut=True)
        await torn.task
        assert torn.status == 0
        waiting = ground.post(call(1, "hang"))
        await asyncio.sleep(0)
        waiting.leave()
        await waiting.task
        assert (await ground.post(call(2, "echo", text="two")).answer())["result"]["content"][0]["text"] == "two"

    play(scene)


def test_requests_that_are_refused(play: Play) -> None:
    """The application refuses Host and Origin of other sites, and requests outside of the protocol."""
    refusals: list[tuple[str, str, Headers, int]] = [
        ("POST", "/mcp", {b"host": b"evil.example"}, 403),
        ("POST", "/mcp", {b"origin": b"http://evil.example"}, 403),
        ("POST", "/mcp", {b"content-type": b"text/plain"}, 415),
        ("PUT", "/mcp", {}, 405),
        ("POST", "/mcp/other?name=value", {}, 404),
        ("GET", "/elsewhere", {}, 404),
        ("GET", "/healthz", {}, 404),
        ("GET", "/mcp", {}, 400),
    ]

    async def scene(ground: Ground) -> None:
        for method, path, headers, status in refusals:
            exchange = Exchange(ground.app, method, path, ACCEPT | headers, b"{}")
            await exchange.task
            assert (exchange.status, exchange.is_whole) == (status, True), (method, path, headers)

    play(scene)


def test_a_body_that_is_too_large_is_refused(play: Play) -> None:
    async def scene(ground: Ground) -> None:
        await ground.shake_hands()
        large = ground.post(*[b" " * 2**20] * 17)
        await large.task
        assert large.status == 413
        assert str(2**24) in json.loads(large.body)["error"]["message"]

    play(scene)


def test_a_server_waits_for_a_client_that_does_not_read(play: Play, tmp_path: Path) -> None:
    """The server's output stops until the client reads, and then all of it arrives, in order."""
    count, tally = 128, tmp_path / "tally"

    async def scene(ground: Ground) -> None:
        await ground.shake_hands()
        message = call(1, "pour", count=count, size_bytes=64 * 1024, tally=str(tally))
        poured = ground.post(message, is_taken=False)
        assert await asyncio.to_thread(at_rest, tally) < count // 2
        poured.take()
        assert (await poured.answer())["result"]["content"][0]["text"] == f"poured {count}"
        assert [event["params"]["progress"] for event in poured.events()[:-1]] == list(range(1, count + 1))

    play(scene)


def test_the_death_of_a_server_is_answered(play: Play) -> None:
    async def scene(ground: Ground) -> None:
        await ground.shake_hands()
        assert "exit code 7" in (await ground.post(call(1, "die")).answer())["error"]["message"]
        assert (await ground.post(call(2, "echo", text="two")).answer())["result"]["content"][0]["text"] == "two"

    play(scene)


def test_a_shutdown_answers_what_is_open(play: Play) -> None:
    """The shutdown ends the servers too."""

    async def scene(ground: Ground) -> None:
        pid = await ground.shake_hands()
        waiting = ground.post(call(1, "hang"))
        await asyncio.sleep(0)
        await ground.stop()
        assert "error" in await waiting.answer()
        assert is_gone(pid)

    play(scene)


MOUNTED = """
from asgi import app as gateway
from starlette.applications import Starlette
from starlette.routing import Mount

app = Starlette(routes=[Mount("/tools", app=gateway)])
"""


@contextmanager
def started(command: Sequence[str], folder: Path, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program that says its URL on stderr or stdout, and that URL."""
    server = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert server.stdout is not None
    try:
        output = ""
        while (found := re.search(r"127\.0\.0\.1:\d+", output)) is None:
            assert select.select([server.stdout], [], [], TIMEOUT_S)[0]
            output += (read := os.read(server.stdout.fileno(), 65536).decode())  # past its buffer
            assert read, output
        yield server, f"http://{found[0]}"
    finally:
        server.kill()
        server.wait()


@pytest.mark.real
@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("transport", ["process", "url"])
def test_behind_uvicorn(folder: Path, transport: str, is_mounted: bool) -> None:
    """An official client gets from an official server what `test_sdk_pairs` expects, and both end in order."""
    (folder / "mounted.py").write_text(MOUNTED)
    app = "mounted:app" if is_mounted else "asgi:app"
    uvicorn = [sys.executable, "-m", "uvicorn", "--port", "0", "--no-access-log", app]
    with ExitStack() as stack:
        if transport == "process":
            env = {"MCP_COMMAND": shlex.join(WORKSHOP)}
        else:
            _, url = stack.enter_context(started([*WORKSHOP[:-1], "http"], folder))
            env = {"MCP_URL": f"{url}/mcp"}
        server, url = stack.enter_context(started(uvicorn, folder, **env))
        assert visit({"url": url + ("/tools/mcp" if is_mounted else "/mcp")}, folder) == SEEN
        server.terminate()
        rest, _ = server.communicate(timeout=TIMEOUT_S)
        assert "Application shutdown complete" in rest
        assert "Traceback" not in rest
