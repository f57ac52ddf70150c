"""Tests of the time between the stop signal and the drain, in which balancers turn to other processes."""

from __future__ import annotations

import http.client
import json
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from command import Run, Session, until
from isthmus.app.config.addresses import SHUTDOWN_DELAY_S, shutdown_delay_of
from isthmus.app.config.settings import Core
from isthmus.app.runtime import signals

TOOLBOX = [sys.executable, str(Path(__file__).parent.parent / "peers" / "toolbox.py")]


def get(base_url: str, page: str) -> tuple[int, str, str | None]:
    """The status, the `status` of the page and the header Connection."""
    parts = urlsplit(base_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", page)
    response = connection.getresponse()
    found = response.status, json.loads(response.read())["status"], response.getheader("Connection")
    connection.close()
    return found


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "workers"])
def test_a_stopping_gateway_serves_until_balancers_have_turned_away(options: tuple[str, ...], tmp_path: Path) -> None:
    config = tmp_path / "isthmus.json"
    core = {"port": 0, "shutdown_delay_seconds": 3600, "drain_seconds": 3}
    servers = [{"id": "a", "upstream": {"command": TOOLBOX}}]
    config.write_text(json.dumps({"core": core, "storage": {"root": "kept"}, "servers": servers}))
    with Run("serve", *options, str(config)) as served:
        base_url = served.wait_line(r"listens on (http\S+)")[1]
        served.wait_line("connect a client")
        session = Session(f"{base_url}/mcp/a")
        assert get(base_url, "/readyz") == (200, "ok", None)
        served.signal(signal.SIGTERM)
        # Of several workers, each has to have heard of it.
        until(lambda: all(get(base_url, "/readyz") == (503, "stopping", "close") for _ in range(8)), "it says so")
        assert get(base_url, "/healthz") == (200, "ok", "close")
        assert session.call("echo", text="hi") == "toolbox says hi"
        assert Session(f"{base_url}/mcp/a").call("echo", text="hi") == "toolbox says hi"
        time.sleep(signals.SAME_SIGNAL_S + 0.1)
        served.signal(signal.SIGTERM)
        assert served.wait_exit() == 0
        assert "requests are served for 3600 s more; a second signal ends that" in served.stderr


def test_only_a_gateway_that_others_reach_waits() -> None:
    assert shutdown_delay_of(Core()) == 0
    assert shutdown_delay_of(Core(public_base_url="http://localhost:1")) == 0
    assert shutdown_delay_of(Core(port=None, unix_socket="/s")) == 0
    for core in (Core(host="0.0.0.0"), Core(public_base_url="https://mcp.example.com")):
        assert shutdown_delay_of(core) == SHUTDOWN_DELAY_S
    assert shutdown_delay_of(Core(host="0.0.0.0", shutdown_delay_seconds=0.0)) == 0
