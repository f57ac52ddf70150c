"""Helpers of the examples' tests: waits with a limit, and the visit of an official client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 30.0
"""A limit that only a broken run meets."""
BLUNT: Final = (sys.executable, "-S", str(Path(__file__).with_name("blunt_server.py")))
WORKSHOP: Final = (sys.executable, str(ROOT / "tests/real/peers/workshop_python1.py"), "stdio")
"""A server on the official Python SDK, in the environment of these tests."""
HELLO: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def request(id: object, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def call(id: object, tool: str, **arguments: Any) -> bytes:
    return request(id, "tools/call", name=tool, arguments=arguments, _meta={"progressToken": "p"})


def visit(target: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the result of a visit to the workshop by a client on the official Python SDK, which uses every
    feature."""
    plan = folder / "visit.json"
    plan.write_text(json.dumps({"target": target}))
    client = ROOT / "tests/real/clients/visit_python1.py"
    done = subprocess.run([sys.executable, client, plan], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert isinstance(seen, dict)
    return seen


SEEN: Final = {
    "revision": "2025-11-25",
    "server": "workshop",
    "tools": ["echo", "form", "sample", "where", "count", "log", "change"],
    "echo": "snow \u2603",
    "form": "accept blue",
    "sample": "the model said canned",
    "where": "file:///tmp/somewhere",
    "count": "counted to 2",
    "log": "logged",
    "read": "the first note",
    "missing": {"code": -32002},
    "prompt": "Hello, Ada!",
    "complete": ["Ada", "Alan"],
    "change": "changed",
    "asked": ["Which colour?", "well?", "roots"],
    "progress": [[1, 2], [2, 2]],
    "logs": ["noted"],
    "changes": ["note://one", "tools"],
}


def until(condition: Callable[[], object]) -> None:
    """Waits for a condition by polling."""
    give_up_at = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.02)


def at_rest(tally: Path) -> int:
    """Returns the number in a file once it has not changed for a while."""
    seen, since = "", time.monotonic()

    def is_at_rest() -> bool:
        nonlocal seen, since
        found = tally.read_text() if tally.exists() else ""
        if not found or found != seen:
            seen, since = found, time.monotonic()
        return time.monotonic() - since > 0.5

    until(is_at_rest)
    return int(seen)
