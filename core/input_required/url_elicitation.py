"""Calls that a server with sessions refuses until its user has visited a page (-32042), for clients without sessions.

The refusal becomes questions, one for each page; when the client comes back and has agreed to all, the call is made
again, as the refusal itself wants it. If it is refused for the same pages, it waits a little for the server to say that
the visits are done, since agreeing takes a moment and visiting takes longer.

Source: 2025-11-25 client/elicitation, "URL Elicitation Required Error"; 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from ..base.errors import INPUT_REFUSED, MISSING_CAPABILITY, RemoteProtocolError
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.content import tool_error
from ..bridge.discovery import server_info_of
from ..bridge.request_state import Claims, Kind, digest_of_value
from ..jsonrpc import envelope
from ..jsonrpc.splice import elements
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey, State
from ..state.exchange import Input as ExchangeInput
from ..state.link import Link
from ..state.session import Session
from .call_state import Stating
from .suspended_calls import asking

DONE_MAX: Final = 64
"""Visits of a session that the server called done, and that nobody waited for yet."""

PAGES_MAX: Final = 16
"""Pages that one refusal may name: all of them are in one token, and a user would not visit more."""

NAME_MAX: Final = 64
"""Characters of a visit's name that stand in the token as they are, a UUID's with room to spare; of longer ones, a
digest."""


class Upward(Protocol):
    def request(self, session: Session, exchange: Exchange) -> None: ...

    def repeat(self, session: Session, exchange: Exchange) -> None:
        """Send once more what the server has refused for now."""


class Down(Protocol):
    def answer(self, session: Session, exchange: Exchange, message: bytes) -> None: ...


class Visits:
    """All visits that calls wait for."""

    def __init__(self, desk: Desk, stating: Stating, down: Down) -> None:
        self.up: Upward
        self._desk = desk
        self._stating = stating
        self._down = down
        self._waiting: dict[tuple[str, ExchangeKey], tuple[Session, Exchange, set[str]]] = {}
        self._done: dict[str, list[str]] = {}

    def receive_visits(self, link: Link, exchange: Exchange, error: bytes) -> bool:
        """A call was refused. False if the refusal names no page, or too many."""
        session = link.session_of(exchange)
        leg = exchange.leg
        try:
            pages = _pages(error)
            entries = {
                f"r{index}": input_requests.embed("elicitation/create", page)
                for index, page in enumerate(pages, start=1)
            }
            visits = {f"r{index}": _visit(page) for index, page in enumerate(pages, start=1)}
        except RemoteProtocolError:
            return False
        if leg is None or not 0 < len(pages) <= PAGES_MAX:
            return False
        if exchange.visited >= set(visits.values()) and exchange.state is State.SENT:
            self._wait(session, exchange)
            return True
        exchange.step(ExchangeInput.REPLY)
        exchange.is_native = True
        lacking = missing(leg.capabilities, "elicitation/create", pages[0])
        if lacking is not None:
            data = {"requiredCapabilities": msgspec.Raw(lacking)}
            text = "the server wants its user to visit a page, and the client cannot be asked for that"
            self._down.answer(session, exchange, envelope.encode_error(exchange.id_raw, MISSING_CAPABILITY, text, data))
            return True
        state = self._stating.state(session, exchange, Kind.URL, questions=visits)
        self._down.answer(session, exchange, asking(exchange.id_raw, entries, state, server_info_of(session.greeting)))
        return True

    def resume(self, session: Session, exchange: Exchange, claims: Claims, responses: Mapping[str, bytes]) -> None:
        """The client is back."""
        refused = [key for key in claims.questions if not _is_accepted(responses.get(key))]
        if refused:
            text = "the server wants its user to visit a page first, and that was declined"
            if exchange.method == "tools/call":
                message = envelope.encode_result(exchange.id_raw, tool_error(text))
            else:
                message = envelope.encode_error(exchange.id_raw, INPUT_REFUSED, text)
            self._down.answer(session, exchange, message)
            return
        exchange.visited = frozenset(visit for visit in claims.questions.values() if visit)
        self.up.request(session, exchange)

    def _wait(self, session: Session, exchange: Exchange) -> None:
        """The same pages again, which the user has agreed to visit: it takes until they are visited. Once only: then
        the client is asked again."""
        exchange.step(ExchangeInput.REQUEUE)
        open_visits = set(exchange.visited.difference(self._done.get(session.sid, ())))
        exchange.visited = frozenset()
        self._waiting[session.sid, exchange.key] = session, exchange, open_visits
        if not open_visits:
            self.handle_visit(session.sid, exchange.key)
            return
        at = self._desk.now + self._desk.limits.visit_wait_s
        self._desk.timers.set(("visit", (session.sid, exchange.key)), at, "visit to a page")

    def receive_done(self, session: Session, visit: str) -> None:
        """The server says that a visit has served its purpose. Of unknown ones nothing follows."""
        visit = _short(visit)
        done = self._done.setdefault(session.sid, [])
        if visit not in done:
            done.append(visit)
        del done[:-DONE_MAX]
        for (sid, key), (_, _, open_visits) in list(self._waiting.items()):
            if sid == session.sid:
                open_visits.discard(visit)
                if not open_visits:
                    self.handle_visit(sid, key)

    def handle_visit(self, sid: str, key: ExchangeKey) -> None:
        """Enough waited."""
        session, exchange, _ = self._waiting[sid, key]
        self.forget(session, exchange)
        self.up.repeat(session, exchange)

    def forget(self, session: Session, exchange: Exchange) -> None:
        if self._waiting.pop((session.sid, exchange.key), None) is not None:
            self._desk.timers.cancel(("visit", (session.sid, exchange.key)))

    def close_session(self, session: Session) -> None:
        self._done.pop(session.sid, None)
        for waiting, exchange, _ in list(self._waiting.values()):
            if waiting is session:
                self.forget(session, exchange)


def _pages(error: bytes) -> list[bytes]:
    data = envelope.member_of(error, "data")
    listed = None if data is None or not data.startswith(b"{") else envelope.member_of(data, "elicitations")
    if listed is None or not listed.startswith(b"["):
        return []
    return [listed[start:stop] for start, stop in elements(listed)]


def _visit(page: bytes) -> str:
    return _short(envelope.text_of(envelope.member_of(page, "elicitationId")) or "")


def _short(name: str) -> str:
    return name if name.isascii() and len(name) <= NAME_MAX else digest_of_value(msgspec.json.encode(name))


def _is_accepted(response: bytes | None) -> bool:
    return response is not None and envelope.text_of(envelope.member_of(response, "action")) == "accept"
