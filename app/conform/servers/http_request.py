"""Base of the HTTP request handlers of scripted servers: reads requests, writes responses, notes both."""

from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Final

from ....core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said, Verb
from ..clients.streamable_http import MIRRORS
from .ledger import Ledger

BODY_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above the size of a client's message; a longer body is refused."""


class Request(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other.

    Attributes:
        wire: the number of the session of the current request.
        number: the channel of the current request.
    """

    protocol_version = "HTTP/1.1"
    wire: int
    number: int

    def setup(self) -> None:
        super().setup()
        self._send_lock = threading.Lock()

    @property
    def ledger(self) -> Ledger:
        raise NotImplementedError

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""

    @property
    def place(self) -> str:
        """The path of the request, without query."""
        return self.path.partition("?")[0]

    def is_elsewhere(self, path: str) -> bool:
        """True if the request is for another path. Answers it with 404 then; it is not noted."""
        if self.place != path:
            self.close_connection = True
            self.send_error(404)
        return self.place != path

    def body(self) -> bytes | None:
        """Returns the body of the request; None if it cannot be read, which closes the connection."""
        if "chunked" in (self.headers["Transfer-Encoding"] or "").lower():
            return self._chunks()
        try:
            size = int(self.headers["Content-Length"] or 0)
        except ValueError:
            size = -1
        if not 0 <= size <= BODY_MAX_BYTES:
            self.send_error(413)
            self.close_connection = True
            return None
        return self.rfile.read(size)

    def _chunks(self) -> bytes | None:
        body = b""
        with contextlib.suppress(ValueError):
            while size := int(self.rfile.readline(64).partition(b";")[0], 16):
                if len(body) + size > BODY_MAX_BYTES:
                    break
                body += self.rfile.read(size)
                self.rfile.readline(64)
            else:
                self.rfile.readline(64)
                return body
        self.close_connection = True
        return None

    def opened(self, verb: Verb) -> Opened:
        """Returns the observation of the request's head."""
        mirrored = tuple((name, value) for name, value in self.headers.items() if name.lower().startswith(MIRRORS))
        revision, accept = self.headers["MCP-Protocol-Version"], ", ".join(self.headers.get_all("Accept", []))
        last = self.headers["Last-Event-ID"]
        return Opened(self.number, verb, self.headers["Mcp-Session-Id"], revision, accept, last, mirrored)

    def see(self, observation: AnyObservation) -> None:
        self.ledger.see(self.wire, observation)

    def head(self, status: int, headers: dict[str, str]) -> None:
        kind = headers.get("Content-Type", "").partition(";")[0]
        with contextlib.suppress(OSError):
            self.see(Head(self.number, status, kind, headers.get("Mcp-Session-Id")))
            self.send_response(status)
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()

    def answer(self, status: int, text: str | None = None, headers: dict[str, str] | None = None) -> None:
        body = b"" if text is None else text.encode()
        kind = {"Content-Type": "application/json"} if body else {}
        self.head(status, {**kind, "Content-Length": str(len(body)), **(headers or {})})
        if body:
            self.see(Said(self.number, Role.SERVER, body, at=time.monotonic()))
        with contextlib.suppress(OSError):
            self.wfile.write(body)
        self.see(Ended(self.number, Role.SERVER))

    def begin_events(self, headers: dict[str, str]) -> None:
        self.head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers})

    def event(self, text: str, id: str | None = None, kind: str = "message") -> None:
        """Sends an event. Safe to use from several threads."""
        # The lock makes the order of observations that of the events.
        with self._send_lock, contextlib.suppress(OSError):
            if not self.ledger.is_over:
                self.see(Said(self.number, Role.SERVER, text.encode(), kind, id, time.monotonic()))
                self.write_event(text, id, kind)

    def write_event(self, text: str, id: str | None = None, kind: str = "message") -> None:
        fields = [] if id is None else [f"id: {id}"]
        fields += [] if kind == "message" else [f"event: {kind}"]
        data = "\n".join([*fields, *(f"data: {line}" for line in text.split("\n"))]).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_events(self) -> None:
        self.see(Ended(self.number, Role.SERVER))
        with contextlib.suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")
