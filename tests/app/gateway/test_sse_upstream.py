"""Tests of a server of the HTTP+SSE transport behind the command, for clients of any other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import INITIALIZE, INITIALIZED, Json, Run, Session, call_message, run
from isthmus.core.base.errors import OUTCOME_UNKNOWN

PEER = Path(__file__).parents[1] / "peers" / "sse_server.py"
ANY_PORT = ("--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the server's event stream."""
    command = [sys.executable, str(PEER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None and peer.stdin is not None
        yield f"http://127.0.0.1:{int(peer.stdout.readline())}/sse"
        peer.stdin.close()


def test_wrap_joins_it_to_streamable_http(url: str) -> None:
    with Run("wrap", *ANY_PORT, "--header", "X-Key: 7", f"sse+{url}") as wrapped:
        session = Session(wrapped.wait_url())
        assert session.hello["result"]["serverInfo"]["name"] == "old"
        assert session.call("echo", text="hello") == "hello"
        headers = json.loads(session.call("headers"))
        assert (headers["x-key"], headers["content-type"]) == ("7", "application/json")
        assert "server  old 1\n" in wrapped.stdout and "  ready  sse 20" in wrapped.stdout


def test_wrap_joins_it_to_stdio(url: str) -> None:
    """The server's requests reach the client, too."""
    capable = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": {"roots": {}}}}
    with Run("wrap", "--listen", "stdio", f"sse+{url}") as wrapped:
        wrapped.write(capable)
        wrapped.wait_line('"old"')
        wrapped.write(INITIALIZED, call_message(2, "ask"))
        question: Json = json.loads(wrapped.wait_line(r'^.*"roots/list".*$')[0])
        wrapped.write({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///a"}]}})
        assert "1 roots" in wrapped.wait_line(r'^.*"id":2,.*$')[0]


def test_each_client_has_a_session_of_its_own_and_a_new_one_when_the_server_forgets_it(url: str) -> None:
    with Run("wrap", *ANY_PORT, f"sse+{url}") as wrapped:
        one, other = Session(wrapped.wait_url()), Session(wrapped.wait_url())
        assert one.call("forget") == "forgotten"
        assert other.call("echo", text="still here") == "still here"
        answer = one.post(call_message(3, "echo", text="lost"))
        assert answer["error"]["code"] == OUTCOME_UNKNOWN
        assert "the server forgot the session" in answer["error"]["message"]
        assert one.call("echo", text="again") == "again"


def test_the_end_of_its_stream_settles_what_was_open(url: str) -> None:
    with Run("wrap", *ANY_PORT, f"sse+{url}") as wrapped:
        session = Session(wrapped.wait_url())
        answer = session.post(call_message(2, "hang_up"))
        assert answer["error"]["code"] == OUTCOME_UNKNOWN
        assert (
            "the event stream ended" in answer["error"]["message"] or "connection ended" in answer["error"]["message"]
        )
        assert session.call("echo", text="again") == "again"


def test_check_connects_to_it(url: str, tmp_path: Path) -> None:
    upstreams = [{"url": url, "transport": "sse"}, {"url": f"sse+{url}"}]
    servers = [{"id": f"s{number}", "upstream": upstream} for number, upstream in enumerate(upstreams)]
    pasted = {"pasted": {"type": "sse", "url": url}}
    path = tmp_path / "isthmus.json"
    path.write_text(json.dumps({"servers": servers, "mcpServers": pasted}))
    code, out, err = run("check", str(path))
    assert (code, err) == (0, "")
    assert out.count("  ready  sse 20") == 3
