"""Tests of servers behind tinyproxy, a forward proxy: over Streamable HTTP, and on a WebSocket through a tunnel."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Process, everything_over_http, launched, run_client, start_server, until, wrap

pytestmark = pytest.mark.real

PEER = Path(__file__).resolve().parent / "peers" / "socket_server.py"
STEPS = [{"op": "tools"}, {"op": "call", "name": "get-sum", "arguments": {"a": 1, "b": 2}}]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a tinyproxy that wants a user and a password."""
    program = shutil.which("tinyproxy")
    assert program is not None, "tinyproxy is missing: run tests/real/setup.sh"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config, log = tmp_path / "tinyproxy.conf", tmp_path / "requests.log"
    config.write_text(
        f'Port {port}\nListen 127.0.0.1\nTimeout 60\nLogFile "{log}"\nLogLevel Connect\nBasicAuth me secret%word\n'
    )
    with launched([program, "-d", "-c", str(config)], folder=tmp_path, code=None):
        until(lambda: socket.create_connection(("127.0.0.1", port), 5).close() is None, "tinyproxy listens")
        yield port


def requests(folder: Path) -> str:
    return (folder / "requests.log").read_text()


def test_a_server_over_http_is_reached_through_it(port: int, tmp_path: Path) -> None:
    env = {"HTTP_PROXY": f"http://me:secret%25word@127.0.0.1:{port}", "NO_PROXY": ""}
    with everything_over_http(folder=tmp_path) as (_, url), wrap(url, folder=tmp_path, env=env) as proxy:
        (*_, called) = run_client("python-1", f"{proxy.base_url}/mcp", [{"capabilities": "none", "steps": STEPS}],
                                  folder=tmp_path)  # fmt: skip
        assert "3" in str(called), called
    assert f"POST {url}" in requests(tmp_path)
    assert "secret" not in proxy.stderr + "".join(proxy.lines)


@pytest.mark.parametrize(("user", "words"), [("", "wants a user"), ("me:wrong@", "refused the user")])
def test_it_is_named_if_it_wants_other_credentials(user: str, words: str, port: int, tmp_path: Path) -> None:
    options = ("--proxy", f"http://{user}127.0.0.1:{port}")
    for url in ("http://server.invalid/mcp", "https://server.invalid/mcp"):
        with wrap(url, folder=tmp_path, options=options) as proxy:
            screen = "".join(proxy.lines)
            assert words in screen and "in --proxy" in screen and "wrong" not in screen + proxy.stderr


def test_a_server_on_a_websocket_is_reached_through_a_tunnel(port: int, tmp_path: Path) -> None:
    server, http_url = start_server([sys.executable, PEER], "ws", folder=tmp_path)
    try:
        url = http_url.replace("http:", "ws:")
        options = ("--proxy", f"http://me:secret%25word@127.0.0.1:{port}")
        with wrap(url, folder=tmp_path, options=options) as proxy:
            assert "FAILED" not in "".join(proxy.lines), proxy.describe()
        assert "CONNECT 127.0.0.1:" in requests(tmp_path)
    finally:
        _end(server)


def _end(process: Process) -> None:
    try:
        process.stop(code=None)
    finally:
        process.clean_up()
