"""Tests of one trace through Isthmus: from an official Python SDK as a client to one as a server, with spans of all.

Client and server record with OpenTelemetry's own SDK. mcp 2.x makes the spans itself, and puts contexts into `_meta`.
mcp 1.x knows nothing of traces: client and tool make theirs. All spans come to one collector, as one trace.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from otlp_receiver import Collector, Span, collector
from rig import CLIENTS, PEERS, PYTHON_1, PYTHON_2, Process, require, serve, start_server

pytestmark = pytest.mark.real

SECRET: Final = "hunter2-of-the-vault"
NEEDED: Final = ("opentelemetry*", "google", "requests", "urllib3", "certifi", "charset_normalizer", "idna")
"""The packages of OpenTelemetry's SDK, which the environments of the peers do not have."""

SERVERS: Final = {
    "python-1": (PYTHON_1, PEERS / "traced_python1.py"),
    "python-2": (PYTHON_2, PEERS / "traced_python2.py"),
}
VISITS: Final = {
    "python-1": (PYTHON_1, CLIENTS / "traced_python1.py", "meta"),
    "python-1-header": (PYTHON_1, CLIENTS / "traced_python1.py", "header"),
    "python-2": (PYTHON_2, CLIENTS / "traced_python2.py", "auto"),
    "python-2-legacy": (PYTHON_2, CLIENTS / "traced_python2.py", "legacy"),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with OpenTelemetry's SDK of this environment, for those of the peers."""
    folder, installed = tmp_path_factory.mktemp("packages"), Path(sysconfig.get_path("purelib"))
    for pattern in NEEDED:
        for path in installed.glob(pattern):
            (folder / path.name).symlink_to(path)
    return folder


@contextlib.contextmanager
def gateway(folder: Path, server: str, transport: str, env: dict[str, str], telemetry: dict[str, Any]) -> Iterator[str]:
    """Runs a gateway before a server. Yields its URL."""
    python, script = SERVERS[server]
    with contextlib.ExitStack() as stack:
        upstream: dict[str, Any] = {"command": [str(require(python)), str(script), "stdio"], "env": env}
        if transport == "http":
            process, url = start_server([require(python), script, "http"], "mcp", folder=folder, env=env)
            stack.callback(process.clean_up)
            upstream = {"url": url}
        config = folder / "isthmus.json"
        settings = {
            "core": {"port": 0},
            "storage": {"root": str(folder / "data")},
            "telemetry": telemetry,
            "servers": [{"id": "far", "upstream": upstream, "warm": 0}],
        }
        config.write_bytes(msgspec.json.encode(settings))
        with serve(config, folder=folder) as proxy:
            yield f"{proxy.base_url}/mcp/far"


def visit(folder: Path, client: str, url: str, env: dict[str, str]) -> None:
    python, script, way = VISITS[client]
    process = Process([require(python), script, url, SECRET, way], folder=folder, env=env)
    try:
        process.wait_line(SECRET)
        process.wait_exit()
    finally:
        process.clean_up()


def environment(found: Collector, packages: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{packages}:{PEERS}", "OTEL_EXPORTER_OTLP_ENDPOINT": found.url}


def chain(spans: list[Span]) -> list[Span] | None:
    """Returns the span of the tool at the server and those above it, the uppermost first; None if one is missing."""
    by_id = {span.span_id: span for span in spans}
    last = [one for one in spans if one.service == "server" and one.name == "tools/call echo"]
    if not last:
        return None
    found = [last[0]]
    while found[-1].parent_id:
        above = by_id.get(found[-1].parent_id)
        if above is None:
            return None
        found.append(above)
    return found[::-1]


TRANSPORTS: Final = ("stdio", "http")
MEETINGS: Final = [
    ("python-1", "python-1", "stdio"),
    ("python-1-header", "python-2", "http"),
    ("python-2", "python-1", "http"),
    ("python-2", "python-2", "stdio"),
    ("python-2-legacy", "python-2", "http"),
]
"""Each client, server and transport, and both eras on either side. With THOROUGH set, each client meets each server."""


@pytest.mark.parametrize(
    ("client", "server", "transport"),
    itertools.product(VISITS, SERVERS, TRANSPORTS) if os.environ.get("THOROUGH") else MEETINGS,
)
def test_a_call_is_one_trace(tmp_path: Path, packages: Path, client: str, server: str, transport: str) -> None:
    with collector() as found:
        env = environment(found, packages)
        with gateway(tmp_path, server, transport, env, {"traces": {"endpoint": found.url}}) as url:
            visit(tmp_path, client, url, env)
        spans = found.wait_for(lambda spans: chain(spans) is not None)
        whole = chain(spans)
        assert whole is not None
        assert len({span.trace_id for span in whole}) == 1
        *above, outer, inner, tool = whole
        assert {span.service for span in above} == {"client"}
        assert [(one.service, one.kind, one.name) for one in (outer, inner)] == [
            ("isthmus", "SERVER", "tools/call echo"),
            ("isthmus", "CLIENT", "tools/call echo"),
        ]
        assert (tool.service, tool.kind) == ("server", "SERVER")
        assert inner.attributes["network.transport"] == ("pipe" if transport == "stdio" else "tcp")
        modern = "2026-07-28"
        assert (outer.attributes["mcp.protocol.version"] == modern) is (client == "python-2")
        if server == "python-1":
            assert inner.attributes["mcp.protocol.version"] < modern
        assert not any(SECRET.encode() in body for body in found.bodies)


@pytest.mark.parametrize("server", SERVERS)
def test_the_bridge_joins_a_header_and_meta_without_spans_of_its_own(
    tmp_path: Path, packages: Path, server: str
) -> None:
    """A client that sends headers, and a server on stdio, which has none."""
    with collector() as found:
        env = environment(found, packages)
        with gateway(tmp_path, server, "stdio", env, {"bridge": True}) as url:
            visit(tmp_path, "python-1-header", url, env)
        whole = chain(found.wait_for(lambda spans: chain(spans) is not None))
        assert whole is not None
        assert [(one.service, one.name) for one in whole] == [("client", "visit"), ("server", "tools/call echo")]
