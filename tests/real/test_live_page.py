"""Tests of the live page beside a second record of the wire: `tee` writes down each line on both legs."""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import rig

pytestmark = pytest.mark.real

LONG: Final = "trigger-long-running-operation"
LAST: Final = {"op": "call", "name": LONG, "arguments": {"duration": 3, "steps": 1}}
"""The last step: while it takes its time, all that came before it is read."""
STEPS: Final = [
    {"op": "tools"},
    {"op": "resources"},
    {"op": "call", "name": "echo", "arguments": {"message": "first"}},
    {"op": "call", "name": LONG, "arguments": {"duration": 0.4, "steps": 3}, "progress": True},
    {"op": "call", "name": "trigger-sampling-request", "arguments": {"prompt": "x", "maxTokens": 9}},
    {"op": "call", "name": "no-such-tool", "arguments": {}},
    {"op": "ping"},
    LAST,
]
LEGS: Final = {
    ("client", "in"): "client.in",
    ("client", "out"): "client.out",
    ("server", "out"): "server.in",
    ("server", "in"): "server.out",
}


class Page:
    """The API of a live page, asked as long as it is there, for what is on the wire before the last step."""

    def __init__(self, stderr: Path) -> None:
        self._stderr = stderr
        self.records: dict[int, dict[str, Any]] = {}
        self.bodies: dict[int, bytes] = {}
        self.requests: dict[str, dict[str, Any]] = {}

    def watch(self) -> None:
        rig.until(lambda: self._stderr.exists() and "#token=" in self._stderr.read_text(), "the URL of the page")
        found = re.search(r"(http://\S+)/ui#token=(\w+)", self._stderr.read_text())
        assert found is not None
        self._base, self._token = found[1], found[2]
        after = 0
        try:
            while True:
                news = json.loads(self._get(f"/ui/api/events?after={after}&wait=20"))
                for record in news["events"]:
                    after = record["n"]
                    self.records[record["n"]] = record
                    if record["type"] == "message":
                        self.bodies[record["n"]] = self._get(f"/ui/api/messages/{record['n']}/body")
                    elif record["type"] == "request":
                        self.requests[record["request"]] = record
        except (urllib.error.URLError, OSError, ValueError):
            return  # the client has ended the proxy

    def _get(self, path: str) -> bytes:
        request = urllib.request.Request(self._base + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=rig.PATIENCE_S) as response:
            return bytes(response.read())

    def lines(self, leg: str, way: str) -> list[bytes]:
        found = [record for record in self.records.values() if (record.get("leg"), record.get("way")) == (leg, way)]
        return [self.bodies[record["n"]] for record in sorted(found, key=lambda record: record["n"])]


@pytest.mark.parametrize("client", ["python-1", "python-2"] if os.environ.get("THOROUGH") else ["python-1"])
def test_the_page_shows_what_a_second_record_of_the_wire_says(client: str, tmp_path: Path) -> None:
    log = {name: shlex.quote(str(tmp_path / name)) for name in LEGS.values()}
    server = (
        f"tee -a {log['server.in']} | node {shlex.quote(str(rig.EVERYTHING.resolve()))} | tee -a {log['server.out']}"
    )
    wrap = shlex.join(rig.stdio_wrap("sh", "-c", server, options=("--ui-listen", "0", "--warm", "0")))
    stderr = tmp_path / "stderr"
    command = f"tee {log['client.in']} | {wrap} 2>{shlex.quote(str(stderr))} | tee {log['client.out']}"
    page = Page(stderr)
    watching = threading.Thread(target=page.watch)
    watching.start()
    sessions = [{"capabilities": "all", "steps": STEPS}]
    rig.run_client(client, ["sh", "-c", command], sessions, folder=tmp_path)
    watching.join(rig.PATIENCE_S)
    for (leg, way), name in LEGS.items():
        written = (tmp_path / name).read_bytes().splitlines()
        shown = page.lines(leg, way)
        assert len(shown) > len(STEPS)
        missing = Counter(written) - Counter(shown)
        assert not Counter(shown) - Counter(written), f"{name}: the page shows what did not cross"
        assert sum(missing.values()) <= 1 and not any(b"first" in line for line in missing), f"{name}: {missing}"
        assert shown == [line for line in written if line in shown], f"{name}: the order differs"
    calls = [one for one in page.requests.values() if one["method"] == "tools/call" and one["state"] == "over"]
    outcomes = {(one["target"], one["outcome"]) for one in calls}
    assert ("echo", "result") in outcomes and ("trigger-sampling-request", "result") in outcomes
    assert {outcome for target, outcome in outcomes if target == "no-such-tool"} <= {"error", "tool error"}
    progress: list[int] = []
    for call in calls:
        kinds = Counter(
            (record["leg"], record["way"], record["kind"])
            for record in page.records.values()
            if record.get("request") == call["request"] and record["type"] == "message"
        )
        assert kinds["client", "in", "request"] == kinds["client", "out", "response"] == 1
        assert kinds["server", "out", "request"] == kinds["server", "in", "response"] == 1
        if call["target"] == "trigger-sampling-request":
            assert call["questions"] == 1 and kinds["client", "out", "request"] == kinds["server", "in", "request"] == 1
            assert kinds["client", "in", "response"] == kinds["server", "out", "response"] == 1
        if call["target"] == LONG:
            assert kinds["server", "in", "notification"] == kinds["client", "out", "notification"]
            progress.append(kinds["client", "out", "notification"])
    assert progress and progress[0] >= 2 and not any(progress[1:]), "the last call has none, if its end is seen at all"
