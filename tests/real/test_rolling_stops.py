"""Replicas behind haproxy are stopped and started one after another, while clients call all the time."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import test_balancers
from record_servers import NotInstalled, PostgresServer, free_port, running
from rig import ROOT, Proxy, free_ports, launched, listens, serve, until
from s3_server import MOTO, S3Server, running_server
from shared_gateways import KEY, SharedStores

pytestmark = pytest.mark.real

TOOLBOX: Final = ROOT / "tests/app/peers/toolbox.py"
DELAY_S: Final = 5
"""The default where other machines can connect."""
NAMES: Final = "io.modelcontextprotocol/"
MODERN: Final = {
    f"{NAMES}protocolVersion": "2026-07-28",
    f"{NAMES}clientCapabilities": {},
    f"{NAMES}clientInfo": {"name": "caller", "version": "0"},
}


class Site:
    """Two replicas with fixed ports, and haproxy as examples/run has it before them."""

    def __init__(self, folder: Path, records: PostgresServer, blobs: S3Server) -> None:
        self.folder, self.stores = folder, SharedStores(records, blobs)
        self.ports = dict(zip("ab", free_ports(2), strict=True))
        self.internal = {tag: free_port() for tag in "ab"}
        (self.port,) = free_ports(1)

    @contextlib.contextmanager
    def replica(self, tag: str) -> Iterator[Proxy]:
        settings = {
            "core": {"port": self.ports[tag], "link_keys": [KEY], "shutdown_delay_seconds": DELAY_S},
            "sessions": {"request_state_keys": [KEY]},
            "storage": {"root": f"data-{tag}", "records": self.stores.records, "blobs": self.stores.blobs},
            "cluster": {"replica": tag, "listen": f"127.0.0.1:{self.internal[tag]}", "secret": KEY},
            "servers": [{"id": "tools", "upstream": {"command": [sys.executable, str(TOOLBOX)]}}],
        }
        config = self.folder / f"{tag}.json"
        config.write_text(json.dumps(settings))
        env = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
        with serve(config, folder=self.folder, env=env) as proxy:
            yield proxy

    @contextlib.contextmanager
    def balancer(self) -> Iterator[None]:
        addresses = {tag: f"127.0.0.1:{port}" for tag, port in self.ports.items()}
        words = test_balancers.words_of("haproxy.cfg", self.folder, self.port, addresses)
        with launched(words, folder=self.folder, code=None):
            until(lambda: listens(self.port), "haproxy listens")
            yield

    def answering(self) -> str:
        """The tag of the replica that answers a request through the balancer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", "/healthz")
            tag: str = json.loads(connection.getresponse().read())["replica"]
            return tag


class Clients:
    """Clients that call all the time through the balancer, each in a thread.

    Attributes:
        seen: what came of the calls: `answered`, `ended` for the 404 of a session that has ended, or what went wrong.
    """

    def __init__(self, port: int) -> None:
        self.seen: Counter[str] = Counter()
        self._port = port
        self._is_over = threading.Event()
        kinds = [(self._call, True), (self._call, False), (self._use_sessions, True), (self._use_sessions, True)]
        self._threads = [threading.Thread(target=work, args=(keeps,), daemon=True) for work, keeps in kinds]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)

    def wait_more(self, count: int = 50) -> None:
        wanted = self.seen["answered"] + count
        until(lambda: self.seen["answered"] >= wanted, "more calls are answered")

    def _call(self, keeps: bool) -> None:
        """Calls without a session, on one connection or on one for each call."""
        for number, connection in self._connections(keeps):
            params = {"name": "echo", "arguments": {"text": str(number)}, "_meta": MODERN}
            headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
            self._note(number, *self._post(connection, "tools/call", params, headers)[:2])

    def _use_sessions(self, keeps: bool) -> None:
        """Calls in a session, and begins another one when it has ended."""
        session: str | None = None
        for number, connection in self._connections(keeps):
            if session is None:
                params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
                params["clientInfo"] = {"name": "caller", "version": "0"}
                status, body, session = self._post(connection, "initialize", params, {})
                if session is None:
                    self.seen[f"initialize: {status} {body[:200]!r}"] += 1
            else:
                params = {"name": "echo", "arguments": {"text": str(number)}}
                status, body, _ = self._post(connection, "tools/call", params, {"Mcp-Session-Id": session})
                if status == 404:
                    session = None
                    self.seen["ended"] += 1
                else:
                    self._note(number, status, body)

    def _connections(self, keeps: bool) -> Iterator[tuple[int, http.client.HTTPConnection]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        for number in itertools.count():
            if self._is_over.wait(0.01):
                connection.close()
                return
            yield number, connection
            if not keeps:
                connection.close()

    def _post(
        self, connection: http.client.HTTPConnection, method: str, params: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, bytes, str | None]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        try:
            connection.request("POST", "/mcp/tools", body, {**usual, **headers})
            response = connection.getresponse()
            return response.status, response.read(), response.getheader("Mcp-Session-Id")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return 0, repr(error).encode(), None

    def _note(self, number: int, status: int, body: bytes) -> None:
        is_answered = status == 200 and f"{number}".encode() in body and b'"result"' in body
        self.seen["answered" if is_answered else f"{status} {body[:200]!r}"] += 1


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if not MOTO.exists():
        pytest.skip("needs moto")
    with contextlib.ExitStack() as stack:
        try:
            records = stack.enter_context(running("postgres"))
        except NotInstalled as missing:
            pytest.skip(str(missing))
        assert isinstance(records, PostgresServer)
        (tmp_path / "moto").mkdir()
        yield Site(tmp_path, records, stack.enter_context(running_server(tmp_path / "moto")))


def test_no_request_is_lost_when_replicas_are_stopped_one_after_another(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        second = stack.enter_context(site.replica("b"))
        stack.enter_context(site.balancer())
        first = stack.enter_context(site.replica("a"))
        clients = stack.enter_context(Clients(site.port))
        clients.wait_more()
        first.stop()
        clients.wait_more()
        stack.enter_context(site.replica("a"))
        until(lambda: site.answering() == "a", "the balancer has seen that it is back")
        clients.wait_more()
        second.stop()
        clients.wait_more()
        clients.stop()
    assert set(clients.seen) <= {"answered", "ended"}, clients.seen
