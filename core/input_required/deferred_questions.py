"""Questions of servers with sessions that arrive while no call of the stateless client is open to carry them.

Most servers that want the client's roots ask for them right after the handshake. A stateless client has no request
open then that may be answered with `input_required`. The question waits for the client's next call: the proxy answers
that call with the question before it sends it upstream, and sends it when the client retries with the answer.

Source: 2026-07-28 client/roots, basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.methods import MAY_ASK
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.discovery import server_info_of
from ..bridge.request_state import Claims, ClaimsKind
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import PendingQuestion, Session
from .call_state import CallState, asking


class DeferredQuestions:
    """The questions of all sessions that wait for a call."""

    def __init__(self, context: Context, call_state: CallState, responder: Responder) -> None:
        self._context = context
        self._call_state = call_state
        self._responder = responder
        self._waiting: dict[str, dict[int, bytes]] = {}  # sid -> question number -> InputRequest

    def take(self, session: Session, question: PendingQuestion, params: bytes | None) -> bool:
        """Keeps a question for the next call, for at most `Limits.held_timeout_s`. False if it cannot wait.

        Only `roots/list` can wait, and only if the client declared roots: an elicitation or a sampling request is
        meant for a user who is waiting.

        Raises:
            RemoteProtocolError: the question cannot be read. Nothing has changed.
        """
        if question.method != "roots/list" or missing(session.client.capabilities, question.method, params) is not None:
            return False
        entry = input_requests.embed(question.method, params)
        number = session.record_question(question)
        self._waiting.setdefault(session.sid, {})[number] = entry
        at = self._context.now + self._context.limits.held_timeout_s
        self._context.timers.set(("defer", (session.sid, number)), at, "question that waits for a call")
        return True

    def is_asking(self, session: Session) -> bool:
        """True if a question of the session waits for a call."""
        return bool(self._waiting.get(session.sid))

    def ask_first(self, session: Session, exchange: Exchange) -> bool:
        """Answers a call that is about to be sent upstream with the questions that wait. True if it did so: the client
        retries the call with the answers."""
        waiting = self._waiting.get(session.sid)
        if not waiting or exchange.method not in MAY_ASK or exchange.request is None:
            return False
        if missing(exchange.request.capabilities, "roots/list", None) is not None:
            return False
        entries = {f"r{number}": entry for number, entry in waiting.items()}
        exchange.mark_native()
        state = self._call_state.state(session, exchange, ClaimsKind.DEFER)
        answer = asking(exchange.id_raw, entries, state, server_info_of(session.greeting))
        self._responder.answer(session, exchange, answer)
        return True

    def resume(self, session: Session, claims: Claims, responses: Mapping[str, bytes]) -> None:
        """Sends the answers of a retry to the server, for the questions that still wait.

        Raises:
            RemoteProtocolError: an answer is malformed. Nothing has changed.
        """
        waiting = self._waiting.get(session.sid, {})
        for number, entry in waiting.items():
            response = responses.get(f"r{number}")
            if response is not None:
                input_requests.check_response(envelope.text_of(envelope.member_of(entry, "method")) or "", response)
        for number in list(waiting):
            response = responses.get(f"r{number}")
            if response is not None:
                session.router.reply(session, self._drop(session, number), Frame(result=response), session.headers)

    def take_waiting(self, session: Session, exchange: Exchange) -> list[tuple[PendingQuestion, bytes | None]]:
        """Removes and returns the questions that wait, with their params, if they can be asked in the course of a call
        that has just been sent upstream.

        `ask_first` did not see them: the call came before them, and waited itself. The server may need the answers
        before it responds to the call, so the questions belong to that call from now on.
        """
        waiting = self._waiting.get(session.sid)
        if not waiting or exchange.method not in MAY_ASK or exchange.request is None:
            return []
        if missing(exchange.request.capabilities, "roots/list", None) is not None:
            return []
        return [
            (self._drop(session, number), envelope.member_of(entry, "params"))
            for number, entry in list(waiting.items())
        ]

    def withdraw(self, session: Session, number: int) -> bool:
        """Drops a question that the server withdrew. False if it did not wait here."""
        if number not in self._waiting.get(session.sid, {}):
            return False
        self._drop(session, number)
        return True

    def handle_defer(self, session: Session, number: int) -> None:
        """Answers a question with its fallback: no call came within `Limits.held_timeout_s`."""
        question = self._drop(session, number)
        self._context.note("info", f"{question.method} came, and no call after it to ask with", session.server)
        session.router.reply(session, question, input_requests.fallback(question.method), session.headers)

    def _drop(self, session: Session, number: int) -> PendingQuestion:
        """Removes a question and its timer. A question that waits here is always in `session.questions` too: nothing
        else removes it from there while the session lasts."""
        del self._waiting[session.sid][number]
        self._context.timers.cancel(("defer", (session.sid, number)))
        question = session.settle_question(number)
        assert question is not None
        return question

    def close_session(self, session: Session) -> None:
        for number in self._waiting.pop(session.sid, {}):
            self._context.timers.cancel(("defer", (session.sid, number)))
