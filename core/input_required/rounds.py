"""Questions of a server without sessions, put to a client that has one, and the request sent again with the answers.

Each question travels as a request of the server on the stream of the call it belongs to. Once all are answered, the
call is repeated with what they brought; the client waits for its answer all the while.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from ..base.errors import INPUT_REFUSED, INTERNAL_ERROR, TOO_MANY_ROUNDS, RemoteProtocolError
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.content import tool_error
from ..bridge.input_requests import Question
from ..downstream.responder import Courier
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey
from ..state.exchange import Input as ExchangeInput
from ..state.exchange import State as ExchangeState
from ..state.input_round import Round
from ..state.link import Link
from ..state.session import Ask, Session

CANCELLED_FORM = b'{"action":"cancel"}'


class Onward(Protocol):
    """Where requests go that can be sent again."""

    def resend(self, link: Link, exchange: Exchange) -> None: ...

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...


class Rounds:
    """
    Args:
        roots_of: the JSON result of `roots/list` in a session, for servers whose roots are not the client's.
    """

    def __init__(self, desk: Desk, courier: Courier, *, roots_of: Callable[[Session], bytes]) -> None:
        self.onward: Onward
        self._desk = desk
        self._courier = courier
        self._roots_of = roots_of

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_questions(self, link: Link, exchange: Exchange, result: bytes) -> None:
        """The server wants to know more before it answers."""
        session = link.session_of(exchange)
        exchange.step(ExchangeInput.ASKED)
        round = exchange.round = exchange.round or Round(exchange.params)
        self._say_visited(session, exchange, round)
        try:
            asked, round.state_raw = input_requests.read_questions(result)
            self._check(session, link, exchange, asked)
        except RemoteProtocolError as error:
            self._fail(link, exchange, INTERNAL_ERROR, f"the server asked what cannot be asked: {error.message}")
            return
        round.answers = {}
        if not asked:
            self._pause(session, exchange, round)
            return
        round.pauses = 0
        round.count += 1
        if round.count > self._desk.limits.rounds_max:
            text = f"the server asked {self._desk.limits.rounds_max} times and was not content: given up"
            self._fail(link, exchange, TOO_MANY_ROUNDS, text, is_tools=True)
            return
        try:
            for question in asked:
                self._ask(link, session, exchange, round, question)
                if exchange.state is not ExchangeState.ASKING:
                    return  # it could not be asked, and that ended the call
        except RemoteProtocolError as error:
            self._fail(link, exchange, INTERNAL_ERROR, f"the server asked what cannot be shown: {error.message}")
            return
        self._go_on(link, exchange)

    def _check(self, session: Session, link: Link, exchange: Exchange, asked: tuple[Question, ...]) -> None:
        """A server must not ask what the client has not declared (2026-07-28 basic/patterns/mrtr)."""
        if len(asked) > self._desk.limits.asks_per_session_max - len(session.asks):
            raise RemoteProtocolError(f"got {len(asked)} questions at once, more than the client can be asked")
        for question in asked:
            if question.method == "roots/list" and link.plan.owns_roots:
                continue
            who = exchange.leg or session.client
            lacking = missing(who.capabilities, question.method, question.params)
            if lacking is not None:
                seen = f"got {question.method}, expected nothing that needs {lacking.decode(errors='replace')}"
                raise RemoteProtocolError(seen)

    def _ask(self, link: Link, session: Session, exchange: Exchange, round: Round, question: Question) -> None:
        if question.method == "roots/list" and link.plan.owns_roots:
            round.answers[question.key] = self._roots_of(session)
            return
        visit = self._desk.mint()
        params = question.params
        if not session.is_stateless:  # else the question is one of a task, whose client reads it as it is
            params = input_requests.shown(
                question.method,
                question.params,
                session.features,
                elicitation_id=visit,
                capabilities=session.client.capabilities,
            )
        number = session.last_ask + 1
        round.open[number] = question
        if params is not None and b'"elicitationId"' in params:
            round.visits[number] = visit
        ask = Ask(b"null", None, question.method, link.upstream.incarnation, None, exchange=exchange)
        self._courier.ask(session, ask, params, exchange)

    def _pause(self, session: Session, exchange: Exchange, round: Round) -> None:
        """It wants nothing but to be asked again."""
        limits = self._desk.limits
        pause_s = min(limits.round_pause_s * 2.0 ** min(round.pauses, 16), limits.round_pause_max_s)
        round.pauses += 1
        self._desk.timers.set(
            ("round", (session.sid, exchange.key)), self._desk.now + pause_s, "request to be repeated"
        )

    def handle_pause(self, link: Link, key: ExchangeKey) -> None:
        exchange = next((s.exchanges[key] for s in link.sessions.values() if key in s.exchanges), None)
        if exchange is not None:
            self._go_on(link, exchange)

    # --- From the client --------------------------------------------------------------------------------------------

    def receive_answer(self, link: Link, number: int, exchange: Exchange, answer: Frame) -> None:
        """The client answered a question, or could not be asked."""
        round, session = exchange.round, link.session_of(exchange)
        question = None if round is None else round.open.pop(number, None)
        if round is None or question is None or exchange.state is not ExchangeState.ASKING:
            return
        if answer.result is None:
            self._receive_refusal(link, exchange, round, question, answer.error or b"{}")
            return
        try:
            result = answer.result
            if not session.is_stateless:
                result = input_requests.answered(question.method, question.params, session.features, result)
            input_requests.check_response(question.method, result)
        except RemoteProtocolError as error:
            self._receive_refusal(link, exchange, round, question, _error(error.rpc_code, error.message))
            return
        if number in round.visits and envelope.text_of(envelope.member_of(result, "action")) != "accept":
            del round.visits[number]
        round.answers[question.key] = result
        self._go_on(link, exchange)

    def _receive_refusal(self, link: Link, exchange: Exchange, round: Round, question: Question, error: bytes) -> None:
        """The client answers with an error, for which there is no place in a retry: a form counts as cancelled, and
        everything else ends the call."""
        if question.method == "elicitation/create":
            round.answers[question.key] = CANCELLED_FORM
            self._go_on(link, exchange)
            return
        said = envelope.text_of(envelope.member_of(envelope.usable_error(error), "message")) or "no reason was given"
        text = f"the server asked for {question.method}, which the client refused: {said}"
        if exchange.method == "tools/call":
            self._finish(link, exchange, envelope.encode_result(exchange.id_raw, tool_error(text)))
        else:
            self._finish(link, exchange, envelope.encode_error(exchange.id_raw, INPUT_REFUSED, text))

    def _go_on(self, link: Link, exchange: Exchange) -> None:
        """Repeat the request once everything is answered."""
        round = exchange.round
        if round is None or round.open or exchange.state is not ExchangeState.ASKING:
            return
        exchange.params = input_requests.retried(round.base, round.answers, round.state_raw)
        self.onward.resend(link, exchange)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, session: Session, exchange: Exchange) -> None:
        """The request is over, however it ended: what was asked in its course is withdrawn."""
        round, exchange.round = exchange.round, None
        if round is None:
            return
        self._desk.timers.cancel(("round", (session.sid, exchange.key)))
        for number in list(round.open):
            self._courier.unask(session, number, msgspec.json.encode({"requestId": 0, "reason": "the call is over"}))
        self._say_visited(session, exchange, round)

    def _say_visited(self, session: Session, exchange: Exchange, round: Round) -> None:
        """The pages that the client agreed to visit have served their purpose, now that the server goes on.

        Source: 2025-11-25 client/elicitation, "Completion Notifications for URL Mode Elicitation".
        """
        visits, round.visits = round.visits, {}
        for visit in visits.values():
            params = msgspec.json.encode({"elicitationId": visit})
            method = "notifications/elicitation/complete"
            self._courier.deliver(session, method, envelope.encode_notification(method, params), exchange)

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str, *, is_tools: bool = False) -> None:
        """Args: is_tools: a tool's call ends with a result that says so, which its caller reads."""
        if is_tools and exchange.method == "tools/call":
            self._finish(link, exchange, envelope.encode_result(exchange.id_raw, tool_error(text)))
        else:
            self._finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text))

    def _finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        self.onward.finish(link, exchange, message)


def _error(code: int, text: str) -> bytes:
    return msgspec.json.encode({"code": code, "message": text})
