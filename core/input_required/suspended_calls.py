"""Questions of servers with sessions for stateless clients: the call they belong to is suspended until its client
retries with the answers.

The client's request is answered with `input_required`: the questions, and a sealed token (`requestState`) that says
which call they belong to. The token grants nothing else: the client that presents it must still be the same
principal, with the same request. Upstream the call stays open all the while.

The opposite direction, questions of stateless servers for clients with sessions, is in `rounds`.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..base.errors import INTERNAL_ERROR, OVERLOADED, RemoteProtocolError
from ..base.events import Headers
from ..base.log_levels import LEVELS
from ..base.methods import MAY_ASK
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.discovery import server_info_of
from ..bridge.input_shapes import METHODS
from ..bridge.request_meta import RequestMeta
from ..bridge.request_state import Claims, ClaimsKind
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeState
from ..state.session import PendingQuestion, Session
from ..state.suspended_call import SuspendedCall, SuspendedCallState, SuspendedQuestion, invalid_state
from .call_state import CallState, asking
from .deferred_questions import DeferredQuestions
from .replay import digest_of_question, digests


class SuspendedCalls:
    """The suspended calls of all sessions, and those that were suspended and go on.

    Bounded by `Limits.suspended_calls_max` and `Limits.suspended_calls_per_session_max`.
    """

    def __init__(
        self, context: Context, call_state: CallState, responder: Responder, deferred_questions: DeferredQuestions
    ) -> None:
        self._context = context
        self._call_state = call_state
        self._responder = responder
        self._deferred_questions = deferred_questions
        self._by_id: dict[str, tuple[Session, Exchange]] = {}

    # --- From the server --------------------------------------------------------------------------------------------

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, related: Exchange | None) -> None:
        """Handles a question of a server: it is sent with the call it belongs to.

        That is the call on whose stream it came (`related`), otherwise the latest open call, if possible one whose
        client declared what the question needs. A question that cannot be read is refused.
        """
        try:
            self._ask(session, question, params, related)
        except RemoteProtocolError as fault:
            refusal = envelope.error_object(fault.rpc_code, fault.message)
            session.router.reply(session, question, Frame(error=refusal), session.headers)

    def _ask(self, session: Session, question: PendingQuestion, params: bytes | None, related: Exchange | None) -> None:
        """Raises RemoteProtocolError if the question cannot be read. Nothing has changed then."""
        exchange = self._call_for(session, question, params, related)
        if exchange is None:
            self._defer_or_answer(session, question, params)
            return
        if question.method not in METHODS:
            session.router.reply(session, question, Frame(error=input_requests.NOT_ASKED), session.headers)
            return
        lacking = None if exchange.request is None else missing(exchange.request.capabilities, question.method, params)
        if lacking is not None:
            if related is not None or len(self._open_calls(session)) == 1:
                exchange.lack(lacking)
            session.router.reply(session, question, input_requests.refusal_of(question.method), session.headers)
            return
        abilities = None if exchange.request is None else exchange.request.capabilities
        entry = input_requests.embed(question.method, params, capabilities=abilities)
        known = exchange.take_known(digest_of_question(entry))
        if known is not None:
            session.router.reply(session, question, Frame(result=known), session.headers)
            return
        suspended_call = exchange.suspended_call or self._begin(session, exchange)
        if suspended_call is None:
            text = "too many calls wait for answers of their clients: try again later"
            session.router.reply(
                session, question, Frame(error=envelope.error_object(INTERNAL_ERROR, text)), session.headers
            )
            return
        number = session.record_question(question._replace(exchange=exchange))
        suspended_call.receive_question(SuspendedQuestion(number, question.method, entry))
        if suspended_call.state is SuspendedCallState.COLLECT:
            self._context.timers.set(
                ("collect", suspended_call.id), self._context.now + self._context.limits.collect_s, "more questions"
            )
        elif suspended_call.state is SuspendedCallState.WAITING and question.token_raw is not None:
            self._tick_later(suspended_call)

    def _call_for(
        self, session: Session, question: PendingQuestion, params: bytes | None, related: Exchange | None
    ) -> Exchange | None:
        if related is not None:
            return related if related.method in MAY_ASK else None
        calls = self._open_calls(session)
        capable = [
            e for e in calls if e.request is None or missing(e.request.capabilities, question.method, params) is None
        ]
        return (capable or calls)[-1] if calls else None

    def _open_calls(self, session: Session) -> list[Exchange]:
        calls = [e for e in session.exchanges.values() if e.task is None and e.method in MAY_ASK]
        return [e for e in calls if e.upstream_id is not None or e.state is ExchangeState.TASKED]

    def _defer_or_answer(self, session: Session, question: PendingQuestion, params: bytes | None) -> None:
        """Keeps a question for the next call, or answers it with its fallback: no open call can carry it."""
        if self._deferred_questions.take(session, question, params):
            return
        self._context.note("info", f"{question.method} came while the client could not be asked", session.server)
        session.router.reply(session, question, input_requests.fallback(question.method), session.headers)

    def _begin(self, session: Session, exchange: Exchange) -> SuspendedCall | None:
        limits = self._context.limits
        own = sum(1 for other, _ in self._by_id.values() if other is session)
        if own >= limits.suspended_calls_per_session_max or len(self._by_id) >= limits.suspended_calls_max:
            self._context.note("warning", f"{len(self._by_id)} calls are parked, the most allowed", session.server)
            return None
        suspended_call = exchange.suspend(SuspendedCall(self._context.mint()))
        self._by_id[suspended_call.id] = session, exchange
        return suspended_call

    def withdraw(self, session: Session, number: int) -> None:
        """Drops a question that the server withdrew, or whose server is gone."""
        question = session.settle_question(number)
        if question is None or question.exchange is None or question.exchange.suspended_call is None:
            return
        suspended_call = question.exchange.suspended_call
        suspended_call.receive_withdrawal(number)
        if suspended_call.state is SuspendedCallState.RUN:
            self._context.timers.cancel(("collect", suspended_call.id))

    def handle_collect(self, id: str) -> None:
        """Asks the client what there is to ask: no further question came within `Limits.collect_s`."""
        session, exchange = self._by_id[id]
        assert exchange.suspended_call is not None
        self._issue(session, exchange, exchange.suspended_call)

    def _issue(self, session: Session, exchange: Exchange, suspended_call: SuspendedCall) -> None:
        self._context.timers.cancel(("collect", suspended_call.id))
        entries = suspended_call.issue()
        state = self._call_state.state(
            session,
            exchange,
            ClaimsKind.PARK,
            suspended_call=suspended_call.id,
            round=suspended_call.round,
            questions=digests(entries),
        )
        self._context.timers.cancel(("reply", (session.sid, exchange.key)))  # the server waits for the client now
        self._context.timers.set(
            ("park", suspended_call.id),
            self._context.now + self._context.limits.suspended_call_ttl_s,
            "client's answers",
        )
        if any(
            question.token_raw is not None for question in session.questions.values() if question.exchange is exchange
        ):
            self._tick_later(suspended_call)
        message = asking(exchange.id_raw, entries, state, server_info_of(session.greeting))
        self._responder.close(session, exchange.reply, message)
        exchange.detach()

    # --- From the client --------------------------------------------------------------------------------------------

    def find(self, claims: Claims) -> tuple[Session, Exchange] | None:
        """Returns the call that a token is for; None if another run of the proxy had it.

        Raises:
            RemoteProtocolError: the call was in this run, and has ended.
        """
        if not self._call_state.is_own(claims):
            return None
        found = self._by_id.get(claims.suspended_call)
        if found is None:
            raise invalid_state()
        return found

    def resume(
        self,
        session: Session,
        exchange: Exchange,
        round: int,
        responses: Mapping[str, bytes],
        request: RequestMeta,
        token_raw: bytes | None,
        headers: Headers,
    ) -> bytes | None:
        """Handles a retry, whose reply `exchange` has been given already.

        Args:
            round: the one that the token is for.
            headers: came with the answers, and are sent on with them.

        Returns:
            The response that ended the call meanwhile; None if the call goes on, with the new request.

        Raises:
            RemoteProtocolError: the round was claimed before, or an answer is malformed. Nothing has changed; in the
                second case the round can still be claimed.
        """
        suspended_call = exchange.suspended_call
        assert suspended_call is not None
        suspended_call.check_round(round)
        for key, response in responses.items():
            if (wanted := suspended_call.open.get(key)) is not None:
                input_requests.check_response(wanted.method, response)
        outcome = suspended_call.outcome
        answered = suspended_call.claim(round, responses)
        exchange.describe_client(request, token_raw)
        if suspended_call.state is SuspendedCallState.GONE:
            self._forget(suspended_call)
            self._tell_missed(session, exchange, suspended_call)
            return outcome or b""
        self._context.timers.cancel(("park", suspended_call.id))
        for wanted, response in answered:
            question = _settled(session, wanted.number)
            session.router.reply(session, question, Frame(result=response), headers)
        return None

    def go_on(self, session: Session, exchange: Exchange) -> None:
        """Continues a call on the retry that `resume` accepted: sends what its client missed, then asks the questions
        that are still open, at once. Those that the new request's capabilities do not cover are refused."""
        suspended_call = exchange.suspended_call
        assert suspended_call is not None
        self._tell_missed(session, exchange, suspended_call)
        for key, wanted in list(suspended_call.open.items()):
            if exchange.request is not None and self._is_unable(exchange.request, wanted):
                suspended_call.refuse(key)
                question = _settled(session, wanted.number)
                session.router.reply(session, question, input_requests.refusal_of(question.method), session.headers)
        if suspended_call.state is SuspendedCallState.COLLECT:
            if suspended_call.open:
                self._issue(session, exchange, suspended_call)
            else:
                # No question has the number 0. As none is open, the call goes from COLLECT back to RUN.
                suspended_call.receive_withdrawal(0)

    def _tell_missed(self, session: Session, exchange: Exchange, suspended_call: SuspendedCall) -> None:
        """Sends the notifications that came while the client was away. The new request may want fewer log messages than
        the one before, or no progress."""
        missed, progress = suspended_call.take_missed()
        for message in missed:
            if wants(exchange, message):
                self._responder.tell(session, exchange, message)
        if progress is not None and exchange.token_raw is not None:
            params = set_member(progress, "progressToken", exchange.token_raw)
            self._responder.tell(session, exchange, envelope.encode_notification("notifications/progress", params))

    def _is_unable(self, request: RequestMeta, question: SuspendedQuestion) -> bool:
        return missing(request.capabilities, question.method, envelope.member_of(question.entry, "params")) is not None

    # --- While the client is away -------------------------------------------------------------------------------------

    def settle(self, session: Session, exchange: Exchange, message: bytes) -> bool:
        """Handles the response to a call. True if `message`, the response, is kept for a client that is away.

        All kept responses together may have `Limits.held_answers_max_bytes`. One that is too large is replaced by an
        error that says so.
        """
        suspended_call = exchange.suspended_call
        if suspended_call is None or suspended_call.is_over:
            return False
        for number, question in [(n, a) for n, a in session.questions.items() if a.exchange is exchange]:
            session.settle_question(number)
            # The server responded to the call without waiting for these answers.
            session.router.reply(session, question, input_requests.fallback(question.method), session.headers)
        self._context.timers.cancel(("collect", suspended_call.id))
        held_bytes = sum(
            len(e.suspended_call.outcome or b"") for _, e in self._by_id.values() if e.suspended_call is not None
        )
        if not suspended_call.has_request and held_bytes + len(message) > self._context.limits.held_answers_max_bytes:
            text = "the answer came while its client was away, and was too large to be kept: the call has run"
            message = envelope.encode_error(exchange.id_raw, OVERLOADED, text, {"outcome": "executed"})
            exchange.mark_native()
        if suspended_call.settle(message):
            return True
        self._forget(suspended_call)
        return False

    def handle_tick(self, id: str) -> None:
        """Sends progress for the questions of a suspended call: servers give up on a question after a minute or so
        without it."""
        session, exchange = self._by_id[id]
        suspended_call = exchange.suspended_call
        assert suspended_call is not None
        if suspended_call.state is not SuspendedCallState.WAITING:
            return
        ticks = suspended_call.count_tick()
        for question in session.questions.values():
            if question.exchange is exchange and question.token_raw is not None:
                session.router.tick(session, question, ticks)
        self._tick_later(suspended_call)

    def _tick_later(self, suspended_call: SuspendedCall) -> None:
        self._context.timers.set(
            ("tick", suspended_call.id), self._context.now + self._context.limits.suspended_call_tick_s, "sign of life"
        )

    def keep(self, exchange: Exchange, method: str, message: bytes) -> None:
        """Keeps a notification for a client that is away: the latest progress, and every other one as long as there is
        room (`Limits.suspended_call_logs_max`, `Limits.suspended_call_logs_max_bytes`). The rest is dropped."""
        suspended_call = exchange.suspended_call
        assert suspended_call is not None
        assert not suspended_call.has_request
        if method == "notifications/progress":
            suspended_call.miss_progress(envelope.decode(message).params)
        elif self._has_room(suspended_call, message):
            suspended_call.miss(message)

    def _has_room(self, suspended_call: SuspendedCall, message: bytes) -> bool:
        limits = self._context.limits
        size_bytes = sum(map(len, suspended_call.missed)) + len(message)
        return (
            len(suspended_call.missed) < limits.suspended_call_logs_max
            and size_bytes <= limits.suspended_call_logs_max_bytes
        )

    # --- Ends -------------------------------------------------------------------------------------------------------

    def handle_suspended_call(self, id: str) -> None:
        """Ends a call whose client did not come back within `Limits.suspended_call_ttl_s`. If the response is here
        already it is dropped; else the call is cancelled upstream."""
        session, exchange = self._by_id[id]
        assert exchange.suspended_call is not None
        self._context.note(
            "info", f"{exchange.method} given up: its client did not come back with answers", session.server
        )
        if exchange.suspended_call.state is SuspendedCallState.HELD:
            exchange.suspended_call.end()
            self._forget(exchange.suspended_call)
            assert session.replies is not None
            session.replies.receive_settled(session)
        else:
            reason = msgspec.json.encode({"requestId": 0, "reason": "the client did not come back"})
            self._responder.cancel(session, exchange, reason, session.headers)

    def cancel(self, session: Session, exchange: Exchange) -> None:
        """Ends the suspension of a call that is cancelled or given up. The server gets the fallback answer to each open
        question, as from a user who closes the form."""
        suspended_call = exchange.suspended_call
        if suspended_call is None:
            return
        for number, question in [(n, a) for n, a in session.questions.items() if a.exchange is exchange]:
            session.settle_question(number)
            session.router.reply(session, question, input_requests.fallback(question.method), session.headers)
        suspended_call.end()
        self._forget(suspended_call)

    def release(self, exchange: Exchange) -> None:
        """Ends the suspension of a call that goes on as a task: from now on its questions are those of the task."""
        suspended_call = exchange.end_suspension()
        if suspended_call is not None:
            suspended_call.end()
            self._forget(suspended_call)

    def holds(self, session: Session) -> bool:
        """True if a call of the session is suspended, or has a response that its client has not fetched."""
        return any(other is session for other, _ in self._by_id.values())

    def close_session(self, session: Session) -> None:
        """Drops the suspended calls of a session that ends, with the responses that are kept for its client."""
        for other, exchange in list(self._by_id.values()):
            if other is session and exchange.suspended_call is not None:
                exchange.suspended_call.end()
                self._forget(exchange.suspended_call)

    def _forget(self, suspended_call: SuspendedCall) -> None:
        self._by_id.pop(suspended_call.id, None)
        for purpose in ("collect", "park", "tick"):
            self._context.timers.cancel((purpose, suspended_call.id))


def _settled(session: Session, number: int) -> PendingQuestion:
    question = session.settle_question(number)
    assert question is not None
    return question


def wants(exchange: Exchange, message: bytes) -> bool:
    """True if the client of a call is to get a notification. It gets log messages from the level up that its request
    named, none if that named none, and any other notification."""
    frame = envelope.decode(message)
    if frame.method != "notifications/message":
        return True
    wanted = None if exchange.request is None else exchange.request.log_level
    if wanted is None:
        return False
    level = envelope.text_of(envelope.member_of(frame.params, "level"))
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)
