"""A scripted server over Streamable HTTP: the handler of its requests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from ....core.base.revisions import is_known_modern
from ....core.oracle.observations import Role, Said, Verb
from ..script.behaviour import Deed, Line, Script, acknowledgement
from ..script.steps import META, Json, decoded, encode
from .http_request import Request
from .ledger import Ledger, lines_of

if TYPE_CHECKING:
    from .http import HttpSessions

PATH: Final = "/mcp"
LISTENER_WAIT_S: Final = 1.0
"""Seconds to wait for the client to open its stream, before the lines for it are left out."""
_NO_HANDSHAKE: Final = encode(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: Unsupported protocol version"}}
)


class Channel(Request):
    """The requests of one connection, one after the other."""

    session: str | None

    @property
    def sessions(self) -> HttpSessions:
        found: HttpSessions = self.server.shared  # type: ignore[attr-defined]
        return found

    @property
    def ledger(self) -> Ledger:
        return self.sessions.ledger

    # --- POST -------------------------------------------------------------------------------------------------------

    def do_POST(self) -> None:
        body = None if self.is_elsewhere(PATH) else self.body()
        if body is None:
            return
        self.sessions.has_posts = True
        messages = decoded(body)
        message = messages[0] if messages else None
        self._open(Verb.POST, message)
        self.see(Said(self.number, Role.CLIENT, body, at=time.monotonic()))
        if message is None:
            self.answer(400)
        elif self._is_foreign(message):
            self.answer(400, _NO_HANDSHAKE)
        elif len(messages) > 1:
            self._answer_all(messages)
        elif (
            status := self.sessions.refusal(self.session, is_hello=message.get("method") == "initialize")
        ) is not None:
            self.answer(status)
        elif "method" not in message:
            self.answer(202)
        elif "id" not in message:
            self._notice(message)
        elif message["method"] == "subscriptions/listen" and self.sessions.behaviour.is_stateless:
            self._listen(message)
        else:
            self._request(message)

    def _is_foreign(self, message: Json) -> bool:
        """True if the message is of 2026-07-28, and this server does not speak that."""
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        has_modern_meta = isinstance(meta, dict) and META + "protocolVersion" in meta
        named = self.headers["MCP-Protocol-Version"]
        return not self.sessions.behaviour.is_stateless and (
            has_modern_meta or (named is not None and is_known_modern(named))
        )

    def _answer_all(self, messages: list[Json]) -> None:
        """Answers an array of messages, which 2025-03-26 has."""
        script = self.sessions.script(self.wire)
        texts = [script.fill(Line().body, each) for each in messages if "method" in each and "id" in each]
        bodies = [text for text in texts if text is not None]
        self.answer(200 if bodies else 202, f"[{','.join(bodies)}]" if bodies else None)

    def _notice(self, message: Json) -> None:
        """Accepts a notification at once; lines in reaction to it go to the stream that the client opened by GET."""
        deed, script = self._deed(message)
        self.answer(deed.status or 202, headers=deed.headers)
        if deed.forgets:
            self.sessions.end_session(self.session)
        lines, wire = lines_of(deed, message, script), self.wire
        if lines:
            threading.Thread(target=send_on_get, args=(self.sessions, wire, lines), daemon=True).start()

    def _listen(self, message: Json) -> None:
        self.begin_events({})
        self.event(acknowledgement(message))
        self.sessions.ledger.wait_over(self.wire)

    def _request(self, message: Json) -> None:
        deed, script = self._deed(message)
        lines = lines_of(deed, message, script)
        given = self.sessions.begin_session(self.wire) if message["method"] == "initialize" else None
        headers = ({"Mcp-Session-Id": given} if given is not None else {}) | deed.headers
        if deed.forgets:
            self.sessions.end_session(given or self.session)
        if (deed.status or 200) != 200 or not lines:
            self.answer(deed.status or 202, lines[0][1] if lines else None, headers)
        elif deed.is_events or len(lines) > 1 or deed.cut_after is not None:
            self._answer_by_events(deed, message, lines, headers)
        elif self.sessions.ledger.wait(lines[0][0].when, self.wire):
            self.answer(200, lines[0][1], headers)

    def _deed(self, message: Json) -> tuple[Deed, Script]:
        script = self.sessions.script(self.wire)
        with self.sessions.ledger.lock:
            return script.deed_for(message), script

    def _answer_by_events(
        self, deed: Deed, message: Json, lines: list[tuple[Line, str]], headers: dict[str, str]
    ) -> None:
        self.begin_events(headers)
        for number, (line, text) in enumerate(lines):
            if number == deed.cut_after:
                break
            if line.on_get:
                send_on_get(self.sessions, self.wire, [(line, text)])
            elif self.sessions.ledger.wait(line.when, self.wire):
                self.event(text, self._keep(message, lines[number + 1 :]) if deed.has_ids else None)
        self.end_events()

    def _keep(self, message: Json, rest: list[tuple[Line, str]]) -> str:
        """Returns an event id, and keeps `rest` as the lines to send when the client resumes after it."""
        with self.sessions.ledger.lock:
            id = f"event-{len(self.sessions.kept)}"
            self.sessions.kept[id] = (self.wire, message, rest)
            return id

    # --- GET and DELETE ---------------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        if self.is_elsewhere(PATH):
            return
        self._hint()
        self._open(Verb.GET, None)
        resumed = self.sessions.kept.get(self.headers["Last-Event-ID"] or "")
        status = self.sessions.refusal(self.session, is_hello=False)
        if not self.sessions.behaviour.has_stream or self.sessions.behaviour.is_stateless or status is not None:
            self.answer(status or 405)
            return
        self.begin_events({})
        if resumed is not None:
            _, message, rest = resumed
            for number, (line, text) in enumerate(rest):
                if self.sessions.ledger.wait(line.when, self.wire):
                    self.event(text, self._keep(message, rest[number + 1 :]))
            self.end_events()
            return
        with self.sessions.ledger.lock:
            self.sessions.streams[self.wire] = self
            self.sessions.ledger.lock.notify_all()
        self.sessions.ledger.wait_over(self.wire)

    def do_DELETE(self) -> None:
        if self.is_elsewhere(PATH):
            return
        self._open(Verb.DELETE, None)
        status = self.sessions.refusal(self.session, is_hello=False)
        self.sessions.end_session(self.session)
        self.answer(status or 200)

    def _hint(self) -> None:
        """Sets the hint if the client asks for a stream before any POST: it may use another transport."""
        if not self.sessions.has_posts:
            is_socket = (self.headers["Upgrade"] or "").lower() == "websocket"
            what, named = ("a WebSocket", "websocket") if is_socket else ("an event stream", "sse")
            self.sessions.hint = f"it asks for {what} before all else: then it takes --transport {named}"

    # --- Bytes ------------------------------------------------------------------------------------------------------

    def _open(self, verb: Verb, message: Json | None) -> None:
        self.session = self.headers["Mcp-Session-Id"]
        self.wire, self.number = self.sessions.wire_of(self.session, message), self.sessions.channel()
        self.see(self.opened(verb))

    def tell(self, text: str) -> None:
        """Sends an event on the stream that the client opened by GET."""
        self.event(text)


def send_on_get(sessions: HttpSessions, wire: int, lines: list[tuple[Line, str]]) -> None:
    """Sends lines on the stream that the client opens by GET, if it opens one within `LISTENER_WAIT_S`."""
    until = time.monotonic() + LISTENER_WAIT_S
    with sessions.ledger.lock:
        while wire not in sessions.streams and not sessions.ledger.is_over and (left := until - time.monotonic()) > 0:
            sessions.ledger.lock.wait(left)
        stream = sessions.streams.get(wire)
    for line, text in lines:
        if stream is not None and sessions.ledger.wait(line.when, wire):
            stream.tell(text)
