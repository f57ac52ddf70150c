"""Tests of the official Python SDK's server behind Isthmus, at a path that it redirects from."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from rig import REAL, Process, require, run_client, start_server, stdio_wrap, wrap

pytestmark = pytest.mark.real

SERVER = Path(__file__).resolve().parent / "peers" / "moved_tools.py"
STEPS: list[dict[str, Any]] = [
    {"op": "tools"},
    *({"op": "call", "name": "add", "arguments": {"a": number, "b": 1}} for number in range(3)),
    {"op": "call", "name": "asked", "arguments": {}},
]


PATHS = (("/mcp/", "mcp"), ("/mcp", "mcp/"))
CLIENTS = (("python-1", "http"), ("typescript-1", "stdio"))
"""Clients, and the transport of each."""
CASES = [(*paths, *client) for paths, client in zip(PATHS, CLIENTS, strict=True)]
if os.environ.get("THOROUGH"):
    CASES = [(*paths, client, down) for paths in PATHS for client, _ in CLIENTS for down in ("http", "stdio")]


@pytest.mark.parametrize("lives_at, asked_at, client, down", CASES)
def test_official_clients_use_it(lives_at: str, asked_at: str, client: str, down: str, tmp_path: Path) -> None:
    """Clients use it as they do directly. The wrong path is requested until a request is answered, which
    `server/discover` at start is not."""
    with contextlib.ExitStack() as stack:
        python = require(REAL / "client1/bin/python")
        process, url = start_server([python, SERVER], asked_at, folder=tmp_path, env={"MCP_PATH": lives_at})
        stack.callback(_end, process)
        target: str | list[str] = stdio_wrap(url)
        if down == "http":
            target = stack.enter_context(wrap(url, folder=tmp_path, asks=True)).url
        events = run_client(client, target, [{"capabilities": "none", "steps": STEPS}], folder=tmp_path)
    outcomes = [event for event in events if event["kind"] == "step"]
    assert len(outcomes) == len(STEPS) and all("result" in outcome for outcome in outcomes), outcomes
    texts = [outcome["result"]["content"][0]["text"] for outcome in outcomes[1:]]
    assert texts[:3] == ["1", "2", "3"]
    asked = texts[3].split()
    assert asked.count(f"POST:/{asked_at}") == (2 if down == "http" else 1) and f"GET:/{asked_at}" not in asked, asked


def _end(process: Process) -> None:
    try:
        process.stop(code=None)
    finally:
        process.clean_up()
