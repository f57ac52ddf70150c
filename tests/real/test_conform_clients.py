"""Tests of `isthmus conform --client` with the official Python SDK's client on each of its transports."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rig import CLIENTS, PYTHON_1, isthmus, require

pytestmark = pytest.mark.real

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
WAYS = {"stdio": REVISIONS, "streamable_http": REVISIONS[1:], "sse": REVISIONS, "websocket": REVISIONS}
"""The transports, and the revisions that the client speaks on each."""
FROM_HTTP = {"sse": "sse+{url}"}
"""The target in the client's plan, where it is not the URL alone."""


def planned(transport: str, steps: list[dict[str, object]], folder: Path) -> list[str | Path]:
    """Returns the command of a client that takes these steps. Its plan is a file, into which our URL or command is put
    first."""
    plan = {"sessions": [{"capabilities": "all", "steps": steps}], "target": {}}
    is_piped = transport == "stdio"  # within an argument the command of the server is one text
    (folder / "plan.json").write_text(json.dumps(plan))
    code = (
        "import json, os, shlex, sys\n"
        "plan = json.load(open(sys.argv[1]))\n"
        "command = {'command': shlex.split(sys.argv[2]), 'env': None}\n"
        f"plan['target'] = command if {is_piped} else {{'url': sys.argv[2]}}\n"
        "name = f'{sys.argv[1]}.{os.getpid()}'\n"
        "json.dump(plan, open(name, 'w'))\n"
        "os.execv(sys.executable, [sys.executable, sys.argv[3], name])\n"
    )
    end = "{server} " if is_piped else FROM_HTTP.get(transport, "{url}")
    return [require(PYTHON_1), "-c", code, folder / "plan.json", end, CLIENTS / "python1.py"]


@pytest.mark.parametrize("transport", WAYS if os.environ.get("THOROUGH") else ["streamable_http", "sse"])
def test_the_sdk_s_client_is_tested_over_each_transport(transport: str, tmp_path: Path) -> None:
    """The client speaks all revisions of the transport, and breaks only the rules that its plan makes it break."""
    chosen = [] if transport == "stdio" else ["--transport", transport]
    report = tmp_path / "report.json"
    options = ["--examples", "1", "--seconds", "30", "--ignore", "capability-undeclared", "--json", report]
    steps: list[dict[str, object]] = [{"op": "tools"}, {"op": "call", "name": "a-tool", "arguments": {}}]
    command = planned(transport, steps, tmp_path)
    process = isthmus(["conform", "--client", *chosen, *options, "--", *command], folder=tmp_path)
    try:
        code = process.wait_exit(timeout_s=240)
        contents = json.loads(report.read_bytes())
        assert (code, contents["revisions"]) == (0, WAYS[transport]), process.describe()
        states = {each["rule"]: each["state"] for each in contents["rules"]}
        assert {states[name] for name in ("not-json", "method-foreign", "initialize-first")} == {"kept"}
    finally:
        process.clean_up()
