"""Calls that a server with sessions refuses until its user has visited a page (-32042), for stateless clients.

The refusal becomes `input_required` with one elicitation for each page. When the client retries and has accepted all of
them, the call is sent to the server again, as the refusal demands. If the server refuses it for the same pages, the
proxy waits a little for `notifications/elicitation/complete`, since accepting takes a moment and visiting takes longer.

Source: 2025-11-25 client/elicitation, "URL Elicitation Required Error"; 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from ..base.errors import INPUT_REFUSED, MISSING_CAPABILITY, RemoteProtocolError
from ..base.methods import MAY_ASK
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.content import tool_error
from ..bridge.discovery import server_info_of
from ..bridge.request_state import Claims, ClaimsKind, digest_of_value
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.splice import elements, remove_members
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey, ExchangeState
from ..state.link import Link
from ..state.session import Session
from .call_state import CallState, asking

DONE_MAX: Final = 64
"""The most visits of a session that are remembered as complete before a call waits for them. At it: the oldest is
forgotten, and a call waits for `url_elicitation_wait_s` instead."""

PAGES_MAX: Final = 16
"""The most pages that one refusal may name: one token holds all of them, and a user would not visit more. At it: the
client gets the server's error as it is."""

NAME_MAX: Final = 64
"""The most characters of an `elicitationId` that go into the token as they are, a UUID with room to spare. A longer one
is replaced by its digest."""


class Retry(NamedTuple):
    """The retry of a call that waits for a visit: its token, its answers, and its params without these."""

    claims: Claims
    responses: Mapping[str, bytes]
    params: bytes


class UrlElicitation:
    """The calls of all sessions that wait until a page was visited."""

    def __init__(self, context: Context, call_state: CallState, responder: Responder) -> None:
        self._context = context
        self._call_state = call_state
        self._responder = responder
        self._waiting: dict[tuple[str, ExchangeKey], tuple[Session, Exchange, set[str]]] = {}
        self._done: dict[str, list[str]] = {}

    def receive_visits(self, link: Link, exchange: Exchange, error: bytes) -> bool:
        """Handles a refusal with -32042: asks the client to visit its pages. False if it names no page, or more than
        `PAGES_MAX`."""
        session = link.session_of(exchange)
        request = exchange.request
        try:
            pages = _pages(error)
            entries = {
                f"r{index}": input_requests.embed("elicitation/create", page)
                for index, page in enumerate(pages, start=1)
            }
            visits = {f"r{index}": _visit(page) for index, page in enumerate(pages, start=1)}
        except RemoteProtocolError:
            return False
        if request is None or not 0 < len(pages) <= PAGES_MAX:
            return False
        if exchange.visited >= set(visits.values()) and exchange.state is ExchangeState.SENT:
            self._wait(session, exchange)
            return True
        exchange.step(ExchangeInput.REPLY)
        lacking = missing(request.capabilities, "elicitation/create", pages[0])
        if lacking is not None:
            exchange.mark_native()
            data = {"requiredCapabilities": msgspec.Raw(lacking)}
            text = "the server wants its user to visit a page, and the client cannot be asked for that"
            self._responder.answer(
                session, exchange, envelope.encode_error(exchange.id_raw, MISSING_CAPABILITY, text, data)
            )
            return True
        self._ask(session, exchange, entries, visits)
        return True

    def receive_login(self, session: Session, exchange: Exchange, page: bytes) -> bool:
        """Asks the client to open the page where its user logs in. False if the client cannot be asked for that."""
        request = exchange.request
        if (
            request is None
            or exchange.method not in MAY_ASK
            or missing(request.capabilities, "elicitation/create", page) is not None
        ):
            return False
        visit = _visit(page)
        if visit in exchange.visited:
            self._wait(session, exchange)
        else:
            self._ask(session, exchange, {"r1": input_requests.embed("elicitation/create", page)}, {"r1": visit})
        return True

    def _ask(
        self, session: Session, exchange: Exchange, entries: Mapping[str, bytes], visits: Mapping[str, str]
    ) -> None:
        exchange.mark_native()
        state = self._call_state.state(session, exchange, ClaimsKind.URL, questions=visits)
        self._responder.answer(
            session, exchange, asking(exchange.id_raw, entries, state, server_info_of(session.greeting))
        )

    def read_retry(self, session: Session, method: str, params: bytes | None) -> Retry | None:
        """Reads the retry of a call that waits for a visit; None for any other request, and for one that cannot be
        read."""
        claims = self._call_state.claims_of(session, method, params)
        if claims is None or claims.kind is not ClaimsKind.URL or params is None:
            return None
        try:
            responses = input_requests.read_responses(params)
        except RemoteProtocolError:
            return None
        return Retry(claims, responses, remove_members(params, input_requests.RETRIED))

    def resume(self, session: Session, exchange: Exchange, claims: Claims, responses: Mapping[str, bytes]) -> None:
        """Handles a retry: sends the call to the server again if the client accepted every page, else ends it."""
        refused = [key for key in claims.questions if not _is_accepted(responses.get(key))]
        if refused:
            text = "the server wants its user to visit a page first, and that was declined"
            if exchange.method == "tools/call":
                message = envelope.encode_result(exchange.id_raw, tool_error(text))
            else:
                message = envelope.encode_error(exchange.id_raw, INPUT_REFUSED, text)
            self._responder.answer(session, exchange, message)
            return
        exchange.receive_visits(frozenset(visit for visit in claims.questions.values() if visit))
        session.router.request(session, exchange)

    def _wait(self, session: Session, exchange: Exchange) -> None:
        """Waits until the user has visited the pages, all of which the client accepted before. A call waits once only:
        if the server refuses it again, the client is asked again."""
        if exchange.state is ExchangeState.SENT:
            exchange.requeue()
        open_visits = set(exchange.visited.difference(self._done.get(session.sid, ())))
        exchange.receive_visits(frozenset())
        self._waiting[session.sid, exchange.key] = session, exchange, open_visits
        if not open_visits:
            self.handle_visit(session, exchange.key)
            return
        at = self._context.now + self._context.limits.url_elicitation_wait_s
        self._context.timers.set(("visit", (session.sid, exchange.key)), at, "visit to a page")

    def receive_done(self, session: Session, visit: str) -> None:
        """Handles `notifications/elicitation/complete`: calls that wait for no other visit are sent again.

        An id that no call waits for is remembered, at most `DONE_MAX` of a session, and has no other effect.
        """
        visit = _short(visit)
        done = self._done.setdefault(session.sid, [])
        if visit not in done:
            done.append(visit)
        del done[:-DONE_MAX]
        for (sid, key), (_, _, open_visits) in list(self._waiting.items()):
            if sid == session.sid:
                open_visits.discard(visit)
                if not open_visits:
                    self.handle_visit(session, key)

    def handle_visit(self, session: Session, key: ExchangeKey) -> None:
        """Sends a call to the server again: its pages are visited, or it waited long enough for that."""
        _, exchange, _ = self._waiting[session.sid, key]
        self.forget(session, exchange)
        session.router.repeat(session, exchange)

    def forget(self, session: Session, exchange: Exchange) -> None:
        if self._waiting.pop((session.sid, exchange.key), None) is not None:
            self._context.timers.cancel(("visit", (session.sid, exchange.key)))

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
