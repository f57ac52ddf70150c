"""Official clients whose calls come too often: they see why, and go on in their session."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest
from rig import run_client, serve

pytestmark = pytest.mark.real

TOOLBOX: Final = Path(__file__).resolve().parents[1] / "app/peers/toolbox.py"
ECHO: Final = {"op": "call", "name": "box__echo", "arguments": {"text": "x"}}
STEPS: Final = [{"op": "tools"}, ECHO, ECHO, {"op": "call", "name": "box__environment", "arguments": {}}]
CLIENTS: Final = [("python-1", {}), ("python-2", {}), ("python-2", {"mode": "2026-07-28"}), ("typescript-1", {})]


@pytest.mark.parametrize(("client", "more"), CLIENTS if os.environ.get("THOROUGH") else CLIENTS[:1])
def test_a_client_that_is_limited_goes_on(client: str, more: dict[str, str], tmp_path: Path) -> None:
    limit = {"tools": ["echo"], "calls": 1, "per_seconds": 3600}
    command = [sys.executable, str(TOOLBOX)]
    config = {
        "core": {"port": 0},
        "storage": {"root": str(tmp_path / "storage")},
        "servers": [{"id": "box", "upstream": {"command": command}, "rate_limits": [limit]}],
        "profiles": [{"id": "dev", "servers": ["box"]}],
    }
    path = tmp_path / "isthmus.json"
    path.write_text(json.dumps(config))
    with serve(path, folder=tmp_path) as proxy:
        assert "limits  1 call per 3600 s for echo" in proxy.banner
        sessions = [{"capabilities": "none", "steps": STEPS} | more]
        events = run_client(client, proxy.url_of("dev"), sessions, folder=tmp_path)
    first, limited, other = (event["result"] for event in events if event["kind"] == "step" and event["op"] == "call")
    assert first["content"][0]["text"] == "toolbox says x"
    assert limited["isError"]
    text = "echo of box did not run: the limit is 1 call per 3600 s for echo. Try again in "
    assert limited["content"][0]["text"].startswith(text)
    assert 0 < limited["_meta"]["dev.isthmus/retryAfterSeconds"] <= 3600
    assert "pid" in other["content"][0]["text"]
