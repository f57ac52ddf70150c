"""What clients without sessions are told, and on which of their requests.

They have no stream of their own: an answer, progress and the log travel on the request they belong to, changes on the
subscriptions that cover them, and questions as the answer to a call. What belongs nowhere is dropped.

Source: 2026-07-28 basic/transports/streamable-http, server/utilities/logging.
"""

from __future__ import annotations

from typing import Protocol

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..bridge import errors, results
from ..bridge.discovery import server_info_of
from ..downstream.event_streams import Streams
from ..input_required.deferred_questions import Deferring
from ..input_required.suspended_calls import Parking, detached, wants
from ..input_required.url_elicitation import Visits
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.session import Ask, Session
from ..subscriptions.client_listens import Listens

LISTENED = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""What is told to subscriptions."""


class Sender(Protocol):
    """How a request is answered."""

    def close_reply(self, session: Session, exchange: Exchange, message: bytes | None) -> None: ...


class Legwork:
    """The way down to clients without sessions."""

    def __init__(self, desk: Desk, streams: Streams) -> None:
        self.parking: Parking
        self.visits: Visits
        self.deferring: Deferring
        self.listens: Listens
        self.sender: Sender
        self._desk = desk
        self._streams = streams

    # --- Answers ----------------------------------------------------------------------------------------------------

    def holds(self, session: Session) -> bool:
        """Whether something is kept here that its client may come for."""
        return self.parking.holds(session)

    def keeps(self, session: Session, exchange: Exchange, message: bytes) -> bool:
        """A call is over. True if its client is away, and is given the answer when it comes back."""
        return self.parking.settle(session, exchange, message)

    def shown(self, session: Session, exchange: Exchange, message: bytes) -> bytes:
        """An answer as its client reads it, under the id of the request that waits for it. Its status follows."""
        frame = envelope.decode(message)
        if frame.error is not None:
            error = frame.error if exchange.is_native else errors.to_modern(exchange.method, exchange.said, frame.error)
            return self._refused(exchange, error)
        assert frame.result is not None
        if exchange.is_native:
            return envelope.encode_result(exchange.id_raw, frame.result)
        try:
            result = results.to_modern(exchange.method, frame.result, server_info=server_info_of(session.greeting))
        except RemoteProtocolError as fault:
            text = f"the server's answer could not be read: {fault.message}"
            return self._refused(exchange, envelope.error_object(INTERNAL_ERROR, text))
        return envelope.encode_result(exchange.id_raw, result)

    def _refused(self, exchange: Exchange, error: bytes) -> bytes:
        reply = exchange.reply
        if reply.ends_channel and reply.status == 200:
            reply.status = errors.http_status(error)
        return envelope.encode_error_raw(exchange.id_raw, error)

    def end_leg(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Answer the request that a call goes on with; the call itself goes on."""
        self.sender.close_reply(session, exchange, message)
        exchange.reply = detached()

    def answer_leg(self, session: Session, exchange: Exchange, outcome: bytes) -> None:
        """The client is back, and its call was over long ago."""
        self.sender.close_reply(session, exchange, self.shown(session, exchange, outcome))

    # --- Notifications ----------------------------------------------------------------------------------------------

    def tell(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Send a notification on the stream of a request."""
        if exchange.reply.can_stream:
            self._streams.put(session, exchange.reply.stream, message)

    def deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None:
        """A notification of the server. One that cannot be read is dropped."""
        try:
            self._deliver(session, method, message, related)
        except RemoteProtocolError as error:
            self._desk.note("warning", f"server sent a broken {method}: {error.message}", session.server)

    def _deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None:
        if method in LISTENED:
            self.listens.deliver(session, method, message)
        elif method == "notifications/message":
            self._deliver_log(session, message, related)
        elif method == "notifications/elicitation/complete":
            visit = envelope.text_of(envelope.member_of(envelope.decode(message).params, "elicitationId"))
            if visit is not None:
                self.visits.receive_done(session, visit)
        elif related is not None:
            self._tell_or_keep(session, related, method, message)
        else:
            self._desk.note("debug", f"{method} dropped: no request of the client is it about", session.server)

    def _deliver_log(self, session: Session, message: bytes, related: Exchange | None) -> None:
        """To requests that want the log, and so much of it; without a request it belongs to, to all of them."""
        for exchange in list(session.exchanges.values()) if related is None else [related]:
            if related is None and exchange.upstream_id is None:
                continue
            if wants(exchange, message):
                self._tell_or_keep(session, exchange, "notifications/message", message)

    def tell_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        self._tell_or_keep(session, exchange, "notifications/progress", message)

    def _tell_or_keep(self, session: Session, exchange: Exchange, method: str, message: bytes) -> None:
        if exchange.park is not None and not exchange.park.has_leg:
            self.parking.keep(exchange, method, message)
        elif exchange.reply.can_stream:
            self._streams.put(session, exchange.reply.stream, message, is_lossy=True)

    # --- Questions --------------------------------------------------------------------------------------------------

    def ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None:
        self.parking.ask(session, ask, params, related)

    def unask(self, session: Session, number: int) -> None:
        if not self.deferring.withdraw(session, number):
            self.parking.withdraw(session, number)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def cancel(self, session: Session, exchange: Exchange) -> None:
        """The client wants no answer any more: what its server has asked is answered in its stead."""
        self.parking.cancel(session, exchange)

    def forget(self, session: Session) -> None:
        """The session is over."""
        self.visits.close_session(session)
        self.deferring.close_session(session)
        self.parking.close_session(session)
