"""Questions of servers with sessions while no call is open that they could travel with.

Most servers that want the client's roots ask for them right after the handshake, when a client without sessions has no
request open that may be answered with a question. Such a question waits for the next call: that is answered with it
before it is sent up, and goes up when the client is back.

Source: 2026-07-28 client/roots, basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..base.effects import Headers
from ..base.methods import MAY_ASK
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.discovery import server_info_of
from ..bridge.request_state import Claims, Kind
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.session import Ask, Session
from .call_state import Stating
from .suspended_calls import asking, fallback


class Upward(Protocol):
    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None: ...


class Down(Protocol):
    def answer(self, session: Session, exchange: Exchange, message: bytes) -> None: ...


class Asking(Protocol):
    """How questions are asked in the course of a call."""

    def ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None: ...


class Deferring:
    """The questions of all sessions that wait for a call."""

    def __init__(self, desk: Desk, stating: Stating, down: Down) -> None:
        self.up: Upward
        self.parking: Asking
        self._desk = desk
        self._stating = stating
        self._down = down
        self._waiting: dict[str, dict[int, bytes]] = {}  # by session: the entries, by their numbers

    def take(self, session: Session, ask: Ask, params: bytes | None) -> bool:
        """Whether a question can wait. Roots alone: a form or a model's answer is for somebody who waits for it.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        if ask.method != "roots/list" or missing(session.client.capabilities, ask.method, params) is not None:
            return False
        entry = input_requests.embed(ask.method, params)
        number = session.record_ask(ask)
        self._waiting.setdefault(session.sid, {})[number] = entry
        at = self._desk.now + self._desk.limits.held_timeout_s
        self._desk.timers.set(("defer", (session.sid, number)), at, "question that waits for a call")
        return True

    def is_asking(self, session: Session) -> bool:
        """Whether something waits to be asked with a call."""
        return bool(self._waiting.get(session.sid))

    def ask_first(self, session: Session, exchange: Exchange) -> bool:
        """A call is about to go up. True if it was answered with what waits."""
        waiting = self._waiting.get(session.sid)
        if not waiting or exchange.method not in MAY_ASK or exchange.leg is None:
            return False
        if missing(exchange.leg.capabilities, "roots/list", None) is not None:
            return False
        entries = {f"r{number}": entry for number, entry in waiting.items()}
        exchange.is_native = True
        state = self._stating.state(session, exchange, Kind.DEFER)
        answer = asking(exchange.id_raw, entries, state, server_info_of(session.greeting))
        self._down.answer(session, exchange, answer)
        return True

    def resume(self, session: Session, claims: Claims, responses: Mapping[str, bytes]) -> None:
        """The client is back: what it says is for whoever still waits.

        Raises:
            RemoteProtocolError: an answer has not the form it must have. Nothing has changed.
        """
        waiting = self._waiting.get(session.sid, {})
        for number, entry in waiting.items():
            response = responses.get(f"r{number}")
            if response is not None:
                input_requests.check_response(envelope.text_of(envelope.member_of(entry, "method")) or "", response)
        for number in list(waiting):
            response = responses.get(f"r{number}")
            if response is not None:
                self.up.reply(session, self._drop(session, number), Frame(result=response), session.headers)

    def receive_sent(self, session: Session, exchange: Exchange) -> None:
        """A call went up that was not asked first: it had come before the question, and waited itself. Its server may
        not answer it before it knows, so that the question belongs to it now."""
        waiting = self._waiting.get(session.sid)
        if not waiting or exchange.method not in MAY_ASK or exchange.leg is None:
            return
        if missing(exchange.leg.capabilities, "roots/list", None) is not None:
            return
        for number, entry in list(waiting.items()):
            self.parking.ask(session, self._drop(session, number), envelope.member_of(entry, "params"), exchange)

    def withdraw(self, session: Session, number: int) -> bool:
        """The server does not want to know it any more. False if it did not wait here."""
        if number not in self._waiting.get(session.sid, {}):
            return False
        self._drop(session, number)
        return True

    def handle_defer(self, session: Session, number: int) -> None:
        """No call came."""
        ask = self._drop(session, number)
        self._desk.note("info", f"{ask.method} came, and no call after it to ask with", session.server)
        self.up.reply(session, ask, fallback(ask.method), session.headers)

    def _drop(self, session: Session, number: int) -> Ask:
        """It does not wait here any more, with its timer: what waits here is among the session's, and nobody else takes
        it from there while the session lasts."""
        del self._waiting[session.sid][number]
        self._desk.timers.cancel(("defer", (session.sid, number)))
        return session.asks.pop(number)

    def close_session(self, session: Session) -> None:
        for number in self._waiting.pop(session.sid, {}):
            self._desk.timers.cancel(("defer", (session.sid, number)))
