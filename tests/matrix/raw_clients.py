"""Raw clients of the four transports: each message as bytes, in order, with the stream it came on.

They use blocking sockets and threads of the standard library, and wsproto, and no part of the product.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rig import Process
from slices import members
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage

PATIENCE_S = 60.0
"""A limit that only a broken run meets."""


class Received(NamedTuple):
    stream: str
    message: bytes


class Client(ABC):
    """One session, which the caller begins by sending `initialize`."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.troubles: list[str] = []
        self._news = threading.Condition()

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Sends the message unchanged."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session, and proves that nothing is left."""

    def confirm(self, message: bytes) -> None:
        """Sends `initialized`, and opens the stream for messages of the server."""
        self.send(message)

    def take(self, stream: str, message: bytes) -> None:
        with self._news:
            self.received.append(Received(stream, message))
            self._news.notify_all()

    def fail(self, trouble: str) -> None:
        with self._news:
            self.troubles.append(trouble)
            self._news.notify_all()

    def wait(self, since: int) -> list[Received]:
        """Waits for messages from that number on, and returns them."""
        if not self.wait_until(lambda: len(self.received) > since):
            raise AssertionError(f"nothing came for {PATIENCE_S:g} s; troubles: {self.troubles}")
        return self.received[since:]

    def wait_until(self, condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
        with self._news:
            self._news.wait_for(lambda: condition() or self.troubles, timeout_s)
            assert not self.troubles, self.troubles
            return bool(condition())


# --- stdio ------------------------------------------------------------------------------------------------------------


class _Reading(Process):
    """A process whose lines are bytes."""

    def __init__(self, command: Sequence[str | Path], *, folder: Path, take: Callable[[bytes], None]) -> None:
        self._take = take
        super().__init__(command, folder=folder, has_stdin=True)

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._take(line)


class PipeClient(Client):
    """A client that starts a command and exchanges lines with it."""

    def __init__(self, command: Sequence[str | Path], *, folder: Path, code: int | None = 0) -> None:
        super().__init__()
        self._code = code
        self.process = _Reading(command, folder=folder, take=self._receive)

    def _receive(self, line: bytes) -> None:
        if line.endswith(b"\n"):
            self.take("pipe", line[:-1])
        else:
            self.fail(f"a line without an end: {line[:200]!r}")

    def send(self, message: bytes) -> None:
        self.process.write_line(message)

    def close(self) -> None:
        try:
            self.process.close_stdin()
            code = self.process.wait_exit()
            assert self._code is None or code == self._code, self.process.describe()
            self.process.assert_gone()
        finally:
            self.process.clean_up()


# --- HTTP -------------------------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    """An HTTP response other than success."""

    status: int
    body: bytes


class OverHttp(Client):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self.refused: list[Refused] = []
        self._open: set[http.client.HTTPConnection] = set()
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def start(self, work: Callable[..., None], *arguments: object) -> None:
        def do() -> None:
            try:
                work(*arguments)
            except Exception as error:
                if not self._is_over:
                    self.fail(repr(error))

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=do, daemon=True))
        self._threads[-1].start()

    @contextlib.contextmanager
    def request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        self._open.add(connection)
        try:
            connection.request(method, path, body, headers)
            assert connection.sock is not None
            with connection.getresponse() as response:
                yield response
        finally:
            self._open.discard(connection)
            connection.close()

    def refuse(self, response: http.client.HTTPResponse) -> None:
        body = response.read()
        with self._news:
            self.refused.append(Refused(response.status, body))
            self._news.notify_all()

    def events(self, response: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
        """Yields type and data of each event that has data. Fails unless events are framed with LF alone."""
        waiting = bytearray()
        while True:
            end = waiting.find(b"\n\n")
            while end < 0:
                piece = response.read1(1 << 20)
                if not piece:
                    assert not waiting, f"an event without an end: {bytes(waiting[:200])!r}"
                    return
                assert b"\r" not in piece, piece[:200]
                at = max(0, len(waiting) - 1)
                waiting += piece
                end = waiting.find(b"\n\n", at)
            lines = bytes(waiting[:end]).split(b"\n")
            del waiting[: end + 2]
            data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
            kinds = [line[6:].strip().decode() for line in lines if line.startswith(b"event:")]
            if any(data):
                yield kinds[-1] if kinds else "message", b"\n".join(data)

    def close(self) -> None:
        self._is_over = True
        for connection in list(self._open):
            sock = connection.sock  # its thread may close the connection meanwhile
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class HttpClient(OverHttp):
    """A client of Streamable HTTP: a connection for each POST, and a GET stream once the handshake is confirmed."""

    session: str | None = None
    revision = "2025-11-25"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.posted: list[tuple[bytes, list[bytes]]] = []
        """Each message sent, with the messages that came on its own stream."""

    @property
    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.session is not None:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.revision}
        return headers

    def send(self, message: bytes) -> None:
        try:
            known = members(message)
        except Exception:
            known = {}
        stream = "post" if "method" not in known or "id" not in known else f"post {known['id'].decode('latin-1')}"
        if "method" in known and "id" in known:
            self.start(self._post, message, stream)
        else:
            self._post(message, stream)  # POSTs are sent in the order of the calls

    def _post(self, message: bytes, stream: str) -> None:
        own: list[bytes] = []
        self.posted.append((message, own))
        with self.request("POST", self._path, self._headers, message) as response:
            self.session = self.session or response.getheader("Mcp-Session-Id")
            kind = (response.getheader("Content-Type") or "").partition(";")[0]
            if response.status == 202:
                assert not response.read()
            elif response.status != 200:
                self.refuse(response)
            elif kind == "application/json":
                own.append(response.read())
                self.take(stream, own[-1])
            else:
                assert kind == "text/event-stream", kind
                for _, data in self.events(response):
                    own.append(data)
                    self.take(stream, data)

    def confirm(self, message: bytes) -> None:
        self.send(message)
        is_listening = threading.Event()
        self.start(self._listen, is_listening)
        assert is_listening.wait(PATIENCE_S), self.troubles

    def _listen(self, is_listening: threading.Event) -> None:
        with self.request("GET", self._path, self._headers | {"Accept": "text/event-stream"}) as response:
            assert response.status == 200, response.status
            is_listening.set()
            for _, data in self.events(response):
                self.take("get", data)

    def close(self) -> None:
        if self.session is not None:
            with self.request("DELETE", self._path, self._headers) as response:
                assert response.status == 204, response.status
        super().close()


class SseClient(OverHttp):
    """A client of HTTP+SSE: an event stream that names the URL for POSTs."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._endpoint = ""
        self.start(self._listen)
        assert self.wait_until(lambda: self._endpoint)

    def _listen(self) -> None:
        with self.request("GET", self._path, {"Accept": "text/event-stream"}) as response:
            assert response.status == 200, response.status
            for kind, data in self.events(response):
                if kind == "endpoint":
                    with self._news:
                        self._endpoint = data.decode()
                        self._news.notify_all()
                else:
                    self.take("pipe", data)

    def send(self, message: bytes) -> None:
        with self.request("POST", self._endpoint, {"Content-Type": "application/json"}, message) as response:
            if response.status == 202:
                response.read()
            else:
                self.refuse(response)


# --- WebSocket --------------------------------------------------------------------------------------------------------


class SocketClient(Client):
    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._sock = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._lock = threading.Lock()
        self._is_joined = False
        self.closed: CloseConnection | None = None
        self._write(Request(host=parts.netloc, target=parts.path, subprotocols=["mcp"]))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.wait_until(lambda: self._is_joined)

    def _write(self, event: Request | TextMessage | CloseConnection) -> None:
        with self._lock:
            self._sock.sendall(self._connection.send(event))

    def _read(self) -> None:
        texts: list[str] = []
        with contextlib.suppress(OSError):
            while self.closed is None:
                data = self._sock.recv(1 << 20)
                with self._lock:
                    self._connection.receive_data(data or None)
                    events = list(self._connection.events())
                for event in events:
                    match event:
                        case AcceptConnection(subprotocol="mcp"):
                            self._is_joined = True
                            with self._news:
                                self._news.notify_all()
                        case TextMessage():
                            texts.append(event.data)
                            if event.message_finished:
                                whole, texts = "".join(texts).encode(), []
                                self.take("pipe", whole)
                        case Ping():
                            with self._lock:
                                self._sock.sendall(self._connection.send(event.response()))
                        case CloseConnection():
                            with self._news:
                                self.closed = event
                                self._news.notify_all()
                        case _:
                            self.fail(repr(event))

    def send(self, message: bytes) -> None:
        self._write(TextMessage(message.decode()))

    def send_frame(self, payload: bytes) -> None:
        """Sends a text frame of up to 125 bytes, whatever it contains. The mask is all zeros."""
        with self._lock:
            self._sock.sendall(bytes([0x81, 0x80 | len(payload), 0, 0, 0, 0]) + payload)

    def close(self) -> None:
        try:
            if self.closed is None:
                self._write(CloseConnection(code=1000))
                assert self.wait_until(lambda: self.closed)
        finally:
            self._sock.close()
            self._thread.join(PATIENCE_S)


def quote(text: str) -> bytes:
    return json.dumps(text).encode()


def pause() -> None:
    """Waits before the next look at something that is not announced."""
    time.sleep(0.01)
