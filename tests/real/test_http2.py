"""Tests of servers that speak HTTP/2 alone: official SDKs on Hypercorn and on Node's http2, and nginx."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import make_authority
from rig import (
    PEERS,
    PYTHON_1,
    REAL,
    Process,
    free_ports,
    launched,
    listens,
    require,
    run_client,
    start_server,
    stdio_wrap,
    until,
    wrap,
)

pytestmark = pytest.mark.real

BIG_BYTES = 5 * 1024 * 1024
STEPS: list[dict[str, Any]] = [
    {"op": "tools"},
    {"op": "call", "name": "count", "arguments": {"to": 20}, "progress": True},
    {"op": "call", "name": "big", "arguments": {}},
    {"op": "cancel", "name": "wait", "arguments": {}},
    {"op": "call", "name": "cancelled", "arguments": {}},
    {"op": "call", "name": "change", "arguments": {}},
    {"op": "await", "method": "notifications/tools/list_changed"},
    {"op": "call", "name": "versions", "arguments": {}},
]
CASES = [
    ("hypercorn", "https", "python-1", "http", "asyncio"),
    ("hypercorn", "http", "python-1", "stdio", "trio"),
    ("node", "https", "typescript-1", "http", "trio"),
    ("node", "http", "typescript-1", "http", "asyncio"),
]
"""The server, its scheme, the client, its transport, and the event loop of the proxy."""
if os.environ.get("THOROUGH"):
    CASES = [
        (server, scheme, client, down, loop)
        for server in ("hypercorn", "node")
        for scheme in ("http", "https")
        for client in ("python-1", "typescript-1")
        for down in ("http", "stdio")
        for loop in ("asyncio", "uvloop", "trio")
    ]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_authority(folder)
    return folder


@contextlib.contextmanager
def serving(server: str, scheme: str, authority: Path, folder: Path) -> Iterator[tuple[Process, str]]:
    """Runs a server. Yields its process and URL."""
    commands = {
        "hypercorn": [require(PYTHON_1), PEERS / "http2_tools.py"],
        "node": ["node", PEERS / "http2_tools.mjs", require(REAL / "node/node_modules")],
    }
    certificate = [authority / "leaf.pem", authority / "leaf.key"] if scheme == "https" else []
    process, url = start_server([*commands[server], *certificate], "mcp", folder=folder)
    try:
        yield process, url.replace("http://127.0.0.1", f"{scheme}://localhost") if certificate else url
        process.stop(code=None)
    finally:
        process.clean_up()


@pytest.mark.parametrize("server, scheme, client, down, loop", CASES)
def test_official_clients_use_it(
    server: str, scheme: str, client: str, down: str, loop: str, authority: Path, tmp_path: Path
) -> None:
    """Clients have all of it: progress on the stream of a call, a large result, a cancellation, the GET stream."""
    options = ["--ca-file", str(authority / "ca.pem")] if scheme == "https" else []
    with contextlib.ExitStack() as stack:
        process, url = stack.enter_context(serving(server, scheme, authority, tmp_path))
        if down == "http":
            env = {"ISTHMUS_LOOP": loop}
            proxy = stack.enter_context(wrap(url, folder=tmp_path, options=options, env=env))
            target: str | list[str] = proxy.url
        else:
            target = ["env", f"ISTHMUS_LOOP={loop}", *stdio_wrap(url, options=options)]
        events = run_client(client, target, [{"capabilities": "none", "steps": STEPS}], folder=tmp_path)
        seen = process.describe()
    steps = {event["number"]: event for event in events if event["kind"] == "step"}
    assert len(steps) == len(STEPS) and all("result" in step for step in steps.values()), (steps, seen)
    texts = {number: step["result"]["content"][0]["text"] for number, step in steps.items() if number in (1, 4, 5, 7)}
    assert texts == {1: "counted to 20", 4: "wait", 5: "changed", 7: texts[7]}
    assert [event["progress"] for event in events if event["kind"] == "progress"] == list(range(1, 21))
    assert steps[2]["result"]["content"][0]["text"] == "x" * BIG_BYTES
    versions = texts[7].replace("2.0", "2").split()
    assert set(versions) >= {"GET:2", "POST:2"} and all(version.endswith(":2") for version in versions)


def test_without_the_package_its_name_is_on_the_screen(authority: Path, tmp_path: Path) -> None:
    """h2 cannot be imported, as where it was not installed."""
    (tmp_path / "h2.py").write_text("raise ModuleNotFoundError('no h2', name='h2')\n")
    for scheme in ("http", "https"):
        options = ["--ca-file", str(authority / "ca.pem")] if scheme == "https" else []
        with serving("node", scheme, authority, tmp_path) as (_, url):
            with wrap(url, folder=tmp_path, options=options, env={"PYTHONPATH": str(tmp_path)}, asks=True) as proxy:
                assert "pip install 'isthmus[http2]'" in proxy.banner, proxy.describe()


NGINX = """
load_module {modules}/ngx_stream_module.so;
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
stream {{
    server {{
        listen 127.0.0.1:{tls} ssl;
        ssl_certificate {leaf}.pem; ssl_certificate_key {leaf}.key; ssl_alpn h2;
        proxy_pass 127.0.0.1:{plain};
    }}
}}
http {{
    access_log {folder}/access.log; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{plain} http2;
        listen 127.0.0.1:{both} ssl http2;
        ssl_certificate {leaf}.pem; ssl_certificate_key {leaf}.key;
        keepalive_requests 3;
        proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
        location / {{ proxy_pass http://127.0.0.1:{behind}; }}
    }}
}}
"""
MODULES = Path("/usr/lib/nginx/modules")


@pytest.mark.skipif(
    shutil.which("nginx") is None or not (MODULES / "ngx_stream_module.so").exists(), reason="needs nginx with stream"
)
def test_nginx(authority: Path, tmp_path: Path) -> None:
    """nginx in HTTP/2 alone, without and with TLS, and in both versions. Each connection has three requests, and then
    gets GOAWAY together with the third."""
    nginx = shutil.which("nginx")
    assert nginx is not None
    command = [sys.executable, "-m", "isthmus.app.commands.demo_server"]
    ports = dict(zip(("tls", "plain", "both"), free_ports(3), strict=True))
    with wrap(*command, folder=tmp_path) as behind:
        places = {"modules": MODULES, "folder": tmp_path, "leaf": authority / "leaf", "behind": behind.port}
        config = tmp_path / "nginx.conf"
        config.write_text(NGINX.format(**ports, **places))
        with launched([nginx, "-c", config, "-p", tmp_path], folder=tmp_path, code=None) as process:
            until(lambda: all(map(listens, ports.values())), f"nginx listens, see {process.log}")
            ca = ("--ca-file", str(authority / "ca.pem"))
            for name, path, options in (
                ("plain", "mcp", ()),
                ("plain", "sse", ()),
                ("tls", "mcp", ca),
                ("both", "mcp", ca),
            ):
                scheme, host = ("http", "127.0.0.1") if name == "plain" else ("https", "localhost")
                url = f"{'sse+' * (path == 'sse')}{scheme}://{host}:{ports[name]}/{path}"
                with wrap(url, folder=tmp_path, options=options) as proxy:
                    plan = {"capabilities": "none", "steps": [{"op": "tools"}] * 20}
                    events = run_client("python-1", proxy.url, [plan], folder=tmp_path)
                results = [event for event in events if event["kind"] == "step"]
                assert len(results) == 20 and all(event.get("result") for event in results), (name, results)
                assert "GOAWAY" not in proxy.stderr
                log = (tmp_path / "access.log").read_text()
                (tmp_path / "access.log").write_text("")
                version = "HTTP/1.1" if name == "both" else "HTTP/2.0"
                assert f" /{path} {version}" in log and log.count(version) == log.count("HTTP/"), (name, log)
