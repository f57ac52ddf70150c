"""Tests of a server behind a load balancer that redirects, and knows sessions by a cookie, behind the command."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command import PATIENCE_S, Run, Session, request

PEER = Path(__file__).parents[1] / "peers" / "sticky_server.py"
ANY_PORT = ("--listen", "127.0.0.1:0")


@pytest.fixture
def url() -> Iterator[str]:
    """The URL that people would give for the server."""
    command = [sys.executable, str(PEER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None and peer.stdin is not None
        yield f"http://127.0.0.1:{int(peer.stdout.readline())}/mcp"
        peer.stdin.close()


def test_sessions_stay_where_they_began(url: str) -> None:
    with Run("wrap", *ANY_PORT, "--header", "Cookie: own=1", "--log-level", "debug", url) as wrapped:
        one, other = Session(wrapped.wait_url()), Session(wrapped.wait_url())
        for session in (one, other, one):
            assert session.call("echo", text="hello") == "hello"
        (seen,) = json.loads(one.call("cookie"))
        assert seen.startswith("own=1; lb=S") and seen.count("lb=") == 1
        paths = json.loads(one.call("path"))
        # A redirect is remembered if its target takes the request, which it does not for `server/discover` at start.
        assert paths[:4] == ["/mcp", "/mcp/"] * 2 and set(paths[4:]) == {"/mcp/"}, "it is asked to go elsewhere once"
        assert one.id is not None
        status, _ = request("DELETE", wrapped.wait_url(), headers={"Mcp-Session-Id": one.id})
        assert status == 204
        assert other.call("echo", text="still here") == "still here"
        assert "lb=" not in wrapped.stdout + wrapped.stderr


def test_a_transparent_server_leads_its_clients(url: str, tmp_path: Path) -> None:
    path = tmp_path / "isthmus.json"
    server = {"id": "far", "upstream": {"url": url}, "inspect": False}
    path.write_text(json.dumps({"core": {"port": 0}, "servers": [server]}))
    with Run("serve", str(path)) as served:
        connection = http.client.HTTPConnection(urlsplit(served.wait_url()).netloc, timeout=PATIENCE_S)
        connection.request("POST", "/mcp/far", b'{"id":1,"method":"x"}', {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        location = response.getheader("Location")
        assert response.status == 307 and location is not None and location.startswith("/mcp/far/~/")
        connection.request("POST", location, b'{"id":1,"method":"x"}', {"Content-Type": "application/json"})
        assert connection.getresponse().status == 404, "the server's own: there is no session"
        connection.close()
