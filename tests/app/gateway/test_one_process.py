"""Tests of a server that holds a lock, and ends only when its successor has found the lock taken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from http_caller import Caller, requested
from isthmus.app.config.settings import Core, Server, Settings, Upstream
from isthmus.app.gateway import running

LOCKING = """
import fcntl, json, os, sys, time
lock, found_taken = open(sys.argv[1], "w"), sys.argv[1] + ".taken"
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(found_taken, "w").close()
    sys.exit("the lock is taken")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        told = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "a", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
while not os.path.exists(found_taken):
    time.sleep(0.01)
"""


@pytest.mark.anyio
async def test_a_server_that_only_one_process_can_be_comes_back_at_once(tmp_path: Path) -> None:
    """A client that ends its session and begins another meets the process of the first one, which has not ended yet."""
    command = (sys.executable, "-c", LOCKING, str(tmp_path / "lock"))
    server = Server(id="a", upstream=Upstream(command=command), answer_early=False)
    settings = Settings(core=Core(port=0, drain_seconds=5.0), servers=(server,))
    async with running(settings, listen=True, is_lasting=False) as gateway:
        url = f"{gateway.base_url}/mcp"
        first, second = Caller(url), Caller(url)
        assert (await first.initialize())["serverInfo"]["name"] == "a"
        assert first.session is not None
        async with requested(url, "DELETE", {"mcp-session-id": first.session}) as response:
            assert response.status < 300
        assert (await second.initialize())["serverInfo"]["name"] == "a"
        assert (tmp_path / "lock.taken").exists()
        (status,) = gateway.hub.engine.report()
        assert (status.starts, status.failures) == (3, 0)
