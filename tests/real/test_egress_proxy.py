"""Tests of servers behind tinyproxy, a forward proxy."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import launched, until, wrap

pytestmark = pytest.mark.real


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a tinyproxy that wants a user and a password."""
    program = shutil.which("tinyproxy")
    assert program is not None, "tinyproxy is missing: run tests/real/setup.sh"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config, log = tmp_path / "tinyproxy.conf", tmp_path / "requests.log"
    config.write_text(
        f'Port {port}\nListen 127.0.0.1\nTimeout 60\nLogFile "{log}"\nLogLevel Connect\nBasicAuth me secret-word\n'
    )
    with launched([program, "-d", "-c", str(config)], folder=tmp_path, code=None):
        until(lambda: _listens(port), "tinyproxy listens")
        yield port


@pytest.mark.parametrize("path", ["mcp", "sse", "ws"])
def test_a_server_is_reached_through_it(path: str, port: int, tmp_path: Path) -> None:
    """The server is an Isthmus of its own, for it speaks all three transports."""
    named = f"http://me:secret%2Dword@127.0.0.1:{port}"
    env = {"http_proxy": named, "no_proxy": ""}
    with wrap(sys.executable, "-m", "isthmus.app.commands.demo_server", folder=tmp_path) as server:
        scheme = {"mcp": "http", "sse": "sse+http", "ws": "ws"}[path]
        url = f"{scheme}://127.0.0.1:{server.port}/{path}"
        with wrap(url, folder=tmp_path, env=env, asks=True) as proxy:
            assert "server  demo-server" in "".join(proxy.lines), proxy.describe()
    sent = "CONNECT 127.0.0.1:" if path == "ws" else f"http://127.0.0.1:{server.port}/{path}"
    until(lambda: sent in (tmp_path / "requests.log").read_text(), f"the proxy has carried {sent}")
    assert "secret" not in proxy.stderr + "".join(proxy.lines)


@pytest.mark.parametrize(("user", "words"), [("", "wants a user"), ("me:wrong@", "refused the user")])
def test_it_is_named_if_it_wants_other_credentials(user: str, words: str, port: int, tmp_path: Path) -> None:
    """Wrong ones are answered 401 by tinyproxy: without a tunnel that could be the server's own refusal."""
    options = ("--proxy", f"http://{user}127.0.0.1:{port}")
    for url in ("https://server.invalid/mcp", *(["http://server.invalid/mcp"] if not user else [])):
        with wrap(url, folder=tmp_path, options=options, asks=True) as proxy:
            screen = "".join(proxy.lines)
            assert words in screen and "in --proxy" in screen, screen
            assert "wrong" not in screen + proxy.stderr


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
