"""Tests of WebSocket with the official SDK's own client and server through Isthmus.

`test_everything` shows that a client on a WebSocket sees the same of a server as any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import REAL, Process, launched, require, run_client, stdio_wrap, wrap

pytestmark = pytest.mark.real

PEER = Path(__file__).resolve().parent / "peers" / "socket_server.py"
BIG = 200_000
"""The size in characters of two bytes, which come twice. The SDK's client takes messages up to 1 MiB."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """The SDK's server, and its URL."""
    folder = tmp_path_factory.mktemp("socket-server")
    with launched([require(REAL / "client1/bin/python"), PEER], folder=folder, code=None) as process:
        yield process, process.wait_line(r"listening on (ws://\S+)")[1]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"op": "call", "name": tool, "arguments": arguments}


STEPS = [
    {"op": "ping"},
    call("echo", text="snow \u2603, null \u0000, face \U0001f600, line\u2028separator"),
    call("ask"),
    call("big", size=BIG),
    call("offered"),
    call("nothing"),
]


def results_of(target: str | list[str], client: str, folder: Path) -> list[Any]:
    """Returns the messages that a client with all capabilities gets, one entry a step."""
    events = run_client(client, target, [{"capabilities": "all", "steps": STEPS}], folder=folder)
    (begun,) = (event["initialize"] for event in events if event["kind"] == "begin")
    assert begun["serverInfo"]["name"] == "socket-server"
    results = [event["result"] for event in events if event["kind"] == "step"]
    assert len(results) == len(STEPS)
    return results


@pytest.mark.parametrize(
    "client, listener", [("python-1", "socket"), ("python-1", "http"), ("python-1", "stdio"), ("typescript-1", "http")]
)
def test_the_sdk_s_server_is_joined(server: tuple[Process, str], tmp_path: Path, client: str, listener: str) -> None:
    """`isthmus wrap ws://…` works, whatever transport its client speaks."""
    _, url = server
    if listener == "stdio":
        results = results_of(stdio_wrap(url), client, tmp_path)
    else:
        with wrap(url, folder=tmp_path, asks=True) as proxy:
            assert "server  socket-server " in proxy.banner and "  ready  websocket 20" in proxy.banner
            results = results_of(proxy.socket_url if listener == "socket" else proxy.url, client, tmp_path)
    texts = [result["content"][0]["text"] for result in results[1:]]
    assert texts[:4] == [STEPS[1]["arguments"]["text"], "canned", "é" * BIG, "mcp"]
    assert results[-1]["isError"]


def test_a_client_receives_the_same_as_directly(server: tuple[Process, str], tmp_path: Path) -> None:
    _, url = server
    with wrap(url, folder=tmp_path) as proxy:
        assert results_of(proxy.socket_url, "python-1", tmp_path) == results_of(url, "python-1", tmp_path)


def test_a_stopped_server_is_reported_to_the_client(tmp_path: Path) -> None:
    """The server is stopped while a client has a session. The next call fails, and says so."""
    python = require(REAL / "client1/bin/python")
    with launched([python, PEER], folder=tmp_path, code=None) as process:
        url = process.wait_line(r"listening on (ws://\S+)")[1]
        with wrap(url, folder=tmp_path) as proxy:
            process.stop(code=None)
            sessions = [{"capabilities": "none", "steps": []}]
            with pytest.raises(AssertionError, match="the server could not be connected to: connection refused by"):
                run_client("python-1", proxy.socket_url, sessions, folder=tmp_path)
