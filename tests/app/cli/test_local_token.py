"""Tests of the local token, from outside: the commands find it, and others see 401."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command import Run, request, run
from isthmus.app.cli.remote import isthmus_of
from isthmus.app.runtime.token_files import TokenFiles

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]
PAGES = ("/servers", "/tasks", "/files", "/mcp/box/tools")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Run, str]]:
    """A gateway whose configuration says nothing of tokens, and its URL."""
    path = tmp_path / "isthmus.json"
    servers = [{"id": "box", "upstream": {"command": TOOLBOX}, "warm": 0}]
    core = {"port": 0, "unix_socket": str(tmp_path / "http")}
    path.write_text(json.dumps({"core": core, "storage": {"root": str(tmp_path / "data")}, "servers": servers}))
    with Run("serve", str(path)) as started:
        yield started, re.sub(r"/mcp.*", "", started.wait_url())


def test_commands_find_the_token_and_others_are_told_where_it_is(served: tuple[Run, str], tmp_path: Path) -> None:
    started, url = served
    code, token, err = run("token", "show", url)
    assert (code, err) == (0, "")
    assert re.fullmatch("[0-9a-f]{64}", token)
    socket = f"unix:{tmp_path}/http"
    for name in (url, url.replace("127.0.0.1", "localhost"), socket):
        assert run("ps", "--url", name)[0] == 0
        assert run("token", "show", name) == (0, token, "")
    for path in PAGES:
        status, body = request("GET", url + path)
        assert status == 401
        assert body["error"].endswith(f"isthmus token show {url}")
        assert request("GET", f"{url}{path}?token={token}&access_token={token}")[0] == 401
        assert request("GET", url + path, headers={"Authorization": f"Bearer {token}"})[0] == 200
    assert request("GET", url + "/healthz")[0] == 200
    code, _, err = run("ps", "--url", url, "--token", "an0ther")
    assert code == 1
    assert f"isthmus token show {url}" in err
    assert run("ps", "--url", url, env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)})[0] == 1
    started.signal(signal.SIGKILL)
    started.wait_exit()
    assert run("token", "show", url)[0] == 1, "the file is there, and its gateway is gone"
    assert token not in started.stdout + started.stderr


def test_scrapers_need_no_token(served: tuple[Run, str]) -> None:
    parts = urlsplit(served[1])
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    assert response.status == 200
    assert b"isthmus_info" in response.read()
    connection.close()


def test_a_stop_leaves_no_token_behind(served: tuple[Run, str]) -> None:
    started, url = served
    place = Path(os.environ["XDG_RUNTIME_DIR"]) / "isthmus" / f"127.0.0.1_{urlsplit(url).port}"
    assert place.exists()
    started.signal(signal.SIGTERM)
    assert started.wait_exit() == 0
    assert not place.exists()


@pytest.mark.parametrize("url", ["http://example.com", "https://10.0.0.1:8932", "http://127.0.0.1.example.com"])
def test_no_token_is_shown_for_another_machine(url: str) -> None:
    code, out, err = run("token", "show", url)
    assert (code, out) == (1, "")
    assert err.startswith(f"isthmus: found no local token for {url}: expected")
    assert run("token", "show", "example.com")[0] == 2


def test_the_token_goes_to_the_listener_that_it_belongs_to() -> None:
    """A listener of another user at another address of `localhost` does not get it. With TLS, the name has to stay,
    since it is that of the certificate."""

    def asked(url: str, token: str | None = None) -> tuple[object, str | None]:
        isthmus = isthmus_of(argparse.Namespace(url=url, token=token))
        assert not isinstance(isthmus.address, str)
        return isthmus.address.host, isthmus.token

    with TokenFiles() as files:
        files.show([("::1", 7)], "abc")
        assert asked("http://localhost:7") == ("::1", "abc")
        assert asked("https://localhost:7") == ("localhost", "abc")
        assert asked("http://localhost:7", "given") == ("localhost", "given")
        assert asked("http://127.0.0.1:7") == ("127.0.0.1", None)
        assert asked("http://example.com:7") == ("example.com", None)
