"""One connection of a client's to the server that is played over Streamable HTTP, and the requests that come on it."""

from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Final

from ...core.eras import is_known_modern
from ...core.oracle.observations import AnyObservation, Ended, Head, Opened, Role, Said, Verb
from .behaviour import Deed, Line, Script, acknowledgement
from .http_player import MIRRORS
from .ledger import lines_of
from .steps import META, Json, decoded, encode

if TYPE_CHECKING:
    from .http_stage import Hall

PATH: Final = "/mcp"
BODY_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above what a client says; what is longer is refused."""
LISTENER_WAIT_S: Final = 1.0
"""For a client to open its stream, before what was to come on it is left out."""
_NO_HANDSHAKE: Final = encode(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: Unsupported protocol version"}}
)


class Channel(BaseHTTPRequestHandler):
    """One request after the other."""

    protocol_version = "HTTP/1.1"
    wire: int
    number: int
    session: str | None

    @property
    def hall(self) -> Hall:
        found: Hall = self.server.hall  # type: ignore[attr-defined]
        return found

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""

    # --- POST -------------------------------------------------------------------------------------------------------

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        messages = decoded(body)
        message = messages[0] if messages else None
        self._open(Verb.POST, message)
        self._see(Said(self.number, Role.CLIENT, body, at=time.monotonic()))
        if message is None:
            self._answer(400)
        elif self._is_foreign(message):
            self._answer(400, _NO_HANDSHAKE)
        elif len(messages) > 1:
            self._answer_all(messages)
        elif (status := self.hall.refusal(self.session, is_hello=message.get("method") == "initialize")) is not None:
            self._answer(status)
        elif "method" not in message:
            self._answer(202)
        elif "id" not in message:
            self._notice(message)
        elif message["method"] == "subscriptions/listen" and self.hall.behaviour.is_stateless:
            self._listen(message)
        else:
            self._request(message)

    def _is_foreign(self, message: Json) -> bool:
        """Whether it is of 2026-07-28, and this server is not."""
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        says_all = isinstance(meta, dict) and META + "protocolVersion" in meta
        named = self.headers["MCP-Protocol-Version"]
        return not self.hall.behaviour.is_stateless and (says_all or (named is not None and is_known_modern(named)))

    def _answer_all(self, messages: list[Json]) -> None:
        """An array, which 2025-03-26 has."""
        script = self.hall.script(self.wire)
        texts = [script.fill(Line().body, each) for each in messages if "method" in each and "id" in each]
        said = [text for text in texts if text is not None]
        self._answer(200 if said else 202, f"[{','.join(said)}]" if said else None)

    def _notice(self, message: Json) -> None:
        """It is accepted at once; what is to be said about it comes on the client's own stream."""
        deed, script = self._deed(message)
        self._answer(deed.status or 202, headers=deed.headers)
        if deed.forgets:
            self.hall.end_session(self.session)
        lines, wire = lines_of(deed, message, script), self.wire
        if lines:
            threading.Thread(target=say_on_get, args=(self.hall, wire, lines), daemon=True).start()

    def _listen(self, message: Json) -> None:
        self._begin_events({})
        self._event(acknowledgement(message))
        self.hall.ledger.wait_over(self.wire)

    def _request(self, message: Json) -> None:
        deed, script = self._deed(message)
        lines = lines_of(deed, message, script)
        given = self.hall.begin_session(self.wire) if message["method"] == "initialize" else None
        headers = ({"Mcp-Session-Id": given} if given is not None else {}) | deed.headers
        if deed.forgets:
            self.hall.end_session(given or self.session)
        if (deed.status or 200) != 200 or not lines:
            self._answer(deed.status or 202, lines[0][1] if lines else None, headers)
        elif deed.is_events or len(lines) > 1 or deed.cut_after is not None:
            self._answer_by_events(deed, message, lines, headers)
        elif self.hall.ledger.wait(lines[0][0].when, self.wire):
            self._answer(200, lines[0][1], headers)

    def _deed(self, message: Json) -> tuple[Deed, Script]:
        script = self.hall.script(self.wire)
        with self.hall.ledger.lock:
            return script.deed_for(message), script

    def _answer_by_events(
        self, deed: Deed, message: Json, lines: list[tuple[Line, str]], headers: dict[str, str]
    ) -> None:
        self._begin_events(headers)
        for number, (line, text) in enumerate(lines):
            if number == deed.cut_after:
                break
            if line.on_get:
                say_on_get(self.hall, self.wire, [(line, text)])
            elif self.hall.ledger.wait(line.when, self.wire):
                self._event(text, self._keep(message, lines[number + 1 :]) if deed.has_ids else None)
        self._end_events()

    def _keep(self, message: Json, rest: list[tuple[Line, str]]) -> str:
        """An id for the event after which `rest` comes."""
        with self.hall.ledger.lock:
            id = f"event-{len(self.hall.kept)}"
            self.hall.kept[id] = (self.wire, message, rest)
            return id

    # --- GET and DELETE ---------------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        if self._is_elsewhere():
            return
        self._open(Verb.GET, None)
        resumed = self.hall.kept.get(self.headers["Last-Event-ID"] or "")
        status = self.hall.refusal(self.session, is_hello=False)
        if not self.hall.behaviour.has_stream or self.hall.behaviour.is_stateless or status is not None:
            self._answer(status or 405)
            return
        self._begin_events({})
        if resumed is not None:
            _, message, rest = resumed
            for number, (line, text) in enumerate(rest):
                if self.hall.ledger.wait(line.when, self.wire):
                    self._event(text, self._keep(message, rest[number + 1 :]))
            self._end_events()
            return
        with self.hall.ledger.lock:
            self.hall.streams[self.wire] = self
            self.hall.ledger.lock.notify_all()
        self.hall.ledger.wait_over(self.wire)

    def do_DELETE(self) -> None:
        if self._is_elsewhere():
            return
        self._open(Verb.DELETE, None)
        status = self.hall.refusal(self.session, is_hello=False)
        self.hall.end_session(self.session)
        self._answer(status or 200)

    # --- Bytes ------------------------------------------------------------------------------------------------------

    def _is_elsewhere(self) -> bool:
        """Whether a request is not for the server, but for what may be beside it. It is refused, and nobody's."""
        if self.path != PATH:
            self.close_connection = True
            self.send_error(404)
        return self.path != PATH

    def _body(self) -> bytes | None:
        """The request's body; None: it cannot be read, and the connection is closed."""
        if self._is_elsewhere():
            return None
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

    def _open(self, verb: Verb, message: Json | None) -> None:
        self.session = self.headers["Mcp-Session-Id"]
        self.wire, self.number = self.hall.wire_of(self.session, message), self.hall.channel()
        mirrored = tuple((name, value) for name, value in self.headers.items() if name.lower().startswith(MIRRORS))
        revision, accept = self.headers["MCP-Protocol-Version"], ", ".join(self.headers.get_all("Accept", []))
        last = self.headers["Last-Event-ID"]
        self._see(Opened(self.number, verb, self.session, revision, accept, last, mirrored))

    def _see(self, observation: AnyObservation) -> None:
        self.hall.ledger.see(self.wire, observation)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        kind = headers.get("Content-Type", "").partition(";")[0]
        with contextlib.suppress(OSError):
            self._see(Head(self.number, status, kind, headers.get("Mcp-Session-Id")))
            self.send_response(status)
            for name, value in headers.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()

    def _answer(self, status: int, text: str | None = None, headers: dict[str, str] | None = None) -> None:
        body = b"" if text is None else text.encode()
        kind = {"Content-Type": "application/json"} if body else {}
        self._head(status, {**kind, "Content-Length": str(len(body)), **(headers or {})})
        if body:
            self._see(Said(self.number, Role.SERVER, body, at=time.monotonic()))
        with contextlib.suppress(OSError):
            self.wfile.write(body)
        self._see(Ended(self.number, Role.SERVER))

    def _begin_events(self, headers: dict[str, str]) -> None:
        self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **headers})

    def _event(self, text: str, id: str | None = None) -> None:
        with self.hall.ledger.lock:
            if self.hall.ledger.is_over:
                return
            self._see(Said(self.number, Role.SERVER, text.encode(), event_id=id, at=time.monotonic()))
        lines = [f"data: {line}" for line in text.split("\n")]
        data = "\n".join([f"id: {id}", *lines] if id is not None else lines).encode() + b"\n\n"
        with contextlib.suppress(OSError):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _end_events(self) -> None:
        self._see(Ended(self.number, Role.SERVER))
        with contextlib.suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")

    def tell(self, text: str) -> None:
        """An event on the stream that the client has opened."""
        self._event(text)


def say_on_get(hall: Hall, wire: int, lines: list[tuple[Line, str]]) -> None:
    """Say lines on the stream that the client opens, if it opens one soon."""
    until = time.monotonic() + LISTENER_WAIT_S
    with hall.ledger.lock:
        while wire not in hall.streams and not hall.ledger.is_over and (left := until - time.monotonic()) > 0:
            hall.ledger.lock.wait(left)
        stream = hall.streams.get(wire)
    for line, text in lines:
        if stream is not None and hall.ledger.wait(line.when, wire):
            stream.tell(text)
