"""The balancers of examples/run send each request to the replica that its name names, or to any."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from rig import ROOT, free_ports, launched, listens, serve, until

pytestmark = pytest.mark.real

RUN: Final = ROOT / "examples/run"
ADDRESSES: Final = {"a": "10.0.0.3:8932", "b": "10.0.0.4:8932"}
RULED: Final = ["haproxy.cfg", "nginx-replicas.conf"]
FILES: Final = [*RULED, *(f"{name} without rules" for name in RULED)]
AROUND: Final = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {site}
}}
"""
"""A configuration of nginx around a site, in place of that of Debian."""


class Stub:
    """A backend that answers with its name and keeps what it was asked."""

    def __init__(self, name: str) -> None:
        self.name, self.probes = name, list[tuple[str, str | None]]()
        self.posts, self.go_on, self.breaks = 0, threading.Event(), False
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/readyz":
                    stub.probes.append((self.request_version, self.headers["Host"]))
                self.send_response(101 if self.headers["Upgrade"] else 200)
                if self.headers["Upgrade"]:
                    self.send_header("Upgrade", "websocket")
                    self.send_header("Connection", "Upgrade")
                    self.send_header("Sec-WebSocket-Accept", "s3pPLBMiTxaQ9kYGzzhZRbK+xOo=")  # to the key of RFC 6455
                else:
                    self.send_header("Connection", "close")
                self.send_header("X-Replica", stub.name)
                self.send_header("X-Seen", self.headers["X-Forwarded-For"] or "")
                self.end_headers()
                self.wfile.write(b"data: first\n")
                if self.path == "/stream":
                    stub.go_on.wait(30)
                    self.wfile.write(b"data: last\n")

            def do_POST(self) -> None:
                stub.posts += 1
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                self.close_connection = True
                if not stub.breaks:
                    self.do_GET()

            do_HEAD = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


class Balanced(NamedTuple):
    """A balancer in front of two backends."""

    port: int
    stubs: dict[str, Stub]

    def ask(self, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if method in {"GET", "DELETE"} else b"{}", names)
        return connection.getresponse()

    def answers(self, path: str, method: str = "GET", **headers: str) -> str | None:
        return self.ask(path, method, **headers).getheader("X-Replica")


def words_of(name: str, folder: Path, port: int, addresses: dict[str, str]) -> list[str]:
    """The command that runs a file of examples/run, without TLS, in front of these addresses."""
    program = shutil.which("haproxy" if name.startswith("haproxy") else "nginx")
    if program is None:
        pytest.skip(f"needs the balancer of {name}")
    file, _, is_plain = name.partition(" ")
    text = (RUN / file).read_text()
    if is_plain:  # as docs/run.md says
        rules = r"(?m)^ +use-server .*\n|(?<=http://)\$replica"
        text, count = re.subn(rules, lambda rule: "any" * (rule[0] == "$replica"), text)
        assert count
    for tag, there in ADDRESSES.items():
        assert there in text
        text = text.replace(there, addresses[tag])
    for tag in addresses.keys() - ADDRESSES.keys():  # further ones, each with the lines of b
        in_order = r"(?m)^ +(?:use-)?server b .*\n|^ +server " + addresses["b"] + r"[^;]*;\n(?=\})"
        text, count = re.subn(in_order, partial(_with_line_of, tag, addresses), text, count=2)
        assert count
    path = folder / file
    if name.startswith("haproxy"):
        text, count = re.subn(r"bind :443 ssl crt \S+", f"bind 127.0.0.1:{port}", text)
        path.write_text(text)
        words, check = [program, "-db", "-f", str(path)], "-c"
    else:
        text, count = re.subn(r"listen 443 ssl;\n", f"listen 127.0.0.1:{port};\n", text)
        text = re.sub(r"\n +ssl_certificate.*", "", text)
        path.write_text(AROUND.format(folder=folder, site=text))
        words, check = [program, "-c", str(path), "-p", str(folder)], "-t"
    assert count == 1
    subprocess.run([*words, check], check=True, capture_output=True, timeout=30)
    return words


def _with_line_of(tag: str, addresses: dict[str, str], line: re.Match[str]) -> str:
    return line[0] + line[0].replace("server b ", f"server {tag} ").replace(" b.", f" {tag}.").replace(
        "/tus/b", f"/tus/{tag}"
    ).replace(addresses["b"], addresses[tag])


Balance = Callable[[str], contextlib.AbstractContextManager[Balanced]]


@pytest.fixture
def balance(tmp_path: Path) -> Balance:
    @contextlib.contextmanager
    def start(name: str) -> Iterator[Balanced]:
        with contextlib.ExitStack() as stack:
            stubs = {tag: Stub(tag) for tag in ADDRESSES}
            for stub in stubs.values():
                stack.callback(stub.close)
            (port,) = free_ports(1)
            words = words_of(name, tmp_path, port, {tag: f"127.0.0.1:{stub.port}" for tag, stub in stubs.items()})
            process = stack.enter_context(launched(words, folder=tmp_path, code=None))
            until(lambda: listens(port), f"{name} listens, see {process.log}")
            yield Balanced(port, stubs)

    return start


@pytest.mark.parametrize("name", RULED)
def test_a_name_leads_to_its_owner(balance: Balance, name: str) -> None:
    with balance(name) as balanced:
        for tag in ("a", "b", "a", "a", "b", "b"):
            assert balanced.answers("/mcp", "POST", Mcp_Session_Id=f"{tag}.3f0c") == tag
            assert balanced.answers("/mcp", "DELETE", Mcp_Session_Id=f"{tag}.3f0c") == tag
            assert balanced.answers(f"/messages?sessionId={tag}.3f0c", "POST") == tag
            assert balanced.answers(f"/upload/one/tus/{tag}.3f0c", "PATCH") == tag
        assert {balanced.answers("/mcp", "POST") for _ in range(8)} == {"a", "b"}


@pytest.mark.parametrize("name", FILES)
def test_streams_sockets_addresses_and_turns(balance: Balance, name: str) -> None:
    with balance(name) as balanced:
        assert {balanced.answers("/mcp", "POST") for _ in range(8)} == {"a", "b"}
        assert balanced.ask("/mcp", X_Forwarded_For="203.0.113.9").getheader("X-Seen") == "127.0.0.1"
        stream = balanced.ask("/stream")
        assert stream.readline() == b"data: first\n", "before the stream has ended"
        for stub in balanced.stubs.values():
            stub.go_on.set()
        assert stream.readline() == b"data: last\n"
        handshake = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13"}
        assert balanced.ask("/ws", Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==", **handshake).status == 101


@pytest.mark.parametrize("name", FILES)
def test_only_what_was_not_sent_is_sent_again(balance: Balance, name: str) -> None:
    with balance(name) as balanced:
        for stub in balanced.stubs.values():
            stub.breaks = True
        assert balanced.ask("/mcp", "POST", Mcp_Session_Id="a.3f0c").status in {502, 503}
        assert sum(stub.posts for stub in balanced.stubs.values()) == 1
        balanced.stubs["b"].breaks = False
        balanced.stubs["a"].close()
        for _ in range(4):
            assert balanced.answers("/mcp", "POST", Mcp_Session_Id="a.3f0c") == "b"


def test_haproxy_asks_without_a_host(balance: Balance) -> None:
    with balance("haproxy.cfg") as balanced:
        for stub in balanced.stubs.values():
            until(lambda stub=stub: stub.probes, "haproxy asks /readyz")
            assert stub.probes[0] == ("HTTP/1.0", None)


def test_a_gateway_answers_probes_of_any_host_with_no_more_than_a_status(tmp_path: Path) -> None:
    """A kubelet names the address of the pod, and haproxy names nothing and speaks HTTP/1.0."""
    config = tmp_path / "isthmus.json"
    upstream = {"command": [sys.executable, "-m", "isthmus.app.commands.demo_server"]}
    config.write_text(json.dumps({"core": {"port": 0}, "servers": [{"id": "demo", "upstream": upstream}]}))
    with serve(config, folder=tmp_path) as proxy:
        port = int(proxy.base_url.rpartition(":")[2])
        for host in ("Host: foreign.example\r\n", "Host: 10.0.0.7:8932\r\n", ""):
            for page, status in (("healthz", 200), ("readyz", 200), ("info", 403), ("mcp", 403)):
                with socket.create_connection(("127.0.0.1", port), timeout=30) as asking:
                    asking.sendall(f"GET /{page} HTTP/1.0\r\n{host}\r\n".encode())
                    response = http.client.HTTPResponse(asking)
                    response.begin()
                    body = response.read()
                if status == 200:
                    assert response.status == status, (host, page)
                    assert json.loads(body) == {"status": "ok", "service": "isthmus"}, (host, page)
                else:
                    assert response.status in {400, 401, 403}, (host, page)
        (front,) = free_ports(1)
        words = words_of("haproxy.cfg", tmp_path, front, dict.fromkeys(ADDRESSES, f"127.0.0.1:{port}"))
        with launched(words, folder=tmp_path, code=None):
            until(lambda: listens(front), "haproxy listens")
            connection = http.client.HTTPConnection("127.0.0.1", front, timeout=30)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200, "haproxy takes the replica for ready"


@pytest.mark.parametrize("name", RULED)
def test_a_gateway_sees_the_client_behind_the_balancer(tmp_path: Path, name: str) -> None:
    """The address that the client has written itself does not count."""
    config = tmp_path / "isthmus.json"
    core = {"port": 0, "trusted_proxies": ["127.0.0.1"]}
    auth = {"tokens": [{"name": "alice", "sha256": "80ef1e526e137bb5349d5d06311d5e86f1f9986838c4a44a11db1a09545abf36"}]}
    upstream = {"command": [sys.executable, "-m", "isthmus.app.commands.demo_server"]}
    config.write_text(json.dumps({"core": core, "auth": auth, "servers": [{"id": "demo", "upstream": upstream}]}))
    with serve(config, folder=tmp_path) as proxy:
        (front,) = free_ports(1)
        there = proxy.base_url.partition("//")[2]
        with launched(words_of(name, tmp_path, front, dict.fromkeys(ADDRESSES, there)), folder=tmp_path, code=None):
            until(lambda: listens(front), "the balancer listens")
            connection = http.client.HTTPConnection("127.0.0.1", front, timeout=30, source_address=("127.0.0.2", 0))
            connection.request("POST", "/mcp", b"{}", {"X-Forwarded-For": "198.51.100.7"})
            assert connection.getresponse().status == 401
        until(
            lambda: "denied: POST /mcp from 127.0.0.2: no credentials" in proxy.stderr, "the audit log names the client"
        )
