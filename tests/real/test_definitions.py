"""Tests of a lock of a released server, used with official clients of other capabilities."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rig import EVERYTHING, isthmus, require, run_client, serve

pytestmark = pytest.mark.real

CALL: dict[str, Any] = {"op": "call", "name": "echo", "arguments": {"message": "hi"}}


def ran(folder: Path, *arguments: str | Path) -> int:
    """Runs isthmus to its end. Returns its exit code."""
    process = isthmus(arguments, folder=folder)
    try:
        return process.popen.wait(90.0)
    finally:
        process.clean_up()


@pytest.mark.parametrize("client", ["python-1", *(["typescript-1"] if os.environ.get("THOROUGH") else [])])
def test_official_clients_see_all_that_is_pinned_and_nothing_that_has_changed(client: str, tmp_path: Path) -> None:
    config, lock = tmp_path / "isthmus.json", tmp_path / "isthmus.lock"
    server = {"id": "everything", "upstream": {"command": [str(require(EVERYTHING))]}}
    pins = {"mode": "block", "new": "hide"}
    config.write_text(json.dumps({"core": {"port": 0}, "servers": [server], "pins": pins}))
    assert ran(tmp_path, "pin", config) == 0
    assert ran(tmp_path, "pin", "--diff", config) == 0
    listed = {}
    for capabilities in ("none", "all"):
        with serve(config, folder=tmp_path) as proxy:
            # The call comes first: nothing was listed then.
            plan = [{"capabilities": capabilities, "steps": [CALL, {"op": "tools"}]}]
            called, tools = steps(run_client(client, proxy.url, plan, folder=tmp_path))
        assert "result" in called, called
        listed[capabilities] = names(tools)
    assert listed["none"] < listed["all"]
    assert all(f"tools.{name}]" in lock.read_text() for name in listed["all"])

    lock.write_text(lock.read_text().replace("[servers.everything.tools.echo]", "[servers.everything.tools.gone]"))
    assert ran(tmp_path, "pin", config) == 2  # its SHA-256 is that of another name
    lock.unlink()
    assert ran(tmp_path, "pin", config) == 0
    text = lock.read_text()
    start = text.index("[servers.everything.tools.echo]")
    lock.write_text(text[:start] + text[text.index("[servers", start + 1) :])
    with serve(config, folder=tmp_path) as proxy:
        plan = [{"capabilities": "none", "steps": [CALL, {"op": "tools"}]}]
        called, tools = steps(run_client(client, proxy.url, plan, folder=tmp_path))
    assert "result" not in called, called
    assert names(tools) == listed["none"] - {"echo"}


def steps(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == "step"]


def names(listed: dict[str, Any]) -> set[str]:
    """The names in what a client records of a list."""
    result = listed["result"]
    tools = result["tools"] if isinstance(result, dict) else result
    return {tool["name"] for tool in tools}
