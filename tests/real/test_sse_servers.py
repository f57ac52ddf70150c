"""Tests of the official Python SDK's HTTP+SSE server behind Isthmus, used by official clients of current transports."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import REAL, Process, require, run_client, start_server, stdio_wrap, wrap

pytestmark = pytest.mark.real

CLIENTS = {"python-1": "http", "python-2": "stdio", "typescript-1": "http"}
"""Clients, and the transport of each. With THOROUGH set, each has both."""
PAIRS = list(itertools.product(CLIENTS, ("http", "stdio")) if os.environ.get("THOROUGH") else CLIENTS.items())
SERVER = Path(__file__).resolve().parent / "peers" / "sse_tools.py"


def start(folder: Path, port: int = 0) -> tuple[Process, str]:
    command = [require(REAL / "client1/bin/python"), SERVER]
    return start_server(command, "sse", folder=folder, env={"PORT": str(port)})


@contextlib.contextmanager
def old_server(folder: Path) -> Iterator[tuple[Process, str]]:
    process, url = start(folder)
    try:
        yield process, url
        process.stop(code=None)
    finally:
        process.clean_up()


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"op": "call", "name": tool, "arguments": arguments}


STEPS = [
    {"op": "ping"},
    {"op": "tools"},
    call("add", a=2, b=3),
    call("count", to=5) | {"progress": True},
    call("question"),
    call("grow", seed="x" * 1_000_000, times=3),
]


@pytest.mark.parametrize("client, down", PAIRS)
def test_official_clients_use_it(client: str, down: str, tmp_path: Path) -> None:
    """Clients make calls with progress and questions, and with a megabyte up and three down."""
    with contextlib.ExitStack() as stack:
        _, url = stack.enter_context(old_server(tmp_path))
        target: str | list[str] = stdio_wrap(f"sse+{url}")
        if down == "http":
            target = stack.enter_context(wrap(f"sse+{url}", folder=tmp_path)).url
        sessions = [{"capabilities": "all", "steps": STEPS}] * 2
        events = run_client(client, target, sessions, folder=tmp_path)
    begun = [event["initialize"] for event in events if event["kind"] == "begin"]
    assert [(hello["serverInfo"]["name"], hello["instructions"]) for hello in begun] == [
        ("old-school", "Count on me.")
    ] * 2
    outcomes = [event for event in events if event["kind"] == "step"]
    assert len(outcomes) == 2 * len(STEPS) and all("result" in outcome for outcome in outcomes), outcomes
    for at in (0, len(STEPS)):
        _, tools, added, counted, questioned, grown = (outcome["result"] for outcome in outcomes[at : at + len(STEPS)])
        assert [tool["name"] for tool in tools] == ["add", "count", "question", "grow", "die"]
        texts = [result["content"][0]["text"] for result in (added, counted, questioned, grown)]
        assert texts[:3] == ["5", "counted to 5", "it said canned"]
        assert len(texts[3]) == 3_000_000
    progress = [event["progress"] for event in events if event["kind"] == "progress"]
    assert progress == [1, 2, 3, 4, 5] * 2


def test_a_server_that_comes_back_is_used_again(tmp_path: Path) -> None:
    """A call that was open when the server died has an unknown outcome. The client's session continues."""
    with old_server(tmp_path) as (process, url), wrap(f"sse+{url}", folder=tmp_path) as proxy:
        steps = [call("add", a=1, b=1), call("die"), {"op": "ping"}]
        outcomes = [
            event
            for event in run_client("python-1", proxy.url, [{"capabilities": "none", "steps": steps}], folder=tmp_path)
            if event["kind"] == "step"
        ]
        assert outcomes[0]["result"]["content"][0]["text"] == "2"
        assert outcomes[1]["error"]["code"] == -31001
        assert "result" in outcomes[2]
        process.wait_exit()
        again, _ = start(tmp_path, int(url.split(":")[2].split("/")[0]))
        try:
            [begin, outcome, *_] = run_client(
                "typescript-1", proxy.url, [{"capabilities": "none", "steps": steps[:1]}], folder=tmp_path
            )
            assert begin["kind"] == "begin" and outcome["result"]["content"][0]["text"] == "2"
            again.stop(code=None)
        finally:
            again.clean_up()
