"""Questions that cross eras: the parts of this room, as one interceptor and one feature.

A server with sessions asks by requests, a stateless server by `input_required` results; a client with a session answers
by responses, a client without by retries. Where both sides use the same form, nothing here has a say.
"""

from __future__ import annotations

import msgspec

from ..base.errors import URL_REQUIRED, RemoteProtocolError
from ..base.methods import MAY_ASK
from ..bridge import errors
from ..bridge.input_requests import is_input_required
from ..bridge.request_state import RequestStateSigner
from ..downstream.responder import Responder
from ..downstream.sessions import Sessions
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeState
from ..state.feature import Feature
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.session import PendingQuestion, Session
from .call_state import CallState
from .deferred_questions import DeferredQuestions
from .replay import Replays
from .rounds import Rounds
from .suspended_calls import SuspendedCalls
from .url_elicitation import UrlElicitation

STATE_KEY_BYTES = 32
"""The size of the key that is made for one run, as many bytes as its hash has."""


class Questions(Feature, Interceptor):
    """The questions of all servers.

    Attributes:
        signer: seals and opens the `requestState` of calls.
        replays: the tools that may be called twice, for calls that a restart has lost.
        suspended_calls: the calls whose questions clients answer by retries.
        url_elicitation: the calls that wait for a visit to a page.
        deferred_questions: the questions that wait for a client's next request.
    """

    name = "questions"

    def __init__(self, context: Context, sessions: Sessions, responder: Responder) -> None:
        self.signer = RequestStateSigner(context.plan.state_keys or (context.entropy(STATE_KEY_BYTES),))
        replica = context.plan.replica
        owner = context.mint() if replica is None else replica.owner
        call_state = CallState(context, self.signer, owner)
        self.replays = Replays(context.limits)
        self.deferred_questions = deferred = DeferredQuestions(context, call_state, responder)
        self.suspended_calls = suspended = SuspendedCalls(context, call_state, responder, deferred)
        self.url_elicitation = url_elicitation = UrlElicitation(context, call_state, responder)
        self._rounds = rounds = Rounds(context, responder)
        self.interceptors = (self,)
        self.timers = {
            "round": sessions.while_open(rounds.handle_pause),
            "visit": sessions.while_open(url_elicitation.handle_visit),
            "defer": sessions.while_open(deferred.handle_defer),
            "collect": suspended.handle_collect,
            "park": suspended.handle_suspended_call,
            "tick": suspended.handle_tick,
        }

    def has_say(self, link: Link) -> bool:
        return False  # a plain call carries no state of a round, and its result no questions

    # --- Up ---------------------------------------------------------------------------------------------------------

    def receive_sent(self, link: Link, exchange: Exchange) -> None:
        """Asks the questions that waited for a call: this one was sent before its client could be asked."""
        session = link.session_of(exchange)
        if session.is_stateless:
            for question, params in self.deferred_questions.take_waiting(session, exchange):
                self.suspended_calls.ask(session, question, params, exchange)

    def receive_client_answer(self, link: Link, session: Session, question: PendingQuestion, answer: Frame) -> bool:
        asker = question.exchange
        if asker is None or (asker.round is None and session.is_stateless):
            return False
        self._rounds.receive_answer(link, question.number, asker, answer)
        return True

    def receive_login(self, link: Link, exchange: Exchange, page: bytes) -> bool:
        session = link.session_of(exchange)
        if exchange.task is not None:
            return False
        if session.is_stateless:
            return self.url_elicitation.receive_login(session, exchange, page)
        if not session.opens_pages:
            return False
        error = {
            "code": URL_REQUIRED,
            "message": envelope.text_of(envelope.member_of(page, "message")),
            "data": {"elicitations": [msgspec.Raw(page)]},
        }
        link.router.finish(link, exchange, envelope.encode_error_raw(exchange.id_raw, msgspec.json.encode(error)))
        return True

    # --- Down -------------------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        if link.is_stateless:
            return frame.result is not None and self._receive_questions(link, exchange, frame.result)
        error = None if frame.error is None else envelope.usable_error(frame.error)
        if exchange.lacking is not None:
            return self._finish_lacking(link, exchange, exchange.lacking, error=error, result=frame.result)
        if error is None or envelope.error_code(error) != URL_REQUIRED or exchange.task is not None:
            return False
        is_stateless = link.session_of(exchange).is_stateless
        return is_stateless and self.url_elicitation.receive_visits(link, exchange, error)

    def _receive_questions(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        """Handles a result of a stateless server. True if it asks questions."""
        if not is_input_required(result):
            return False
        if exchange.method not in MAY_ASK:
            text = f"got input_required for {exchange.method}, expected it for {', '.join(sorted(MAY_ASK))} only"
            raise RemoteProtocolError(text, clause="2026-07-28 basic/patterns/mrtr, Supported Requests")
        if exchange.state is ExchangeState.TASKED:
            text = "got input_required for what a task came to, expected its result"
            raise RemoteProtocolError(text, clause="extension io.modelcontextprotocol/tasks, Task Creation")
        if not link.session_of(exchange).is_stateless or exchange.task is not None:
            self._rounds.receive_questions(link, exchange, result)
            return True
        exchange.mark_native()
        exchange.step(ExchangeInput.REPLY)
        link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, result))
        return True

    def _finish_lacking(
        self, link: Link, exchange: Exchange, lacking: bytes, *, error: bytes | None, result: bytes | None
    ) -> bool:
        """Finishes a call whose server asked for a capability that the client lacks.

        True if that was the reason of the call's failure, as far as can be told. The client then gets an error that
        names the capability.
        """
        instead = errors.to_missing_capability(lacking, error=error, result=result)
        if instead is None:
            return False
        exchange.mark_native()
        exchange.step(ExchangeInput.REPLY)
        link.router.finish(link, exchange, envelope.encode_error_raw(exchange.id_raw, instead))
        return True

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes:
        """Learns from a list of tools which of them may be called twice."""
        session = link.session_of(exchange)
        if exchange.method == "tools/list" and not link.is_stateless and session.affinity is not None:
            is_first = envelope.member_of(exchange.params, "cursor") in (None, b"null")
            self.replays.learn(session.affinity.audience, result, is_first=is_first)
        return result

    # --- Ends -------------------------------------------------------------------------------------------------------

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        if session.is_stateless:
            self.url_elicitation.forget(session, exchange)
        if exchange.round is not None:
            self._rounds.forget(session, exchange)
