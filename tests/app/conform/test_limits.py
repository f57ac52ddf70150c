"""Tests of the limits of `isthmus conform --client`, and of the certificates of servers at wss://."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conforming import KNOWN, Run
from faulty_streams import Sockets, serving
from isthmus.app.conform.script.behaviour import Behaviour
from isthmus.app.conform.servers import stdio, websocket
from isthmus.app.conform.servers.client_process import START_S, TALK_MAX, Client
from isthmus.app.conform.servers.duplex import CONNECTIONS_MAX, ServerConnections
from isthmus.app.conform.servers.http import Server
from isthmus.app.conform.servers.http_connections import HttpConnections
from isthmus.app.conform.servers.http_request import Request
from isthmus.app.conform.servers.ledger import Ledger
from isthmus.app.conform.servers.sse import SseChannel
from isthmus.app.conform.servers.stdio import PipeListener
from isthmus.app.conform.servers.websocket import SocketChannel
from isthmus.core.oracle.observations import Role, Said
from isthmus.transports.stdio.server_process import ChildSpec

PATIENCE_S = 20.0
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
}

# --- Time -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def idler() -> Iterator[Client]:
    """A client that does nothing until it is ended."""
    client = Client(ChildSpec((sys.executable, "-S", "-c", "import time; time.sleep(600)")))
    try:
        yield client
    finally:
        client.end()


def busy(ledger: Ledger) -> Iterator[float]:
    """A clock that advances a second at every look, with activity at each."""
    for now in itertools.count():
        ledger.active_at = float(now)
        yield float(now)


@pytest.mark.parametrize("timeout_s, last", [(1.0, START_S), (100.0, 100.0)])
def test_a_client_that_says_nothing_is_given_its_time_to_start(timeout_s: float, last: float) -> None:
    """The time is `START_S`, or as long as an answer may take. The client does not count as hung, as it has not
    begun."""
    looks = iter([0.0, 0.0, last, last + 0.1])
    with idler() as client:
        assert not client.wait(ledger := Ledger(timeout_s), timeout_s, lambda: next(looks))
    assert list(looks) == [], "it was waited for until then"
    assert not ledger.is_cut


def test_a_conversation_without_end_is_ended() -> None:
    """Messages up to `TALK_MAX` are judged, but missing ones are not reported."""
    ledger = Ledger(2.0)
    ledger.see(0, Said(0, Role.CLIENT, b"{}"))
    looks = busy(ledger)
    with idler() as client:
        assert not client.wait(ledger, 2.0, lambda: next(looks))
    assert ledger.is_cut
    assert next(looks) == START_S + TALK_MAX * 2.0 + 2, "the look after the first that is too late"


def test_a_client_that_falls_silent_hangs() -> None:
    ledger = Ledger(2.0)
    ledger.see(0, Said(0, Role.CLIENT, b"{}"))
    ledger.active_at = 5.0
    looks = iter([0.0, 7.0, 7.1])
    with idler() as client:
        assert client.wait(ledger, 2.0, lambda: next(looks))
    assert list(looks) == []


# --- Connections ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def gate(ledger: Ledger) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened = PipeListener(listener, "token", ServerConnections(Behaviour("2025-06-18"), ledger))
        try:
            yield listener
        finally:
            ledger.close()
            opened.cut()
            opened.close()


@contextlib.contextmanager
def accepting(kind: type[Request]) -> Iterator[tuple[int, Ledger]]:
    ledger = Ledger(1.0)
    with Server(HttpConnections(Behaviour("2025-06-18"), ledger), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, ledger
        finally:
            ledger.close()
            server.shutdown()
            thread.join()


def test_no_more_servers_are_started_than_there_may_be() -> None:
    with gate(Ledger(1.0)) as listener, contextlib.ExitStack() as peers:
        for _ in range(CONNECTIONS_MAX):
            peer = peers.enter_context(socket.create_connection(listener.getsockname(), PATIENCE_S))
            peer.sendall(b'token\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            assert peer.makefile("rb").readline() == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
        with contextlib.suppress(ConnectionError):
            late = peers.enter_context(socket.create_connection(listener.getsockname(), PATIENCE_S))
            late.sendall(b"token\n")
            assert late.recv(1) == b"", "it is hung up on"


@pytest.mark.parametrize("kind, path, status", [(SseChannel, "/sse", 200), (SocketChannel, "/ws", 101)])
def test_no_more_connections_are_taken_than_there_may_be(kind: type[Request], path: str, status: int) -> None:
    with accepting(kind) as (port, _), contextlib.ExitStack() as connections:
        seen = []
        for _ in range(CONNECTIONS_MAX + 1):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            connections.callback(connection.close)
            connection.request("GET", path, headers=UPGRADE if status == 101 else {})
            seen.append(connection.getresponse())
        assert [reply.status for reply in seen] == [status] * CONNECTIONS_MAX + [503]


# --- Lengths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, is_accepted", [(64, True), (65, False)])
def test_a_line_that_is_too_long_ends_the_conversation(
    size: int, is_accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "LINE_MAX_BYTES", 64)
    with gate(ledger := Ledger(1.0)) as listener, socket.create_connection(listener.getsockname(), PATIENCE_S) as peer:
        peer.sendall(b"token\n" + b" " * (size - 3) + b"{}\n")
        if is_accepted:
            peer.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b"", "all was read, or it was hung up on"
    assert len(ledger.seen) == is_accepted


@pytest.mark.parametrize("size, is_accepted", [(64, True), (65, False)])
def test_a_frame_that_is_too_long_ends_the_conversation(
    size: int, is_accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "BODY_MAX_BYTES", 64)
    request = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    with accepting(SocketChannel) as (port, ledger), socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:
        fields = "".join(f"{name}: {value}\r\n" for name, value in UPGRADE.items())
        peer.sendall(f"GET /ws HTTP/1.1\r\nHost: h\r\n{fields}\r\n".encode())
        with peer.makefile("rb") as lines:
            while lines.readline().strip():
                pass
            peer.sendall(_framed(request.ljust(size)))
            with contextlib.suppress(ConnectionResetError):
                assert bool(lines.read(1)) is is_accepted
    assert bool(ledger.seen) is is_accepted


def _framed(text: str) -> bytes:
    """A frame with a mask of zeros, which changes nothing."""
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text.encode()


# --- Certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, and its key in one file."""
    folder = tmp_path_factory.mktemp("tls")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    more = "-addext subjectAltName=DNS:localhost -keyout key.pem -out own.pem"
    subprocess.run(["openssl", *made.split(), *more.split()], cwd=folder, check=True, capture_output=True, timeout=30)
    with (folder / "both.pem").open("wb") as both:
        both.write((folder / "own.pem").read_bytes() + (folder / "key.pem").read_bytes())
    return folder


def test_a_certificate_of_one_s_own_is_taken_where_the_environment_names_it(
    certificate: Path, conform: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "both.pem")
    server = Sockets("")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = f"wss://localhost:{server.server_port}/ws"
        code, _, err = conform(url, "--examples", "1", *KNOWN)
        assert (code, "the server cannot be reached" in err, "SSL_CERT_FILE" in err) == (1, True, True), err
        for other in ("https", "sse+https"):
            code, _, err = conform(url.replace("wss", other), "--examples", "1", *KNOWN)
            assert (code, "SSL_CERT_FILE" in err) == (1, True), err
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "own.pem"))
        code, out, err = conform(url, "--examples", "1", *KNOWN)
        assert code == 0, out + err
