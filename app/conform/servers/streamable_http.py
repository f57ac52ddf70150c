"""One connection of a client's to the server that is played over Streamable HTTP, and the requests that come on it."""

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
    from .http import Hall

PATH: Final = "/mcp"
LISTENER_WAIT_S: Final = 1.0
"""For a client to open its stream, before what was to come on it is left out."""
_NO_HANDSHAKE: Final = encode(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: Unsupported protocol version"}}
)


class Channel(Request):
    """One request after the other."""

    session: str | None

    @property
    def hall(self) -> Hall:
        found: Hall = self.server.hall  # type: ignore[attr-defined]
        return found

    @property
    def ledger(self) -> Ledger:
        return self.hall.ledger

    # --- POST -------------------------------------------------------------------------------------------------------

    def do_POST(self) -> None:
        body = None if self.is_elsewhere(PATH) else self.body()
        if body is None:
            return
        self.hall.has_posts = True
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
        elif (status := self.hall.refusal(self.session, is_hello=message.get("method") == "initialize")) is not None:
            self.answer(status)
        elif "method" not in message:
            self.answer(202)
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
        self.answer(200 if said else 202, f"[{','.join(said)}]" if said else None)

    def _notice(self, message: Json) -> None:
        """It is accepted at once; what is to be said about it comes on the client's own stream."""
        deed, script = self._deed(message)
        self.answer(deed.status or 202, headers=deed.headers)
        if deed.forgets:
            self.hall.end_session(self.session)
        lines, wire = lines_of(deed, message, script), self.wire
        if lines:
            threading.Thread(target=say_on_get, args=(self.hall, wire, lines), daemon=True).start()

    def _listen(self, message: Json) -> None:
        self.begin_events({})
        self.event(acknowledgement(message))
        self.hall.ledger.wait_over(self.wire)

    def _request(self, message: Json) -> None:
        deed, script = self._deed(message)
        lines = lines_of(deed, message, script)
        given = self.hall.begin_session(self.wire) if message["method"] == "initialize" else None
        headers = ({"Mcp-Session-Id": given} if given is not None else {}) | deed.headers
        if deed.forgets:
            self.hall.end_session(given or self.session)
        if (deed.status or 200) != 200 or not lines:
            self.answer(deed.status or 202, lines[0][1] if lines else None, headers)
        elif deed.is_events or len(lines) > 1 or deed.cut_after is not None:
            self._answer_by_events(deed, message, lines, headers)
        elif self.hall.ledger.wait(lines[0][0].when, self.wire):
            self.answer(200, lines[0][1], headers)

    def _deed(self, message: Json) -> tuple[Deed, Script]:
        script = self.hall.script(self.wire)
        with self.hall.ledger.lock:
            return script.deed_for(message), script

    def _answer_by_events(
        self, deed: Deed, message: Json, lines: list[tuple[Line, str]], headers: dict[str, str]
    ) -> None:
        self.begin_events(headers)
        for number, (line, text) in enumerate(lines):
            if number == deed.cut_after:
                break
            if line.on_get:
                say_on_get(self.hall, self.wire, [(line, text)])
            elif self.hall.ledger.wait(line.when, self.wire):
                self.event(text, self._keep(message, lines[number + 1 :]) if deed.has_ids else None)
        self.end_events()

    def _keep(self, message: Json, rest: list[tuple[Line, str]]) -> str:
        """An id for the event after which `rest` comes."""
        with self.hall.ledger.lock:
            id = f"event-{len(self.hall.kept)}"
            self.hall.kept[id] = (self.wire, message, rest)
            return id

    # --- GET and DELETE ---------------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        if self.is_elsewhere(PATH):
            return
        self._hint()
        self._open(Verb.GET, None)
        resumed = self.hall.kept.get(self.headers["Last-Event-ID"] or "")
        status = self.hall.refusal(self.session, is_hello=False)
        if not self.hall.behaviour.has_stream or self.hall.behaviour.is_stateless or status is not None:
            self.answer(status or 405)
            return
        self.begin_events({})
        if resumed is not None:
            _, message, rest = resumed
            for number, (line, text) in enumerate(rest):
                if self.hall.ledger.wait(line.when, self.wire):
                    self.event(text, self._keep(message, rest[number + 1 :]))
            self.end_events()
            return
        with self.hall.ledger.lock:
            self.hall.streams[self.wire] = self
            self.hall.ledger.lock.notify_all()
        self.hall.ledger.wait_over(self.wire)

    def do_DELETE(self) -> None:
        if self.is_elsewhere(PATH):
            return
        self._open(Verb.DELETE, None)
        status = self.hall.refusal(self.session, is_hello=False)
        self.hall.end_session(self.session)
        self.answer(status or 200)

    def _hint(self) -> None:
        """A client that has posted nothing, and asks for a stream, may speak another transport."""
        if not self.hall.has_posts:
            is_socket = (self.headers["Upgrade"] or "").lower() == "websocket"
            what, named = ("a WebSocket", "websocket") if is_socket else ("an event stream", "sse")
            self.hall.hint = f"it asks for {what} before all else: then it takes --transport {named}"

    # --- Bytes ------------------------------------------------------------------------------------------------------

    def _open(self, verb: Verb, message: Json | None) -> None:
        self.session = self.headers["Mcp-Session-Id"]
        self.wire, self.number = self.hall.wire_of(self.session, message), self.hall.channel()
        self.see(self.opened(verb))

    def tell(self, text: str) -> None:
        """An event on the stream that the client has opened."""
        self.event(text)


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
