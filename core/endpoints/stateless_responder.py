"""Sends messages to clients without sessions.

These clients have no stream of their own. A response, progress and log messages travel on the request they belong to,
notifications of changes on the subscriptions that cover them, and questions as the response to a call. A message that
belongs to none of these is dropped.

Source: 2026-07-28 basic/transports/streamable-http, server/utilities/logging.
"""

from __future__ import annotations

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..base.memoize import remembered
from ..base.methods import CHANGE_NOTIFICATIONS
from ..bridge import errors, results
from ..bridge.discovery import server_info_of
from ..downstream.downstream import Downstream
from ..input_required.questions import Questions
from ..input_required.suspended_calls import wants
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import PendingQuestion, Session
from ..subscriptions.client_listens import ClientListens
from .affinity_handles import AffinityHandles
from .affinity_table import AffinityTable

_info_of = remembered(server_info_of)


class StatelessResponder:
    """The responder for clients without sessions, as their `StatelessReplies`."""

    def __init__(
        self,
        context: Context,
        downstream: Downstream,
        client_listens: ClientListens,
        questions: Questions,
        by_affinity: AffinityTable,
        handles: AffinityHandles,
    ) -> None:
        self._context = context
        self._streams = downstream.streams
        self._responder = downstream.responder
        self._sessions = downstream.sessions
        self._client_listens = client_listens
        self._suspended_calls = questions.suspended_calls
        self._url_elicitation = questions.url_elicitation
        self._deferred_questions = questions.deferred_questions
        self._by_affinity = by_affinity
        self._handles = handles

    # --- Answers ----------------------------------------------------------------------------------------------------

    def holds(self, session: Session) -> bool:
        """True if anything is kept here that a client may come back for."""
        return self._suspended_calls.holds(session)

    def keeps(self, session: Session, exchange: Exchange, message: bytes) -> bool:
        """Handles the response to a call. True if the client is away, and gets it when it comes back."""
        return self._suspended_calls.settle(session, exchange, message)

    def shown(self, session: Session, exchange: Exchange, message: bytes) -> bytes:
        """Returns a response in the client's era, under the id of the request that waits for it. Sets the HTTP status
        of the reply for an error."""
        frame = envelope.decode(message)
        if frame.error is not None:
            error = frame.error if exchange.is_native else errors.to_modern(exchange.method, exchange.said, frame.error)
            return self._refused(exchange, error)
        assert frame.result is not None
        if exchange.is_native:
            return envelope.encode_result(exchange.id_raw, self._handles.shown(session, exchange, frame.result))
        try:
            result = results.to_modern(exchange.method, frame.result, server_info=self.server_info(session))
        except RemoteProtocolError as fault:
            text = f"the server's answer could not be read: {fault.message}"
            return self._refused(exchange, envelope.error_object(INTERNAL_ERROR, text))
        return envelope.encode_result(exchange.id_raw, self._handles.shown(session, exchange, result))

    def server_info(self, session: Session) -> bytes | None:
        """Returns the server's name in results: that of its greeting."""
        return None if session.greeting is None else _info_of(session.greeting)

    def _refused(self, exchange: Exchange, error: bytes) -> bytes:
        reply = exchange.reply
        if reply.ends_channel and reply.status == 200:
            reply.refuse(errors.http_status(error))
        return envelope.encode_error_raw(exchange.id_raw, error)

    def answer_request(self, session: Session, exchange: Exchange, outcome: bytes) -> None:
        """Answers a retry with the response that has waited for it."""
        self._responder.close(session, exchange.reply, self.shown(session, exchange, outcome))

    # --- Notifications ----------------------------------------------------------------------------------------------

    def deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None:
        """Delivers a notification of the server. One that cannot be read is dropped."""
        try:
            self._deliver(session, method, message, related)
        except RemoteProtocolError as error:
            self._context.note("warning", f"server sent a broken {method}: {error.message}", session.server)

    def _deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None:
        if method in CHANGE_NOTIFICATIONS:
            self._client_listens.deliver(session, method, message)
        elif method == "notifications/message":
            self._deliver_log(session, message, related)
        elif method == "notifications/elicitation/complete":
            visit = envelope.text_of(envelope.member_of(envelope.decode(message).params, "elicitationId"))
            if visit is not None:
                self._url_elicitation.receive_done(session, visit)
        elif related is not None:
            self._tell_or_keep(session, related, method, message)
        else:
            self._context.note("debug", f"{method} dropped: no request of the client is it about", session.server)

    def _deliver_log(self, session: Session, message: bytes, related: Exchange | None) -> None:
        """Delivers a log message to the request it belongs to, if that wants messages of its level; without such a
        request, to all open requests that want it."""
        for exchange in list(session.exchanges.values()) if related is None else [related]:
            if related is None and (exchange.upstream_id is None or exchange.is_lasting):
                continue
            if wants(exchange, message):
                self._tell_or_keep(session, exchange, "notifications/message", message)

    def tell_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Sends progress of a call, or keeps it while the client is away."""
        self._tell_or_keep(session, exchange, "notifications/progress", message)

    def _tell_or_keep(self, session: Session, exchange: Exchange, method: str, message: bytes) -> None:
        if exchange.suspended_call is not None and not exchange.suspended_call.has_request:
            self._suspended_calls.keep(exchange, method, message)
        elif exchange.reply.can_stream:
            self._streams.put(session, exchange.reply.stream, message, is_lossy=True)

    # --- Questions --------------------------------------------------------------------------------------------------

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, related: Exchange | None) -> None:
        """Asks a question of the server in the response to a call."""
        self._suspended_calls.ask(session, question, params, related)

    def cancel_question(self, session: Session, number: int) -> None:
        """Withdraws a question."""
        if not self._deferred_questions.withdraw(session, number):
            self._suspended_calls.withdraw(session, number)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def cancel(self, session: Session, exchange: Exchange) -> None:
        """Handles a client's cancellation of a call: open questions of its server are answered in the client's
        place."""
        self._suspended_calls.cancel(session, exchange)

    def release(self, exchange: Exchange) -> None:
        """Handles a call that becomes a task: from now on its questions are those of the task."""
        self._suspended_calls.release(exchange)

    def receive_settled(self, session: Session) -> None:
        """Handles the end of a request: a session that was for it alone ends, too."""
        is_idle = not session.exchanges and not self._suspended_calls.holds(session)
        if not is_idle:
            return
        if not self._by_affinity.is_for_one(session):
            self._handles.receive_settled(session)
        elif not session.router.is_used(session):
            self._sessions.close_session(session, "its request is over")

    def close_session(self, session: Session) -> None:
        """Handles the coming end of a session."""
        self._by_affinity.remove(session)
        self._handles.close_session(session)
        self._url_elicitation.close_session(session)
        self._deferred_questions.close_session(session)
        self._suspended_calls.close_session(session)
