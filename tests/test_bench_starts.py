"""Tests of the benchmark of starts: its subjects, its client, its arithmetic and its table."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent / "bench"
sys.path.insert(0, str(BENCH))

import peers  # noqa: E402
import programs  # noqa: E402
import report  # noqa: E402
import sessions  # noqa: E402
import starts  # noqa: E402

SETTING = starts.Setting(starts.SEVEN, Path("/etc/seven.json"), Path("/srv/files"))
PROXIES = {name: starter for name, starter in starts.SUBJECTS.items() if starter is not None}


@pytest.mark.parametrize("subject", PROXIES)
def test_a_proxy_has_an_endpoint_for_each_server(subject: str) -> None:
    launch = PROXIES[subject](SETTING)
    assert list(launch.endpoints) == [server.id for server in starts.SEVEN]
    assert {endpoint.port for endpoint in launch.endpoints.values()} == set(launch.commands)
    for port, command in launch.commands.items():
        assert str(port) in command
        reads_file = str(SETTING.file) in command
        assert reads_file == (len(launch.commands) == 1)
    asked = starts.wanted(launch, SETTING)
    assert len(asked) == (1 if subject in ("isthmus-again", "fastmcp") else 7)
    assert sum(len(tools) for _, tools in asked) == 7


def test_the_called_server_is_in_every_configuration() -> None:
    assert all(starts.CALLED in servers for servers in starts.CONFIGURATIONS.values())


def test_what_a_run_needs_can_be_installed() -> None:
    for names in peers.RUNS.values():
        assert set(names) <= set(peers.DEBIAN | peers.NPM | peers.PYPI)
    assert set(peers.RUNS["starts"]) >= {*peers.SERVERS, *(set(starts.SUBJECTS) & set(peers.NPM | peers.PYPI))}


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("supergateway@4.0.0", "supergateway"),
        ("@playwright/mcp@0.0.83", "@playwright/mcp"),
        ("fastmcp>=4.1.2,<4.2", "fastmcp"),
        ("mcp-proxy==0.13", "mcp-proxy"),
        ("mcp-contextforge-gateway", "mcp-contextforge-gateway"),
    ],
)
def test_the_name_of_a_package(package: str, name: str) -> None:
    assert peers.name_of(package) == name


def test_servers_and_what_they_started_are_no_part_of_a_proxy() -> None:
    """A root is a part of the proxy even if its arguments name a server."""
    server = f"{starts.SERVERS_MARK}npm/x"
    known = {
        10: starts.Process(1, f"node gateway --stdio {server}", 0),
        11: starts.Process(10, f"sh -c {server}", 0),
        12: starts.Process(11, "a browser", 0),
        13: starts.Process(10, "a helper", 0),
        14: starts.Process(13, f"node {server}", 0),
        20: starts.Process(1, "another program", 0),
    }
    assert sorted(starts.tree([10], known)) == [10, 11, 12, 13, 14]
    assert sorted(starts.proxy_pids([10, 99], known)) == [10, 13]


def test_the_subjects_take_turns() -> None:
    assert [starts.turns("abc", number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_events_are_found_in_a_stream() -> None:
    lines = [b": hello\r\n", b"\r\n", b"event: message\n", b"data: a\n", b"data: b\n", b"\n", b"data: c\n", b"\n"]
    assert list(sessions.events(lines)) == [b"a\nb", b"c"]


def test_the_response_to_the_request_is_taken() -> None:
    others = [{"method": "notifications/x"}, {"id": 2, "method": "ping"}, {"id": 1, "result": {"wrong": True}}]
    messages = [b"\n", *(json.dumps(one).encode() for one in [*others, {"id": 2, "result": {"right": True}}])]
    assert sessions.result_of(2, messages) == {"right": True}
    with pytest.raises(programs.Failed, match="no response"):
        sessions.result_of(3, messages)
    with pytest.raises(programs.Failed, match="-32601"):
        sessions.result_of(4, [b'{"id": 4, "error": {"code": -32601}}'])


class Server(http.server.BaseHTTPRequestHandler):
    """An MCP server with one tool on each of two pages. The second is there from the second listing on, and comes as
    an event."""

    listed = 0
    shown: list[str | None] = []  # noqa: RUF012  # the session that each request names

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.shown.append(self.headers["Mcp-Session-Id"])
        if "id" not in message:
            self._respond(202, b"", "application/json")
            return
        result: dict[str, Any] = {}
        kind = "application/json"
        if message["method"] == "tools/list" and not message["params"]:
            Server.listed += 1
            result = {"tools": [{"name": "first"}]} | ({"nextCursor": "2"} if Server.listed > 1 else {})
        elif message["method"] == "tools/list":
            result, kind = {"tools": [{"name": "second"}]}, "text/event-stream"
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        refused = message["method"] == "tools/call"
        self._respond(503 if refused else 200, b"data: %b\n\n" % body if "event" in kind else body, kind)

    def _respond(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Mcp-Session-Id", "s1")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[sessions.Endpoint]:
    Server.listed, Server.shown = 0, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield sessions.Endpoint(served.server_port)
        served.shutdown()
        thread.join()


def test_a_list_is_asked_for_until_it_is_whole(endpoint: sessions.Endpoint) -> None:
    began = time.monotonic()
    session = sessions.HttpSession(endpoint, began + 20)
    took_us = starts.list_all([(session, {"first", "second"})], began)
    assert Server.listed == 2
    assert 0 < took_us <= (time.monotonic() - began) * 1e6
    assert Server.shown == [None, "s1", "s1", "s1", "s1"]


def test_a_refused_request_is_a_failure(endpoint: sessions.Endpoint) -> None:
    session = sessions.HttpSession(endpoint, time.monotonic() + 20)
    with pytest.raises(programs.Failed, match="HTTP 503"):
        session.request("tools/call", {})


def test_a_client_waits_for_its_endpoint_up_to_the_deadline() -> None:
    session = sessions.HttpSession(sessions.Endpoint(programs.free_port()), time.monotonic() + 0.05)
    with pytest.raises(programs.Failed, match="accepts no connection"):
        session.request("initialize", {})


def test_the_table_of_a_run() -> None:
    """A figure that a round lacks is not shown."""
    rounds = [{"all_us": s * 1e6, "call_us": 4000.0, "pss_kb": 1024.0} for s in (3.0, 1.0, 2.0)]
    given = {
        "python": {"version": "CPython 3.11.2", "from": "/usr", "says_optimised": False, "loop_ms": 7.78},
        "node": "v20.1.0",
        "machine": "2 processors, Linux 6.1",
        "before": [{"load": 0.5, "busy": 0.1}, {"load": 1.5, "busy": 1.25}],
        "results": {"two": {"isthmus": rounds, "direct": [rounds[0], {}]}},
        "peers": {"fastmcp": "fastmcp 4.1.2"},
        "absent": {"supergateway": "not installed"},
    }
    text = starts.render(given)
    assert "| two | isthmus | 3 | 2 (1–3) | – | 4 (4–4) | – | – | 1 (1–1) |" in text
    assert "| two | direct | 2 | – | – | – | – | – | – |" in text
    assert "Load average before the measurements: 0.50 to 1.50; no other work before 1 of 2." in text
    assert text.endswith("Left out:\n\n- supergateway: not installed\n")
    page = report.fill("<!-- measured starts -->\nold\n<!-- end of measured starts -->\n", text, "measured starts")
    assert text in page and "old" not in page


def test_the_page_has_the_subjects_and_the_figures_of_the_code() -> None:
    page = (BENCH.parent / "docs/performance.md").read_text(encoding="utf-8")
    part = page.split("<!-- measured starts -->")[1].split("<!-- end of measured starts -->")[0]
    head, _, *rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    assert head[3:] == [heading for heading, _ in starts.COLUMNS.values()]
    assert {row[0] for row in rows} == set(starts.CONFIGURATIONS)
    assert {row[1] for row in rows} == set(starts.SUBJECTS)
