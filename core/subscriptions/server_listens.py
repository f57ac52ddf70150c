"""What servers without sessions are asked to tell of their own accord: their lists, and resources that changed.

One subscription (`subscriptions/listen`) at a time covers what all sessions of a link want. When that changes, a second
one is opened, and the first is closed only when the server has confirmed the second: no change in between is missed,
and what is told twice does no harm.

Source: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ..base.effects import Cause
from ..base.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from ..bridge.request_meta import add, own_envelope
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.link import SUBSCRIPTION, Ear, Link, UpPostRole
from ..state.listen import ACKNOWLEDGED, LISTS, Filter, format_filter, parse_filter, untagged
from ..state.session import Session
from ..state.upstream_session import State
from ..upstream.resumption import Resuming
from ..upstream.server_messages import Asking
from ..upstream.writer import Uplink

VISITED: Final = "notifications/elicitation/complete"


class Readiness(Protocol):
    """Who waits for what is subscribed."""

    def receive_news_open(self, link: Link) -> None: ...


class Granted(Protocol):
    """Whose clients hear what was confirmed."""

    def receive_granted(self, link: Link, asked: Filter, granted: Filter) -> None: ...


class Finish(Protocol):
    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...


class News:
    """The subscriptions of all links."""

    def __init__(self, desk: Desk, uplink: Uplink, resuming: Resuming, asking: Asking) -> None:
        self.readiness: Readiness
        self.onward: Finish
        self.listens: Granted
        self._desk = desk
        self._uplink = uplink
        self._resuming = resuming
        self._asking = asking

    # --- What is wanted ---------------------------------------------------------------------------------------------

    def wanted(self, link: Link) -> Filter:
        """What the sessions of a link want to hear of, as far as the server offers it."""
        wanted = Filter()
        for session in link.sessions.values():
            if session.is_stateless:
                for listening in session.listens.values():
                    wanted |= listening.wanted
            else:
                wanted |= Filter(tools=True, prompts=True, resources=True, uris=frozenset(session.subscriptions))
        return wanted & self.offered(link)

    def offered(self, link: Link) -> Filter:
        """What its server says that it tells of. Of resources, any: which it grants it says for each."""
        assert link.handshake is not None
        declared = envelope.member_of(link.handshake, "capabilities")
        tools, prompts, resources = (_declares(declared, name, "listChanged") for name in LISTS.values())
        everything = frozenset(
            uri
            for session in link.sessions.values()
            for uri in {*session.subscriptions, *(u for each in session.listens.values() for u in each.wanted.uris)}
        )
        uris = everything if _declares(declared, "resources", "subscribe") else frozenset()
        return Filter(tools, prompts, resources, uris)

    # --- Opening ----------------------------------------------------------------------------------------------------

    def open(self, link: Link) -> bool:
        """The server can be spoken to. True if nothing must be subscribed before requests may pass."""
        for ear in link.ears.values():
            link.missed |= ear.granted or Filter()
        link.ears.clear()
        wanted = self.wanted(link)
        if not wanted:
            return True
        self._listen(link, wanted)
        at = self._desk.now + self._desk.limits.listen_wait_s
        self._desk.timers.set(("listening", link.id), at, "upstream subscription")
        return False

    def receive_change(self, link: Link) -> None:
        """Something else is wanted than before; perhaps more follows at once."""
        if link.is_stateless and link.upstream.state in (State.READY, State.REPLAYING):
            self._desk.timers.set(("news", link.id), self._desk.now + self._desk.limits.news_pause_s, "subscriptions")

    def handle_change(self, link: Link) -> None:
        assert link.is_stateless
        assert link.upstream.state in (State.READY, State.REPLAYING)
        wanted = self.wanted(link)
        newest = self._newest(link)
        if newest is not None and newest.wanted == wanted:
            self._settle_subscribing(link)
            if newest.granted is not None:
                self.listens.receive_granted(link, newest.wanted, newest.granted)
        elif wanted:
            self._listen(link, wanted)
        else:
            for ear in list(link.ears.values()):
                self._close(link, ear)
            self._settle_subscribing(link)

    def _listen(self, link: Link, wanted: Filter) -> None:
        revision = link.upstream.revision
        assert revision is not None
        params = b'{"notifications":' + format_filter(wanted) + b"}"
        who = own_envelope(revision, self._desk.plan.version)
        number = self._uplink.run(link, SUBSCRIPTION, "subscriptions/listen", add(params, who))
        link.ears[number] = Ear(number, wanted)

    def _newest(self, link: Link) -> Ear | None:
        return next(reversed(link.ears.values()), None)

    def _close(self, link: Link, ear: Ear) -> None:
        del link.ears[ear.number]
        link.pending.pop(ear.number, None)
        if link.is_pipe:
            params = b'{"requestId":%d}' % ear.number
            self._uplink.tell(link, envelope.encode_notification("notifications/cancelled", params))
            return
        for channel in sorted(link.posts):
            role = self._desk.role_of(channel)
            if isinstance(role, UpPostRole) and role.number == ear.number:
                self._desk.close(channel, reason="subscribed anew")

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        """A notification of a server without sessions.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        params, id_raw = untagged(frame.params)
        number = None if id_raw is None else envelope.number_of(id_raw)
        if frame.method == "notifications/cancelled":
            cancelled = envelope.member_of(frame.params, "requestId")
            ear = None if cancelled is None else link.ears.get(envelope.number_of(cancelled) or 0)
            if ear is not None:  # anything else is not a server's to cancel (2026-07-28 basic/patterns/cancellation)
                self.receive_end(link, ear.number)
            return
        if frame.method == VISITED:
            return  # it has not named any visit: the ids are ours (2026-07-28 changelog)
        if frame.method == ACKNOWLEDGED:
            ear = None if number is None else link.ears.get(number)
            if ear is not None:
                self._receive_granted(link, ear, parse_filter(params, names_max=self._names_max))
            return
        if id_raw is not None and number not in link.ears:
            return  # of one that was closed
        self._asking.receive_notification(link, msgspec.structs.replace(frame, params=params), related)

    @property
    def _names_max(self) -> int:
        return self._desk.limits.subscriptions_per_session_max * 16

    def _receive_granted(self, link: Link, ear: Ear, granted: Filter) -> None:
        if ear.granted is not None:
            return
        ear.granted = granted & ear.wanted
        self.listens.receive_granted(link, ear.wanted, ear.granted)
        link.listen_failures = 0
        for older in [older for older in link.ears.values() if older.number < ear.number]:
            self._close(link, older)
        self._settle_subscribing(link)
        self._desk.timers.cancel(("listening", link.id))
        self.readiness.receive_news_open(link)
        missed, link.missed = link.missed & ear.granted, Filter()
        self.tell_all(link, missed)

    def tell_all(self, link: Link, missed: Filter) -> None:
        """Everything that could have changed while nobody listened may have."""
        for change in missed.changes():
            self._asking.receive_notification(link, Frame(method=change.method, params=change.params), None)

    def receive_end(self, link: Link, number: int, *, is_refused: bool = False) -> None:
        """A subscription is over, though nobody wanted that: have it again, and tell everybody that something may have
        been missed. One that was refused is asked for again when something else is wanted."""
        ear = link.ears.pop(number, None)
        link.pending.pop(number, None)
        if ear is None or link.upstream.state not in (State.READY, State.REPLAYING):
            return
        link.missed |= ear.granted or Filter()
        newest = self._newest(link)
        if newest is not None:  # another has taken its place, or is about to; or was to be replaced by this one
            if newest.granted is not None:
                self._settle_subscribing(link, is_lost=True)
            return
        if not is_refused:
            at = self._desk.now + self._resuming.pause(None, link.listen_failures)
            link.listen_failures += 1
            self._desk.timers.set(("news", link.id), at, "subscription to be had again")
        self._settle_subscribing(link, is_lost=True)
        self.readiness.receive_news_open(link)

    def receive_close(self, link: Link, number: int, cause: Cause) -> None:
        """The stream of one ended, without a last word."""
        if number in link.ears:
            self.receive_end(link, number)

    # --- Of clients with sessions -----------------------------------------------------------------------------------

    def receive_wish(self, link: Link, session: Session, exchange: Exchange) -> None:
        """`resources/subscribe` or `resources/unsubscribe`, for a server that knows neither."""
        try:
            uri = envelope.text_of(envelope.member_of(exchange.params, "uri"))
        except RemoteProtocolError as error:
            self._refuse(link, exchange, error.rpc_code, error.message)
            return
        assert link.handshake is not None
        if not _declares(envelope.member_of(link.handshake, "capabilities"), "resources", "subscribe"):
            self._refuse(link, exchange, METHOD_NOT_FOUND, "the server does not tell of changed resources")
        elif uri is None:
            self._refuse(link, exchange, INVALID_PARAMS, f"got {exchange.method} without a uri, expected one")
        elif exchange.method == "resources/unsubscribe":
            session.subscriptions.pop(uri, None)
            self._settle_dropped(link, session, uri)
            if not any(uri in other.subscriptions for other in link.sessions.values()):
                link.upstream.forget_subscription(uri)
            self.receive_change(link)
            self.onward.finish(link, exchange, envelope.encode_result(exchange.id_raw, b"{}"))
        elif len(session.subscriptions) >= self._desk.limits.subscriptions_per_session_max:
            limit = self._desk.limits.subscriptions_per_session_max
            self._refuse(link, exchange, INVALID_PARAMS, f"{limit} resources are subscribed, the most allowed")
        else:
            session.subscriptions[uri] = None
            link.subscribing.append(exchange)
            self._uplink.expect_reply(link, exchange)
            self.receive_change(link)

    def _settle_dropped(self, link: Link, session: Session, uri: str) -> None:
        """Who has waited to be subscribed and is not to be any more has nothing to wait for: over HTTP one request may
        overtake the other."""
        for exchange in list(link.subscribing):
            if exchange.sid == session.sid and not exchange.is_over and _uri_of(exchange) == uri:
                link.subscribing.remove(exchange)
                self._uplink.expect_none(exchange)
                self.onward.finish(link, exchange, envelope.encode_result(exchange.id_raw, b"{}"))

    def _settle_subscribing(self, link: Link, *, is_lost: bool = False) -> None:
        """Who waits to be subscribed learns whether that worked."""
        newest = self._newest(link)
        if newest is not None and newest.granted is None and not is_lost:
            return
        granted = frozenset() if newest is None or newest.granted is None else newest.granted.uris
        waiting, link.subscribing = link.subscribing, []
        for exchange in waiting:
            if exchange.is_over:
                continue
            uri = _uri_of(exchange)
            if newest is not None and uri not in newest.wanted.uris and not is_lost:
                link.subscribing.append(exchange)  # it came after that one was opened
                continue
            self._uplink.expect_none(exchange)
            if uri in granted:
                link.upstream.remember(exchange.method, exchange.params)  # it may come back with sessions
                self.onward.finish(link, exchange, envelope.encode_result(exchange.id_raw, b"{}"))
            else:
                link.session_of(exchange).subscriptions.pop(uri, None)
                self._refuse(link, exchange, INVALID_PARAMS, f"the server does not tell of changes of {uri}")

    def _refuse(self, link: Link, exchange: Exchange, code: int, text: str) -> None:
        self.onward.finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text))


def _uri_of(exchange: Exchange) -> str:
    return envelope.text_of(envelope.member_of(exchange.params, "uri")) or ""


def _declares(capabilities: bytes | None, name: str, ability: str) -> bool:
    try:
        return envelope.member_of(envelope.member_of(capabilities, name), ability) == b"true"
    except RemoteProtocolError:
        return False
