"""Questions of a stateless server (`input_required`) for a client with a session.

Each question is sent to the client as a server request, on the stream of the call it belongs to. Once all questions of
a round are answered, the call is sent upstream again with the answers. The client waits for its response all the while.

The opposite direction, questions of servers with sessions for stateless clients, is in `suspended_calls`.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

import msgspec

from ..base.errors import INPUT_REFUSED, INTERNAL_ERROR, TOO_MANY_ROUNDS, RemoteProtocolError
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.content import tool_error
from ..bridge.input_requests import Question
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey, ExchangeState
from ..state.input_round import InputRound
from ..state.link import Link
from ..state.session import PendingQuestion, Session
from ..upstream.roots import roots_of

CANCELLED_FORM = b'{"action":"cancel"}'


class Rounds:
    """The rounds of questions of all requests."""

    def __init__(self, context: Context, responder: Responder) -> None:
        self._context = context
        self._responder = responder

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_questions(self, link: Link, exchange: Exchange, result: bytes) -> None:
        """Handles an `InputRequiredResult`: asks the client its questions. One without questions is a request to retry,
        which happens after a pause."""
        session = link.session_of(exchange)
        round = exchange.begin_round()
        self._send_complete(session, exchange, round)
        try:
            asked, state_raw = input_requests.read_questions(result)
            self._check(session, link, exchange, asked)
        except RemoteProtocolError as error:
            self._fail(link, exchange, INTERNAL_ERROR, f"the server asked what cannot be asked: {error.message}")
            return
        round.receive_questions(state_raw)
        if not asked:
            self._pause(session, exchange, round)
            return
        if round.count_round() > self._context.limits.rounds_max:
            text = f"the server asked {self._context.limits.rounds_max} times and was not content: given up"
            self._fail(link, exchange, TOO_MANY_ROUNDS, text, is_tools=True)
            return
        try:
            for question in asked:
                self._ask(link, session, exchange, round, question)
                if exchange.state is not ExchangeState.ASKING:
                    return  # the question could not be asked, and that ended the call
        except RemoteProtocolError as error:
            self._fail(link, exchange, INTERNAL_ERROR, f"the server asked what cannot be shown: {error.message}")
            return
        self._resend_if_answered(link, exchange)

    def _check(self, session: Session, link: Link, exchange: Exchange, asked: tuple[Question, ...]) -> None:
        """Raises RemoteProtocolError for questions that must not be asked: too many at once, or beyond what the client
        has declared (2026-07-28 basic/patterns/mrtr)."""
        if len(asked) > self._context.limits.questions_per_session_max - len(session.questions):
            raise RemoteProtocolError(f"got {len(asked)} questions at once, more than the client can be asked")
        for question in asked:
            if question.method == "roots/list" and link.plan.owns_roots:
                continue
            client = exchange.request or session.client
            lacking = missing(client.capabilities, question.method, question.params)
            if lacking is not None:
                seen = f"got {question.method}, expected nothing that needs {lacking.decode(errors='replace')}"
                raise RemoteProtocolError(seen)

    def _ask(self, link: Link, session: Session, exchange: Exchange, round: InputRound, question: Question) -> None:
        if question.method == "roots/list" and link.plan.owns_roots:
            round.answer(question, roots_of(self._context, session))
            return
        elicitation_id = self._context.mint()
        params = question.params
        if not session.is_stateless:  # a stateless client is asked through its task, in the words of the server
            params = input_requests.shown(
                question.method,
                question.params,
                session.features,
                elicitation_id=elicitation_id,
                capabilities=session.client.capabilities,
            )
        number = session.last_question + 1
        is_visit = params is not None and b'"elicitationId"' in params
        round.ask(number, question, visit=elicitation_id if is_visit else None)
        pending = PendingQuestion(b"null", None, question.method, link.upstream.incarnation, None, exchange=exchange)
        self._responder.ask(session, pending, params, exchange)

    def _pause(self, session: Session, exchange: Exchange, round: InputRound) -> None:
        """Schedules a retry of a request whose round had no questions. The pause doubles with each such round in a row,
        up to `Limits.round_pause_max_s`."""
        limits = self._context.limits
        pause_s = min(limits.round_pause_s * 2.0 ** min(round.begin_pause(), 16), limits.round_pause_max_s)
        self._context.timers.set(
            ("round", (session.sid, exchange.key)), self._context.now + pause_s, "request to be repeated"
        )

    def handle_pause(self, session: Session, key: ExchangeKey) -> None:
        exchange = session.exchanges.get(key)
        link = None if exchange is None else session.router.link_of(exchange)
        if exchange is not None and link is not None:
            self._resend_if_answered(link, exchange)

    # --- From the client --------------------------------------------------------------------------------------------

    def receive_answer(self, link: Link, number: int, exchange: Exchange, answer: Frame) -> None:
        """Handles the client's response to a question. An error in it may also be our own: the client could not be
        asked."""
        round, session = exchange.round, link.session_of(exchange)
        question = None if round is None else round.take(number)
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
        if envelope.text_of(envelope.member_of(result, "action")) != "accept":
            round.decline_visit(number)
        round.answer(question, result)
        self._resend_if_answered(link, exchange)

    def _receive_refusal(
        self, link: Link, exchange: Exchange, round: InputRound, question: Question, error: bytes
    ) -> None:
        """Handles an error in place of an answer, for which `inputResponses` has no form: an elicitation counts as
        cancelled, any other question ends the call."""
        if question.method == "elicitation/create":
            round.answer(question, CANCELLED_FORM)
            self._resend_if_answered(link, exchange)
            return
        reason = envelope.text_of(envelope.member_of(envelope.usable_error(error), "message")) or "no reason was given"
        text = f"the server asked for {question.method}, which the client refused: {reason}"
        if exchange.method == "tools/call":
            self._finish(link, exchange, envelope.encode_result(exchange.id_raw, tool_error(text)))
        else:
            self._finish(link, exchange, envelope.encode_error(exchange.id_raw, INPUT_REFUSED, text))

    def _resend_if_answered(self, link: Link, exchange: Exchange) -> None:
        """Sends the request again once every question is answered."""
        round = exchange.round
        if round is None or round.open or exchange.state is not ExchangeState.ASKING:
            return
        exchange.replace_params(round.retried())
        link.router.resend(link, exchange)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, session: Session, exchange: Exchange) -> None:
        """Ends the round of a request that is over, however it ended: withdraws its open questions."""
        round = exchange.end_rounds()
        if round is None:
            return
        self._context.timers.cancel(("round", (session.sid, exchange.key)))
        for number in list(round.open):
            self._responder.cancel_question(
                session, number, msgspec.json.encode({"requestId": 0, "reason": "the call is over"})
            )
        self._send_complete(session, exchange, round)

    def _send_complete(self, session: Session, exchange: Exchange, round: InputRound) -> None:
        """Sends `notifications/elicitation/complete` for the pages that the client agreed to visit: now that the server
        goes on, they have served their purpose.

        Source: 2025-11-25 client/elicitation, "Completion Notifications for URL Mode Elicitation".
        """
        for elicitation_id in round.take_visits().values():
            params = msgspec.json.encode({"elicitationId": elicitation_id})
            method = "notifications/elicitation/complete"
            self._responder.deliver(session, method, envelope.encode_notification(method, params), exchange)

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str, *, is_tools: bool = False) -> None:
        """Ends a request with an error.

        Args:
            is_tools: a `tools/call` ends with an `isError` result instead, which the model reads.
        """
        if is_tools and exchange.method == "tools/call":
            self._finish(link, exchange, envelope.encode_result(exchange.id_raw, tool_error(text)))
        else:
            self._finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text))

    def _finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        link.router.finish(link, exchange, message)


def _error(code: int, text: str) -> bytes:
    return msgspec.json.encode({"code": code, "message": text})
