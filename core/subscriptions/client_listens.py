"""Subscriptions of clients without sessions (`subscriptions/listen`), whatever their server has instead.

A server with sessions tells of its lists unasked, and of resources once each is subscribed; one without is asked by
`news`. What it tells goes to every subscription that covers it, under that one's own id.

Source: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..base.empty import without
from ..base.errors import MISSING_CAPABILITY, OVERLOADED, RemoteProtocolError
from ..bridge.discovery import server_info_of
from ..bridge.results import named
from ..bridge.task_support import declares
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey
from ..state.link import Errand, Link
from ..state.listen import TASK, Change, Filter, Listen, State, parse_filter
from ..state.session import Session
from ..state.subscription import Listening
from ..state.upstream_session import State as UpstreamState
from ..upstream.shared_process import Crowd
from ..upstream.task_offers import NEEDED
from ..upstream.writer import Uplink


class Telling(Protocol):
    """How clients are told."""

    def tell(self, session: Session, exchange: Exchange, message: bytes) -> None: ...


class Answering(Protocol):
    """How their requests are answered."""

    def answer(self, session: Session, exchange: Exchange, message: bytes) -> None: ...


class Tasks(Protocol):
    """Which tasks there are."""

    def visible(self, session: Session, ids: frozenset[str]) -> frozenset[str]:
        """Those of these that its client may know of."""

    def tell_state(self, id: str) -> None:
        """Somebody began to listen to a task: what is known of it is told."""


class OwnNews(Protocol):
    """What is told of by us, whatever a server tells of."""

    def granted(self, link: Link, session: Session, wanted: Filter) -> Filter: ...


class Wishes(Protocol):
    """What servers without sessions are asked for."""

    def receive_change(self, link: Link) -> None: ...

    def offered(self, link: Link) -> Filter: ...


class Listens:
    """The subscriptions of all clients without sessions."""

    def __init__(
        self, desk: Desk, uplink: Uplink, telling: Telling, answering: Answering, crowds: dict[str, Crowd]
    ) -> None:
        self.files: OwnNews
        self.news: Wishes
        self.tasks: Tasks
        self._by_task: dict[str, list[tuple[Session, Listening]]] = {}
        self._desk = desk
        self._uplink = uplink
        self._telling = telling
        self._answering = answering
        self._crowds = crowds

    # --- They begin -------------------------------------------------------------------------------------------------

    def begin(self, link: Link, session: Session, exchange: Exchange) -> None:
        """The server can be asked."""
        limits = self._desk.limits
        try:
            named = sum(len(other.wanted.uris) + len(other.wanted.tasks) for other in session.listens.values())
            wanted = parse_filter(exchange.params, names_max=limits.subscriptions_per_session_max - named)
            if wanted.tasks and (exchange.leg is None or not declares(exchange.leg.capabilities)):
                text = "Missing required client capability: tasks are an extension, declare it with each request"
                raise RemoteProtocolError(text, rpc_code=MISSING_CAPABILITY, data=NEEDED)
            if len(session.listens) >= limits.listens_per_session_max:
                text = f"{limits.listens_per_session_max} subscriptions are open, the most a client may have"
                raise RemoteProtocolError(text, rpc_code=OVERLOADED)
        except RemoteProtocolError as error:
            exchange.is_native = True
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message, error.data)
            self._answering.answer(session, exchange, message)
            return
        machine = Listen(exchange.id_raw, wanted, queue_max=limits.held_per_session_max)
        listening = Listening(exchange, machine)
        session.listens = {**session.listens, exchange.key: listening}
        if link.has_files:
            listening.own = self.files.granted(link, session, wanted)
        at = self._desk.now + limits.listen_ack_s
        self._desk.timers.set(("ack", (session.sid, exchange.key)), at, "what is subscribed")
        if link.is_stateless:
            self._share(link, session, wanted.uris)
            listening.is_asked = bool(wanted & self.news.offered(link))
            self.news.receive_change(link)
        else:
            self._subscribe(link, session, listening)
        self._acknowledge_if_complete(link, session, listening)

    def _subscribe(self, link: Link, session: Session, listening: Listening) -> None:
        """A server with sessions is subscribed to each resource once, however many want it."""
        if not self._offered(session).uris_any:
            return
        held = self._held(session, listening)
        crowd = self._crowds.get(link.id)
        own = listening.own.uris
        for uri in sorted(listening.wanted.uris - own):
            if uri in held:
                listening.confirmed.add(uri)
                continue
            if crowd is not None:
                crowd.shares[session.sid].subscriptions[uri] = None
            listening.awaited.add(uri)
            link.upstream.remember("resources/subscribe", msgspec.json.encode({"uri": uri}))
            if not _is_asked(link, "unsubscribe", uri):  # the two may overtake one another: it comes after that
                self._ask(link, "subscribe", uri)

    def _ask(self, link: Link, wish: str, uri: str) -> None:
        self._uplink.run(link, wish, f"resources/{wish}", msgspec.json.encode({"uri": uri}), about=uri)

    def _held(self, session: Session, but: Listening) -> set[str]:
        return {uri for other in session.listens.values() if other is not but for uri in other.confirmed}

    def receive_set_again(self, link: Link, uri: str, *, is_done: bool) -> None:
        """A server that is back was asked again to tell of a resource, which somebody may have waited for since."""
        if _is_awaited(link, uri):
            self.receive_subscribed(link, uri, is_done=is_done)

    def receive_subscribed(self, link: Link, uri: str, *, is_done: bool) -> None:
        """The server was asked to tell of a resource."""
        for session in link.sessions.values():
            for listening in list(session.listens.values()):
                if uri in listening.awaited:
                    listening.awaited.discard(uri)
                    if is_done:
                        listening.confirmed.add(uri)
                    self._acknowledge_if_complete(link, session, listening)
        if not is_done:
            link.upstream.forget_subscription(uri)
            crowd = self._crowds.get(link.id)
            for session in link.sessions.values():
                if crowd is not None and session.is_stateless:
                    crowd.shares[session.sid].subscriptions.pop(uri, None)

    def receive_unsubscribed(self, link: Link, uri: str) -> None:
        """The server was asked not to tell of a resource any more: whoever wants it since may be subscribed now."""
        is_asked = _is_asked(link, "subscribe", uri) or _is_asked(link, "unsubscribe", uri)
        if _is_awaited(link, uri) and not is_asked:
            self._ask(link, "subscribe", uri)

    def receive_granted(self, link: Link, asked: Filter, granted: Filter) -> None:
        """A server without sessions confirmed what it tells of, of what it was asked for."""
        for session in link.sessions.values():
            for listening in list(session.listens.values()):
                if not listening.is_asked:
                    continue
                listening.granted = granted & listening.wanted
                if listening.wanted & asked == listening.wanted & self.news.offered(link):  # else it came later
                    listening.is_asked = False
                    self._acknowledge_if_complete(link, session, listening)

    def _acknowledge_if_complete(self, link: Link, session: Session, listening: Listening) -> None:
        if listening.awaited or listening.is_asked or listening.machine.state is not State.OPENING:
            return
        self._acknowledge(session, listening)

    def handle_ack(self, session: Session, key: ExchangeKey) -> None:
        """The server takes too long over the rest: it is left out."""
        self._acknowledge(session, session.listens[key])

    def _acknowledge(self, session: Session, listening: Listening) -> None:
        self._desk.timers.cancel(("ack", (session.sid, listening.exchange.key)))
        granted = listening.granted
        if granted is None:
            offered = self._offered(session)
            granted = Filter(offered.tools, offered.prompts, offered.resources, frozenset(listening.confirmed))
        granted |= listening.own
        if listening.wanted.tasks:
            granted |= Filter(tasks=self.tasks.visible(session, listening.wanted.tasks))
        self._tell(session, listening, listening.machine.receive_acknowledged(granted))
        for id in sorted(granted.tasks):
            self._by_task.setdefault(id, []).append((session, listening))
            self.tasks.tell_state(id)

    def _offered(self, session: Session) -> Offer:
        """What the client was told that its server tells of."""

        def declares(name: str, ability: str) -> bool:
            try:
                declared = envelope.member_of(session.greeting, "capabilities")
                return envelope.member_of(envelope.member_of(declared, name), ability) == b"true"
            except RemoteProtocolError:
                return False

        return Offer(
            tools=declares("tools", "listChanged"),
            prompts=declares("prompts", "listChanged"),
            resources=declares("resources", "listChanged"),
            uris_any=declares("resources", "subscribe"),
        )

    # --- They are told ----------------------------------------------------------------------------------------------

    def deliver(self, session: Session, method: str, message: bytes) -> None:
        """A change: to every subscription that covers it."""
        params = envelope.decode(message).params
        for listening in list(session.listens.values()):
            try:
                changes = listening.machine.receive_change(method, params)
            except RemoteProtocolError as error:
                self._desk.note("warning", f"server sent a broken {method}: {error.message}", session.server)
                return
            self._tell(session, listening, changes)

    def _tell(self, session: Session, listening: Listening, changes: list[Change]) -> None:
        for change in changes:
            message = envelope.encode_notification(change.method, change.params)
            self._telling.tell(session, listening.exchange, message)

    def is_watched(self, task: str) -> bool:
        return task in self._by_task

    def tell_task(self, task: str, message: bytes) -> None:
        """How a task fares: to whoever asked for it."""
        params = envelope.decode(message).params
        for session, listening in list(self._by_task.get(task, ())):
            self._tell(session, listening, listening.machine.receive_change(TASK, params))

    # --- The server is lost, and back -------------------------------------------------------------------------------

    def receive_lost(self, link: Link) -> None:
        """What was asked and not answered is asked again when it is back, by `upstream.replay` or `news.open`."""
        for session in link.sessions.values():
            for listening in session.listens.values():
                if listening.machine.state is State.LIVE:
                    listening.machine.receive_lost()

    def receive_ready(self, link: Link) -> None:
        """Something may have been missed: whoever is subscribed reads anew."""
        for session in link.sessions.values():
            for listening in session.listens.values():
                if listening.machine.state is State.STALE:
                    self._tell(session, listening, listening.machine.receive_recovered())

    # --- They end ---------------------------------------------------------------------------------------------------

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        """It is over: what nobody else wants is not subscribed any more."""
        listening = session.listens[exchange.key]
        session.listens = without(session.listens, exchange.key)
        self._forget_tasks(listening)
        self._desk.timers.cancel(("ack", (session.sid, exchange.key)))
        if listening.machine.state is not State.CLOSED:
            listening.machine.receive_close()
        if link is None:
            return
        if link.is_stateless:
            self._unshare(link, session, listening.wanted.uris)
            self.news.receive_change(link)
            return
        crowd = self._crowds.get(link.id)
        held = {uri for other in session.listens.values() for uri in other.confirmed | other.awaited}
        for uri in sorted((listening.confirmed | listening.awaited) - held):
            if crowd is not None:
                crowd.shares[session.sid].subscriptions.pop(uri, None)
                if any(uri in share.subscriptions for share in crowd.shares.values()):
                    continue
            link.upstream.forget_subscription(uri)
            if link.upstream.state is UpstreamState.READY:
                self._ask(link, "unsubscribe", uri)

    def _share(self, link: Link, session: Session, uris: frozenset[str]) -> None:
        """On a process that is shared, a session hears of what it has subscribed to."""
        crowd = self._crowds.get(link.id)
        share = None if crowd is None else crowd.shares.get(session.sid)
        if share is not None:
            share.subscriptions.update(dict.fromkeys(uris))

    def _unshare(self, link: Link, session: Session, uris: frozenset[str]) -> None:
        crowd = self._crowds.get(link.id)
        share = None if crowd is None else crowd.shares.get(session.sid)
        if share is not None:
            for uri in uris.difference(*(other.wanted.uris for other in session.listens.values())):
                share.subscriptions.pop(uri, None)

    def _forget_tasks(self, listening: Listening) -> None:
        for id in listening.wanted.tasks:
            kept = [entry for entry in self._by_task.get(id, ()) if entry[1] is not listening]
            if kept:
                self._by_task[id] = kept
            else:
                self._by_task.pop(id, None)

    def end_all(self, session: Session) -> None:
        """The proxy is about to go: each subscription ends with its last word, the answer to its request.

        On a pipe it is cancelled as well: a server "MUST send `notifications/cancelled` referencing a
        `subscriptions/listen` request ID when it tears down that subscription stream" (2026-07-28
        basic/patterns/cancellation). Whoever reads the first ignores the second.
        """
        for listening in list(session.listens.values()):
            exchange = listening.exchange
            result = named(listening.machine.receive_close(), server_info_of(session.greeting))
            self.forget(None, session, exchange)
            self._answering.answer(session, exchange, envelope.encode_result(exchange.id_raw, result))
            if not exchange.reply.ends_channel:
                params = b'{"requestId":%b}' % exchange.id_raw
                self._telling.tell(session, exchange, envelope.encode_notification("notifications/cancelled", params))


def _is_awaited(link: Link, uri: str) -> bool:
    """Whether somebody waits to be told that the resource is subscribed."""
    return any(uri in each.awaited for session in link.sessions.values() for each in session.listens.values())


def _is_asked(link: Link, wish: str, uri: str) -> bool:
    """Whether a request of ours about that resource is under way."""
    return any(
        isinstance(each, Errand) and each.purpose == wish and each.about == uri for each in link.pending.values()
    )


class Offer(msgspec.Struct, frozen=True):
    """Which changes a server tells of. `uris_any`: of resources, of those that one subscribes to."""

    tools: bool
    prompts: bool
    resources: bool
    uris_any: bool
