"""Tests of `isthmus ps`, `start`, `stop` and `restart`, from outside: output, exit codes, and secrets that are not
shown."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from command import Json, Run, run
from isthmus.app.commands import server_status
from isthmus.app.commands.http_client import duration
from isthmus.core.base.revisions import LATEST_LEGACY

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]
ANY_PORT = ("--listen", "127.0.0.1:0")
TOKEN = "s3cret-t0ken"


@contextlib.contextmanager
def gateway(folder: Path, **core: object) -> Iterator[str]:
    """The URL of a gateway with a server that works and one that cannot be started."""
    servers = [
        {"id": "box", "upstream": {"command": TOOLBOX}, "warm": 0},
        {"id": "broken", "upstream": {"command": ["/nonexistent"]}},
    ]
    path = folder / "isthmus.json"
    path.write_text(json.dumps({"core": {"port": 0, **core}, "servers": servers}))
    with Run("serve", str(path)) as served:
        yield re.sub(r"/mcp.*", "", served.wait_url())
        assert TOKEN not in served.stdout + served.stderr


def rows(out: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in out.splitlines()]


def test_the_table_and_the_orders(tmp_path: Path) -> None:
    with gateway(tmp_path) as url:
        heads, box, broken, _, error, *_ = rows(run("ps", "--url", url)[1])
        assert heads == ["ID", "STATE", "SPEAKS", "SESSIONS", "CALLS", "UPTIME", "STARTS", "FAILURES"]
        assert box == ["box", "idle", f"stdio {LATEST_LEGACY}", "0", "0", "-", "1", "0"]
        assert broken == ["broken", "failed", "stdio", "0", "0", "-", "1", "1"]
        assert error[0].startswith("broken: command '/nonexistent' does not exist")

        assert run("start", "box", "--url", url) == (0, "box runs", "")
        row = rows(run("ps", "--url", f"{url}/")[1])[1]
        assert row[1:5] == ["running", f"stdio {LATEST_LEGACY}", "1", "0"]
        assert re.fullmatch(r"\d+s", row[5])
        assert run("start", "box", "--url", url) == (1, "", "isthmus: box is running already")
        assert run("restart", "box", "--url", url) == (0, "box runs again", "")
        assert run("stop", "box", "--url", url) == (0, "box is stopped", "")
        code, out, err = run("ps", "--json", "--url", url)
        assert (code, err) == (0, "")
        assert [one["state"] for one in json.loads(out)] == ["stopped", "failed"]
        assert run("stop", "box", "--url", url) == (1, "", "isthmus: box is stopped already")
        code, _, err = run("start", "broken", "--url", url)
        assert code == 1 and "'/nonexistent' does not exist" in err
        code, _, err = run("start", "no/thing", "--url", url)
        assert code == 1 and "encoded slash" in err
        assert run("start", "nothing", "--url", url)[2].startswith("isthmus: got the server 'nothing', expected one of")


def test_each_url_of_a_server_has_a_row() -> None:
    urls = [{"name": "https://a", "state": "ill", "sessions": 2, "failures": 1, "last_error": "no route"}]
    table = server_status.table([{"name": "box", "state": "running", "urls": urls}, {"name": "other", "state": "idle"}])
    heads, box, url, other, _, error = (re.split(r" {2,}", line.strip()) for line in table.splitlines())
    assert len(heads) == len(box) == len(url) == len(other)
    assert {name: cell for name, cell in zip(heads, url, strict=True) if cell != "-"} == {
        "ID": "https://a",
        "STATE": "ill",
        "SESSIONS": "2",
        "FAILURES": "1",
    }
    assert error == ["https://a: no route"]


def test_the_tokens_of_a_caller_are_revoked(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "sha256": hashlib.sha256(f"{TOKEN}-{name}".encode()).hexdigest(), "groups": groups}
        for name, groups in (("ci", []), ("root", ["admin"]))
    ]
    path = tmp_path / "isthmus.json"
    servers = [{"id": "box", "upstream": {"command": TOOLBOX}}]
    path.write_text(json.dumps({"core": {"port": 0}, "auth": {"tokens": tokens}, "servers": servers}))
    with Run("serve", str(path)) as served:
        asked = ("--url", re.sub(r"/mcp.*", "", served.wait_url()), "--token")
        ci, root = (*asked, f"{TOKEN}-ci"), (*asked, f"{TOKEN}-root")
        code, _, err = run("auth", "revoke", "token:ci", *ci)
        assert (code, "expected one of the group admin" in err) == (1, True)
        done = "token:ci is revoked: what it had so far is refused"
        assert run("auth", "revoke", "token:ci", *root) == (0, done, "")
        assert json.loads(run("auth", "revoke", "token:ci", "--json", *root)[1])["name"] == "token:ci"
        code, _, err = run("auth", "revoke", "token:cj", *root)
        assert (code, "expected one of token:ci, token:root" in err) == (1, True)
        assert run("auth", "revoke", *root)[0] == 2
        assert run("auth", "ls", "token:ci")[0] == 2


def test_a_unix_socket_is_asked_as_well(tmp_path: Path) -> None:
    path = tmp_path / "http"
    with Run("wrap", "--warm", "0", "--listen", f"unix:{path}", "--", *TOOLBOX) as wrapped:
        wrapped.wait_line(" /mcp$")
        for url in (f"unix:{path}", f"unix://{path}"):
            assert rows(run("ps", "--url", url)[1])[1][:3] == ["toolbox.py", "idle", f"stdio {LATEST_LEGACY}"]
        assert run("start", "toolbox.py", "--url", f"unix:{path}")[0] == 0
    gone = f"unix:{tmp_path}/gone"
    wanted = f"isthmus: nothing listens at {gone}: start isthmus there, or name another --url"
    assert run("ps", "--url", gone) == (1, "", wanted)
    assert run("ps", "--url", "unix:")[0] == 2


def test_a_token_is_shown_from_the_option_or_the_environment(tmp_path: Path) -> None:
    with gateway(tmp_path, management={"token": TOKEN}) as url:
        assert run("ps", "--url", url, "--token", TOKEN)[0] == 0
        assert run("ps", "--url", url, env={"ISTHMUS_TOKEN": TOKEN})[0] == 0
        assert run("ps", "--url", url, "--token", TOKEN, env={"ISTHMUS_TOKEN": "another"})[0] == 0
        code, out, err = run("ps", "--url", url)
        assert (code, out) == (1, "")
        assert err.startswith(
            f"isthmus: {url} wants a token: give it as --token, or in ISTHMUS_TOKEN; it says: got no "
        )
        assert "the token of core.management" in err
        code, out, err = run("ps", "--url", url, "--token", "an0ther")
        assert (code, out) == (1, "") and "does not take this token" in err and "an0ther" not in err


def test_a_wrapped_server_is_looked_after_as_well() -> None:
    with Run("wrap", "--warm", "0", *ANY_PORT, "--", *TOOLBOX, env={"ISTHMUS_TOKEN": TOKEN}) as wrapped:
        url = wrapped.wait_url().removesuffix("/mcp")
        assert run("ps", "--url", url)[0] == 1
        assert rows(run("ps", "--url", url, "--token", TOKEN)[1])[1][:3] == [
            "toolbox.py",
            "idle",
            f"stdio {LATEST_LEGACY}",
        ]
        assert TOKEN not in wrapped.stdout + wrapped.stderr
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX) as wrapped:
        url = wrapped.wait_url().removesuffix("/mcp")
        assert run("restart", "toolbox.py", "--url", url)[0] == 0


def test_a_gateway_without_management_pages_is_reported(tmp_path: Path) -> None:
    with gateway(tmp_path, management={"enabled": False}) as url:
        code, _, err = run("ps", "--url", url)
        assert code == 1 and err.startswith(
            f"isthmus: {url} shows its servers, tasks and files to nobody here: set core.management"
        )


def test_an_unreachable_gateway_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for command in (("ps",), ("stop", "box")):
            complaint = f"isthmus: nothing listens at {url}: start isthmus there, or name another --url"
            assert run(*command, "--url", url) == (1, "", complaint)


@contextlib.contextmanager
def other_server(status: int, body: bytes) -> Iterator[str]:
    """A server that speaks HTTP and is no isthmus; without a status it does not speak HTTP either."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "status, body, reason",
    [
        (200, b"<html>", "it answers with HTTP status 200"),
        (200, b"[]", "it answers with HTTP status 200"),
        (200, b"{}", "it lists no servers"),
        (200, b'{"servers":[7]}', "it lists no servers"),
        (404, b'{"error":"x"}', "it answers with HTTP status 404"),
        (500, b"", "it answers with HTTP status 500"),
        (200, b"[" * 100_000, "it answers with HTTP status 200"),
        (0, b"SSH-2.0-no\r\n", "it speaks no HTTP"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_server_that_is_no_isthmus_is_reported(status: int, body: bytes, reason: str) -> None:
    with other_server(status, body) as url:
        assert run("ps", "--url", url) == (1, "", f"isthmus: what listens at {url} is no isthmus: {reason}")


def test_what_listens_there_cannot_forge_a_line() -> None:
    forged = "no\nisthmus: all is well\x1b[8m"
    with other_server(500, json.dumps({"code": 500, "error": forged}).encode()) as url:
        assert run("ps", "--url", url) == (1, "", r"isthmus: no\nisthmus: all is well\x1b[8m")
    ids = [{"id": f"12345678{number}{forged}"} for number in range(2)]
    with other_server(200, json.dumps({"tasks": ids}).encode()) as url:
        code, _, err = run("tasks", "show", "12345678", "--url", url)
        assert code == 1 and err.startswith("isthmus: 12345678 is the beginning of 2 tasks") and err.isprintable()


def test_the_table_accepts_odd_values_and_no_control_characters() -> None:
    bare: Json = {"state": "idle"}
    odd: Json = {
        "name": "a\x1b[31m",
        "state": "running",
        "status": "stopping",
        "eras": {"handshake": "2025-11-25", "stateless": None},
        "uptime_s": 3725.9,
        "last_error": "x\x1b",
        "sessions": 0,
    }
    _, first, second, _, error = rows(server_status.table([bare, odd]))
    assert first == ["-", "idle", "-", *["-"] * 5]
    assert second == [r"a\x1b[31m", "stopping", "- 2025-11-25", "0", "-", "1h 2m", "-", "-"]
    assert error == [r"a\x1b[31m: x\x1b"]


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m 0s"), (3600, "1h 0m"), (90_061, "1d 1h"), (864_000, "10d 0h")],
)
def test_times_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
