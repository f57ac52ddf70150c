"""Clients that block, over HTTP and over stdio. Each wait has a limit."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

REVISION: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"
ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
BUFFER_BYTES: Final = 64 * 1024
"""The receive buffer of a client, which should not take in what a check holds back."""
READ_AHEAD_MAX: Final = 8
"""Messages that a client on stdio reads before it is asked for them."""


class CheckFailed(AssertionError):
    """Raised where a gateway does not do what it should."""


def request(id: object, method: str, params: dict[str, Any]) -> bytes:
    """Encodes a request; a notification if the id is None."""
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
    return json.dumps(message, ensure_ascii=False).encode()


def call(id: object, tool: str, **arguments: Any) -> bytes:
    """Encodes a `tools/call` that asks for progress."""
    return request(id, "tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": str(id)}})


HELLO: Final = request(
    "hello",
    "initialize",
    {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}},
)
READY: Final = request(None, "notifications/initialized", {})


def text_of(answer: dict[str, Any]) -> str:
    """Returns the text of a call's result.

    Raises:
        CheckFailed: it has none.
    """
    try:
        return str(answer["result"]["content"][0]["text"])
    except (KeyError, IndexError, TypeError):
        raise CheckFailed(f"got {json.dumps(answer)[:300]}, expected the result of a call") from None


class _Connection(http.client.HTTPConnection):
    """A connection that takes in little ahead of its reader, and sends each piece at once."""

    def connect(self) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class HttpCall:
    """One request over HTTP, on a connection of its own."""

    def __init__(
        self, url: str, method: str, headers: dict[str, str], body: bytes, timeout_s: float, *, step: int = 0
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = _Connection(parts.hostname, parts.port, timeout=timeout_s)
        self._connection.connect()
        self._connection.putrequest(method, parts.path)
        for name, value in ({"content-length": str(len(body))} | headers).items():
            self._connection.putheader(name, value)
        self._connection.endheaders()
        self._sock = sock = self._connection.sock
        for at in range(0, len(body), step or len(body) or 1):
            sock.sendall(body[at : at + (step or len(body))])
        self._response: http.client.HTTPResponse | None = None

    @property
    def response(self) -> http.client.HTTPResponse:
        """The head of the response."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of an event stream."""
        while line := self.response.readline():
            yield line.rstrip(b"\r\n")

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yields the messages of the response, to its end."""
        kind = self.response.getheader("content-type") or ""
        if kind.startswith("text/event-stream"):
            for line in self.lines():
                if line.startswith(b"data: {"):
                    yield self._read(line[6:])
            self._connection.close()
            return
        body = self.response.read()
        self._connection.close()
        if body:
            yield self._read(body)
        elif self.response.status == 200:
            raise CheckFailed("got status 200 with an empty body, expected a message: it was cut off, or never written")

    def _read(self, text: bytes) -> dict[str, Any]:
        try:
            message: dict[str, Any] = json.loads(text)
        except ValueError:
            seen = f"status {self.response.status} with {text[:100]!r}"
            raise CheckFailed(f"got {seen}, expected one JSON message") from None
        return message

    def answer(self) -> dict[str, Any]:
        """Returns the last message of the response.

        Raises:
            CheckFailed: there is none.
        """
        found = [*self.messages()]
        if not found:
            raise CheckFailed(f"got status {self.response.status} without a message, expected an answer")
        return found[-1]

    def leave(self) -> None:
        """Ends the connection at once."""
        self._sock.shutdown(socket.SHUT_RDWR)
        if self._response is not None:
            self._response.close()
        self._connection.close()


class PipeCall:
    """One request over stdio."""

    def __init__(self, client: PipeClient, id: object) -> None:
        self._client = client
        self._id = id

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yields what is about this request, up to its answer."""
        while True:
            message = self._client.next_for(self._id)
            yield message
            if "method" not in message:
                return

    def answer(self) -> dict[str, Any]:
        return [*self.messages()][-1]


def _process_of(answer: dict[str, Any]) -> int:
    try:
        return int(answer["result"]["serverInfo"]["version"])
    except (KeyError, TypeError, ValueError):
        raise CheckFailed(f"got {json.dumps(answer)[:300]}, expected the result of initialize") from None


class HttpClient:
    """A client over Streamable HTTP."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._session: dict[str, str] = {}

    def shake_hands(self) -> int:
        hello = self.begin(HELLO)
        answer = hello.answer()
        session = hello.response.getheader("mcp-session-id")
        if session is None:
            raise CheckFailed(f"got {json.dumps(answer)[:300]} without Mcp-Session-Id, expected a session")
        self._session = {"mcp-session-id": session, "mcp-protocol-version": REVISION}
        ready = self.begin(READY)
        if ready.response.status != 202:
            raise CheckFailed(f"got status {ready.response.status} for a notification, expected 202")
        ready.leave()
        return _process_of(answer)

    def begin(self, message: bytes, *, step: int = 0, headers: dict[str, str] | None = None) -> HttpCall:
        own = self._session if headers is None else headers
        return HttpCall(self._url, "POST", ACCEPT | own, message, self._timeout_s, step=step)

    def listen(self) -> HttpCall:
        """Opens the session's event stream."""
        return HttpCall(self._url, "GET", ACCEPT | self._session, b"", self._timeout_s)

    def leave(self) -> None:
        ended = HttpCall(self._url, "DELETE", self._session, b"", self._timeout_s)
        if ended.response.status not in (200, 202, 204):
            raise CheckFailed(f"got status {ended.response.status} for DELETE, expected 204")
        ended.leave()


class PipeClient:
    """A client on the stdin and stdout of a process with the gateway in it. It reads no further than it is asked."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        self._process = process
        self._timeout_s = timeout_s
        self._heard: queue.Queue[dict[str, Any] | None] = queue.Queue(READ_AHEAD_MAX)
        self._kept: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def shake_hands(self) -> int:
        answer = self.begin(HELLO).answer()
        self.begin(READY)
        return _process_of(answer)

    def begin(self, message: bytes, *, step: int = 0) -> PipeCall:
        stdin = self._process.stdin
        assert stdin is not None
        watchdog = threading.Timer(self._timeout_s, self._process.kill)  # ends a write that would wait for ever
        watchdog.start()
        try:
            line = message + b"\n"
            for at in range(0, len(line), step or len(line)):
                stdin.write(line[at : at + (step or len(line))])
                stdin.flush()
        except OSError as error:
            raise CheckFailed(f"the gateway takes nothing more: {error}") from None
        finally:
            watchdog.cancel()
        return PipeCall(self, json.loads(message).get("id"))

    def next_for(self, id: object) -> dict[str, Any]:
        """Waits for the next message about this request. The others are kept."""
        for at, kept in enumerate(self._kept):
            if _is_about(kept, id):
                return self._kept.pop(at)
        while (message := self._next()) is not None:
            if _is_about(message, id):
                return message
            self._kept.append(message)
        raise CheckFailed(f"got the end of stdout, expected an answer to {id!r}")

    def leave(self) -> None:
        """Closes the client's end, and reads to the end of what the gateway still says."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        while self._next() is not None:
            pass

    def _next(self) -> dict[str, Any] | None:
        try:
            message = self._heard.get(timeout=self._timeout_s)
        except queue.Empty:
            raise CheckFailed(f"got nothing for {self._timeout_s:g} s, expected a message or the end") from None
        if message is None:
            self._heard.put(None)
        return message

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(json.loads(line))
        self._heard.put(None)


def _is_about(message: dict[str, Any], id: object) -> bool:
    if "method" in message:
        return bool(message.get("params", {}).get("progressToken") == str(id))
    return bool(message.get("id") == id)
