"""`subscriptions/listen` towards stateless servers: their notifications of changed lists and resources.

One subscription at a time covers what all sessions of a link want. When that changes, a second one is opened, and the
first is closed only when the server has acknowledged the second. No change in between is missed, and a duplicate does
no harm.

Source: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.events import Cause
from ..bridge.request_meta import add, own_envelope
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import SUBSCRIPTION, Link
from ..state.listen_filter import ACKNOWLEDGED, ListenFilter, format_filter, parse_filter, untagged
from ..state.server_subscriptions import UpstreamListen
from ..state.session import Session
from ..state.upstream_channels import UpstreamPostRole
from ..state.upstream_session import UpstreamSessionState
from ..upstream.handshake import Handshaker
from ..upstream.resumption import Resumption
from ..upstream.server_messages import ServerMessages
from ..upstream.writer import UpstreamWriter
from . import filters
from .client_listens import ClientListens
from .passed_listens import PassedListens

ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"


class ServerListens:
    """The subscriptions of all links to stateless servers."""

    def __init__(
        self,
        context: Context,
        writer: UpstreamWriter,
        resumption: Resumption,
        server_messages: ServerMessages,
        handshaker: Handshaker,
        client_listens: ClientListens,
        passed_listens: PassedListens,
    ) -> None:
        self._context = context
        self._writer = writer
        self._resumption = resumption
        self._server_messages = server_messages
        self._handshaker = handshaker
        self._client_listens = client_listens
        self._passed_listens = passed_listens

    # --- Opening ----------------------------------------------------------------------------------------------------

    def open(self, link: Link) -> bool:
        """Opens the subscription of a link whose server is connected. True if requests may pass at once, as nothing is
        to be subscribed. Else they wait for the acknowledgment, for at most `Limits.listen_wait_s`."""
        link.subscriptions.receive_lost()
        wanted = filters.wanted(link)
        if not wanted:
            return True
        self._listen(link, wanted)
        at = self._context.now + self._context.limits.listen_wait_s
        self._context.timers.set(("listening", link.id), at, "upstream subscription")
        return False

    def handle_change(self, link: Link) -> None:
        assert link.is_stateless
        assert link.upstream.state in (UpstreamSessionState.READY, UpstreamSessionState.REPLAYING)
        wanted = filters.wanted(link)
        newest = link.subscriptions.newest
        if newest is not None and newest.wanted == wanted:
            self._settle_subscribing(link)
            if newest.granted is not None:
                self._client_listens.receive_granted(link, newest.wanted, newest.granted)
        elif wanted:
            self._listen(link, wanted)
        else:
            for upstream_listen in list(link.subscriptions.listens.values()):
                self._close(link, upstream_listen)
            self._settle_subscribing(link)

    def _listen(self, link: Link, wanted: ListenFilter) -> None:
        revision = link.upstream.revision
        assert revision is not None
        params = b'{"notifications":' + format_filter(wanted) + b"}"
        meta = own_envelope(revision, self._context.plan.name, self._context.plan.version)
        number = self._writer.run(link, SUBSCRIPTION, "subscriptions/listen", add(params, meta))
        link.subscriptions.open(number, wanted)

    def _close(self, link: Link, upstream_listen: UpstreamListen) -> None:
        link.subscriptions.close(upstream_listen.number)
        link.settle(upstream_listen.number)
        if link.is_pipe:
            params = b'{"requestId":%d}' % upstream_listen.number
            self._writer.tell(link, envelope.encode_notification("notifications/cancelled", params))
            return
        for channel in sorted(link.posts):
            role = self._context.role_of(channel)
            if isinstance(role, UpstreamPostRole) and role.number == upstream_listen.number:
                self._context.close(channel, reason="subscribed anew")

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        """Handles a notification of a stateless server.

        Args:
            related: the request on whose stream it came.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        params, id_raw = untagged(frame.params)
        number = None if id_raw is None else envelope.number_of(id_raw)
        if self._passed_listens.receive_notification(link, frame, number, related):
            return
        if frame.method == "notifications/cancelled":
            cancelled = envelope.member_of(frame.params, "requestId")
            upstream_listen = (
                None if cancelled is None else link.subscriptions.listens.get(envelope.number_of(cancelled) or 0)
            )
            # A server may cancel nothing else (2026-07-28 basic/patterns/cancellation).
            if upstream_listen is not None:
                self.receive_end(link, upstream_listen.number)
            return
        if frame.method == ELICITATION_COMPLETE:
            return  # its elicitations have no ids: those that clients see are ours (2026-07-28 changelog)
        if frame.method == ACKNOWLEDGED:
            upstream_listen = None if number is None else link.subscriptions.listens.get(number)
            if upstream_listen is not None:
                self._receive_granted(link, upstream_listen, parse_filter(params, names_max=self._names_max))
            return
        if id_raw is not None and number not in link.subscriptions.listens:
            return  # it belongs to a subscription that was closed
        self._server_messages.receive_notification(link, msgspec.structs.replace(frame, params=params), related)

    @property
    def _names_max(self) -> int:
        return self._context.limits.subscriptions_per_session_max * 16

    def _receive_granted(self, link: Link, upstream_listen: UpstreamListen, granted: ListenFilter) -> None:
        if upstream_listen.granted is not None:
            return
        granted = upstream_listen.receive_granted(granted)
        self._client_listens.receive_granted(link, upstream_listen.wanted, granted)
        link.get_stream.receive_renewed()
        for older in [older for older in link.subscriptions.listens.values() if older.number < upstream_listen.number]:
            self._close(link, older)
        self._settle_subscribing(link)
        self._context.timers.cancel(("listening", link.id))
        self._handshaker.receive_listen_open(link)
        self.tell_all(link, link.subscriptions.take_missed(granted))

    def tell_all(self, link: Link, missed: ListenFilter) -> None:
        """Delivers a notification of change for everything in `missed`, which may have changed while no subscription
        was open."""
        for change in missed.changes():
            frame = Frame(method=change.method, params=change.params)
            self._server_messages.receive_notification(link, frame, None, is_ours=True)

    def receive_end(self, link: Link, number: int, *, is_refused: bool = False) -> None:
        """Handles the end of a subscription that the proxy did not close: opens it again after a pause. Once that is
        acknowledged all sessions are notified of changes, as some may have been missed.

        Args:
            is_refused: the server answered with an error. It is asked again only when what is wanted changes.
        """
        upstream_listen = link.subscriptions.close(number)
        link.settle(number)
        if upstream_listen is None or link.upstream.state not in (
            UpstreamSessionState.READY,
            UpstreamSessionState.REPLAYING,
        ):
            return
        link.subscriptions.miss(upstream_listen)
        newest = link.subscriptions.newest
        if newest is not None:  # the next one has taken its place or is about to, or the one before it is still open
            if newest.granted is not None:
                self._settle_subscribing(link, is_lost=True)
            return
        if not is_refused:
            at = self._context.now + self._resumption.pause(None, link.get_stream.count_failure())
            self._context.timers.set(("news", link.id), at, "subscription to be had again")
        self._settle_subscribing(link, is_lost=True)
        self._handshaker.receive_listen_open(link)

    def receive_close(self, link: Link, number: int, cause: Cause) -> None:
        """Handles the end of a subscription's stream without a response."""
        if number in link.subscriptions.listens:
            self.receive_end(link, number)

    # --- Resource subscriptions of clients with sessions --------------------------------------------------------------

    def receive_setting(self, link: Link, session: Session, exchange: Exchange) -> None:
        """Handles a client's `resources/subscribe` or `resources/unsubscribe`, methods that a stateless server does not
        have. The response to the first waits for the server's acknowledgment."""
        try:
            uri = envelope.text_of(envelope.member_of(exchange.params, "uri"))
        except RemoteProtocolError as error:
            self._refuse(link, exchange, error.rpc_code, error.message)
            return
        assert link.handshake.result is not None
        if not filters.declares(envelope.member_of(link.handshake.result, "capabilities"), "resources", "subscribe"):
            self._refuse(link, exchange, METHOD_NOT_FOUND, "the server does not tell of changed resources")
        elif uri is None:
            self._refuse(link, exchange, INVALID_PARAMS, f"got {exchange.method} without a uri, expected one")
        elif exchange.method == "resources/unsubscribe":
            session.unsubscribe(uri)
            self._settle_dropped(link, session, uri)
            if not any(uri in other.subscriptions for other in link.sessions.values()):
                link.upstream.forget_subscription(uri)
            filters.renew_later(self._context, link)
            link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, b"{}"))
        elif (fault := session.subscribe(uri, self._context.limits)) is not None:
            self._refuse(link, exchange, INVALID_PARAMS, fault)
        else:
            link.subscriptions.wait(exchange)
            self._writer.expect_reply(link, exchange)
            filters.renew_later(self._context, link)

    def _settle_dropped(self, link: Link, session: Session, uri: str) -> None:
        """Answers the `resources/subscribe` requests that still wait for a resource from which their session has
        unsubscribed: over HTTP one request may overtake the other."""
        for exchange in list(link.subscriptions.waiting):
            if exchange.sid == session.sid and not exchange.is_over and _uri_of(exchange) == uri:
                link.subscriptions.stop_waiting(exchange)
                self._writer.expect_none(exchange)
                link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, b"{}"))

    def _settle_subscribing(self, link: Link, *, is_lost: bool = False) -> None:
        """Answers the `resources/subscribe` requests that wait, once the newest subscription is acknowledged or ended.

        Args:
            is_lost: a subscription has ended, so no later acknowledgment is waited for.
        """
        newest = link.subscriptions.newest
        if newest is not None and newest.granted is None and not is_lost:
            return
        granted = frozenset() if newest is None or newest.granted is None else newest.granted.uris
        for exchange in link.subscriptions.take_waiting():
            if exchange.is_over:
                continue
            uri = _uri_of(exchange)
            if newest is not None and uri not in newest.wanted.uris and not is_lost:
                link.subscriptions.wait(exchange)  # it came after the newest was opened: the next one includes it
                continue
            self._writer.expect_none(exchange)
            if uri in granted:
                # The server may come back in the handshake era.
                link.upstream.remember(exchange.method, exchange.params)
                link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, b"{}"))
            else:
                link.session_of(exchange).unsubscribe(uri)
                self._refuse(link, exchange, INVALID_PARAMS, f"the server does not tell of changes of {uri}")

    def _refuse(self, link: Link, exchange: Exchange, code: int, text: str) -> None:
        link.router.finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text))


def _uri_of(exchange: Exchange) -> str:
    return envelope.text_of(envelope.member_of(exchange.params, "uri")) or ""
