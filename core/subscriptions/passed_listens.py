"""`subscriptions/listen` of a client that is one of its server too: it goes up as any other request does.

The request has a number of ours at the server, like all requests. What the server sends under that number reaches the
client under the client's own id: the acknowledgment, each notification, and the result or the error. Before the
acknowledgment it is a request that waits for a response (`Limits.reply_timeout_s`), and may be sent again. After it,
the end of the server's stream ends the client's: the client listens anew and reads again what it depends on, as the
specification has it, so nothing is repeated or made up here.

Source: 2026-07-28 basic/patterns/subscriptions, basic/patterns/cancellation.
"""

from __future__ import annotations

from typing import Final

from ..base.errors import INTERNAL_ERROR
from ..base.methods import CHANGE_NOTIFICATIONS, LISTEN
from ..base.plan import ServerPlan, Sharing
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.listen_filter import ACKNOWLEDGED, ListenFilter, subject_of, tagged
from ..state.session import Session
from ..upstream.writer import UpstreamWriter

CANCELLED: Final = "notifications/cancelled"


def passes(plan: ServerPlan, wanted: ListenFilter, own: ListenFilter, *, is_stateless: bool) -> bool:
    """True if a client's subscription is one of the server too.

    It is not if the server has sessions or is one process for several clients, if a filter hides a part of the lists,
    or if the proxy itself has something to notify of: of tasks, whose ids are its own, or of resources that it adds.

    Args:
        own: the part of the subscription whose notifications come from the proxy.
        is_stateless: the server is of the client's era.
    """
    hides = plan.tools or plan.prompts or plan.resources
    return is_stateless and plan.sharing is Sharing.NONE and not (hides or own or wanted.tasks)


class PassedListens:
    """The subscriptions that pass, of all links. In `Link.pending` they are the exchanges with the method `LISTEN`."""

    def __init__(self, writer: UpstreamWriter, responder: Responder) -> None:
        self._writer = writer
        self._responder = responder

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_notification(self, link: Link, frame: Frame, number: int | None, related: Exchange | None) -> bool:
        """Passes a notification on, if it belongs to such a subscription. True if no other reader gets it.

        A change that names no subscription goes to each one that wants it: to that on whose stream it came, if that is
        known.

        Args:
            number: the subscription that it names.
            related: the request on whose stream it came.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        if frame.method == CANCELLED:
            return self._receive_cancelled(link, frame)
        if number is not None:
            named = _listen_at(link, number)
        elif frame.method not in CHANGE_NOTIFICATIONS:
            return False
        else:
            named = related if related is not None and related.method == LISTEN else None
        if named is not None:
            self._pass_on(link, named, frame)
        elif number is None:
            for exchange in _that_want(link, frame):
                self._pass_on(link, exchange, frame)
        return named is not None

    def _pass_on(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        assert frame.method is not None
        message = envelope.encode_notification(frame.method, tagged(frame.params, exchange.id_raw))
        if frame.method == ACKNOWLEDGED:
            exchange.receive_acknowledged()
            self._writer.expect_none(exchange)
        self._responder.tell(link.session_of(exchange), exchange, message)

    def _receive_cancelled(self, link: Link, frame: Frame) -> bool:
        """Handles the end of a subscription that its server tears down without a result."""
        id_raw = envelope.member_of(frame.params, "requestId")
        number = None if id_raw is None else envelope.number_of(id_raw)
        exchange = None if number is None else _listen_at(link, number)
        if exchange is None or number is None:
            return False
        if link.is_pipe:
            link.settle(number)  # over HTTP its stream is still to be closed
        if exchange.is_lasting:
            self.cut_off(link, exchange, frame.params)
        else:
            text = "the server ended the subscription before it acknowledged it: listen again"
            self._responder.fail(link.session_of(exchange), exchange, INTERNAL_ERROR, text)
        return True

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> None:
        """Passes the result on, with which the server ends the subscription.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        session = link.session_of(exchange)
        exchange.mark_native()
        link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, tagged(result, exchange.id_raw)))
        tell_end(self._responder, session, exchange)

    # --- Loss of the server -----------------------------------------------------------------------------------------

    def receive_lost(self, link: Link) -> None:
        """Ends the acknowledged subscriptions of a lost server."""
        for number, entry in list(link.pending.items()):
            if isinstance(entry, Exchange) and entry.is_lasting:
                link.settle(number)
                self.cut_off(link, entry)

    def cut_off(self, link: Link, exchange: Exchange, params: bytes | None = None) -> None:
        """Ends the client's stream without a response, as the server's has ended: "an abrupt transport close carries no
        response" (2026-07-28 schema, SubscriptionsListenResult).

        Args:
            params: those of the server's `notifications/cancelled`.
        """
        session = link.session_of(exchange)
        tell_end(self._responder, session, exchange, params)
        self._responder.cancel(session, exchange, b"{}", session.headers)


def tell_end(responder: Responder, session: Session, exchange: Exchange, params: bytes | None = None) -> None:
    """Tells a client on a pipe that its subscription has ended. On HTTP the end of the stream says so.

    Source: 2026-07-28 basic/patterns/cancellation: a server "MUST send `notifications/cancelled` referencing a
    `subscriptions/listen` request ID when it tears down that subscription stream".

    Args:
        params: those of the server's notification, if there was one.
    """
    if not exchange.reply.ends_channel:
        params = set_member(params or b"{}", "requestId", exchange.id_raw)
        responder.tell(session, exchange, envelope.encode_notification(CANCELLED, params))


def _listen_at(link: Link, number: int) -> Exchange | None:
    """Returns the subscription with that number at the server; None if there is none that passes."""
    entry = link.pending.get(number)
    return entry if isinstance(entry, Exchange) and entry.method == LISTEN else None


def _that_want(link: Link, frame: Frame) -> list[Exchange]:
    """Returns the acknowledged subscriptions that want a change."""
    assert frame.method is not None
    subject = subject_of(frame.method, frame.params)
    return [
        session.exchanges[key]
        for session in link.sessions.values()
        for key, wanted in session.passed.items()
        if wanted.covers(frame.method, subject) and session.exchanges[key].is_lasting
    ]
