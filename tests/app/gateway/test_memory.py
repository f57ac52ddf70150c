"""Tests of a gateway that runs out of memory."""

from __future__ import annotations

import concurrent.futures
import json
import resource
import sys
from pathlib import Path

import pytest
from command import Run, Session, request, until

PEER = Path(__file__).parents[1] / "peers" / "toolbox.py"
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
SPARE_BYTES = 40 * 1024 * 1024
"""Address space that the gateway is left: enough for one large message, and not for several."""


@pytest.mark.skipif(sys.platform != "linux", reason="sets the limit of another process")
def test_a_gateway_without_memory_refuses_what_is_large_and_recovers() -> None:
    with Run("wrap", "--listen", "127.0.0.1:0", "--", sys.executable, str(PEER)) as gateway:
        url = gateway.wait_url()
        session = Session(url)
        assert session.call("echo", text="there") == "toolbox says there"
        pid = gateway.pid
        used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        params = {"name": "echo", "arguments": {"text": "x" * 15_000_000}}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()
        headers = {**HEADERS, "Mcp-Session-Id": session.id or ""}

        def send(_: int) -> int:
            try:
                return request("POST", url, body, headers)[0]
            except ConnectionError:  # what was sent meets a closed connection, and the answer is lost
                return 0

        before = resource.prlimit(pid, resource.RLIMIT_AS, (used + SPARE_BYTES, resource.RLIM_INFINITY))
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            statuses = list(threads.map(send, range(16)))
        assert {503, 0} & set(statuses), "memory was not scarce"
        resource.prlimit(pid, resource.RLIMIT_AS, before)
        until(lambda: send(0) == 200, "a large message is taken again")
        assert Session(url).call("echo", text="there") == "toolbox says there"
        assert "there is no memory for" in gateway.stderr
        assert "Traceback" not in gateway.stderr
