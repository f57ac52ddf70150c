"""Tests of a gateway that runs out of file descriptors."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from command import INITIALIZE, Run, Session, request, until

PEER = Path(__file__).parents[1] / "peers" / "toolbox.py"
OPEN_FILES = 48
FEW_FILES = ("sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh")
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


def test_a_gateway_without_a_free_descriptor_refuses_clients_until_there_is_one() -> None:
    def begin() -> tuple[int, str]:
        try:
            status, body = request("POST", url, json.dumps(INITIALIZE).encode(), HEADERS)
        except ConnectionError:  # what was sent meets a closed connection, and the answer is lost
            return 0, ""
        return status, json.dumps(body)

    def connect() -> None:
        held.enter_context(socket.create_connection((address.hostname, address.port)))

    with Run("wrap", "--listen", "127.0.0.1:0", "--", sys.executable, str(PEER), through=FEW_FILES) as gateway:
        url = gateway.wait_url()
        address = urlsplit(url)
        first = Session(url)  # its server runs already, so its calls need nothing new
        with contextlib.ExitStack() as held:
            for _ in range(OPEN_FILES):  # more processes, until there is no pipe for another
                status, body = begin()
                if '"error"' in body:
                    break
            assert status == 200 and "Too many open files; raise the limit of open files (ulimit -n)" in body
            for _ in range(OPEN_FILES):  # and idle connections, until one cannot be accepted
                connect()
                status, body = begin()
                if status == 503:
                    break
            assert status == 503 and "this server has no free file descriptor; try again later" in body
        until(lambda: request("GET", url.replace("/mcp", "/healthz"))[0] == 200, "requests are answered again")
        assert first.call("echo", text="there") == "toolbox says there"
        assert gateway.stderr.count("cannot accept connections for now: Too many open files") == 1
