"""`subscriptions/listen` of stateless clients, whether their server is stateless or has sessions.

A server with sessions notifies of list changes unasked, and of resources once each is subscribed. A stateless server is
asked by `server_listens`. Each notification goes to every subscription that covers it, with the id of that
subscription.

Source: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

import msgspec

from ..base.errors import MISSING_CAPABILITY, OVERLOADED, RemoteProtocolError
from ..bridge.discovery import server_info_of
from ..bridge.results import named
from ..bridge.task_support import NEEDED, UNDECLARED, declares
from ..downstream.downstream import Downstream
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey
from ..state.link import Link, OwnRequest
from ..state.listen import Listen, ListenState
from ..state.listen_filter import TASK, Change, ListenFilter, parse_filter, tagged
from ..state.session import Session
from ..state.subscription import Subscription
from ..state.upstream_session import UpstreamSessionState as UpstreamState
from ..upstream.writer import UpstreamWriter
from . import filters
from .passed_listens import passes, tell_end


class ClientListens:
    """The subscriptions of all stateless clients."""

    def __init__(self, context: Context, writer: UpstreamWriter, downstream: Downstream) -> None:
        self._by_task: dict[str, list[tuple[Session, Subscription]]] = {}
        self._context = context
        self._writer = writer
        self._responder = downstream.responder
        self._sessions = downstream.sessions

    # --- Begin --------------------------------------------------------------------------------------------------------

    def begin(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """Begins a subscription, or refuses it. The server can be asked: what it offers is known. False if the request
        goes on to the server (`passed_listens`).

        The acknowledgment waits for the server to confirm, for at most `Limits.listen_ack_s`.
        """
        limits = self._context.limits
        try:
            wanted = self.read_filter(session, exchange)
        except RemoteProtocolError as error:
            exchange.step(ExchangeInput.SEND)
            exchange.mark_native()
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message, error.data)
            self._responder.answer(session, exchange, message)
            return True
        own = ListenFilter()
        for grant in link.interceptors.grant:
            own |= grant(link, session, wanted)
        if passes(link.plan, wanted, own, is_stateless=link.is_stateless):
            session.pass_listen(exchange, wanted)
            return False
        exchange.step(ExchangeInput.SEND)
        machine = Listen(exchange.id_raw, wanted, queue_max=limits.held_per_session_max)
        subscription = Subscription(exchange, machine)
        session.begin_listen(subscription)
        subscription.grant_own(own)
        at = self._context.now + limits.listen_ack_s
        self._context.timers.set(("ack", (session.sid, exchange.key)), at, "what is subscribed")
        if link.is_stateless:
            if link.shared_process is not None:
                link.shared_process.subscribe(session, wanted.uris)
            subscription.ask(is_asked=bool(wanted & filters.offered(link)))
            filters.renew_later(self._context, link)
        else:
            self._subscribe(link, session, subscription)
        self._acknowledge_if_complete(link, session, subscription)
        return True

    def read_filter(self, session: Session, exchange: Exchange) -> ListenFilter:
        """Returns what a subscription is to cover.

        Raises:
            RemoteProtocolError: it cannot be read, its client has not declared what it needs for it, or it would be
                above a limit.
        """
        limits = self._context.limits
        others = [other.wanted for other in session.listens.values()]
        others += [other for key, other in session.passed.items() if key != exchange.key]
        named = sum(len(other.uris) + len(other.tasks) for other in others)
        wanted = parse_filter(exchange.params, names_max=limits.subscriptions_per_session_max - named)
        if wanted.tasks and (exchange.request is None or not declares(exchange.request.capabilities)):
            raise RemoteProtocolError(UNDECLARED, rpc_code=MISSING_CAPABILITY, data=NEEDED)
        size_chars = sum(other.size_chars for other in others) + wanted.size_chars
        if size_chars > limits.subscriptions_per_session_max_bytes:
            most = limits.subscriptions_per_session_max_bytes
            text = f"the URIs and ids of all subscriptions have {size_chars} characters, expected at most {most}"
            raise RemoteProtocolError(text, rpc_code=OVERLOADED)
        if len(others) >= limits.listens_per_session_max:
            text = f"{limits.listens_per_session_max} subscriptions are open, the most a client may have"
            raise RemoteProtocolError(text, rpc_code=OVERLOADED)
        fault = None if exchange.key in session.passed else self._sessions.no_room_for_stream(session.use)
        if fault is not None:
            raise RemoteProtocolError(fault, rpc_code=OVERLOADED)
        return wanted

    def _subscribe(self, link: Link, session: Session, subscription: Subscription) -> None:
        """Subscribes to resources at a server with sessions: to each one once, however many subscriptions want it."""
        if not self._offered(session).uris_any:
            return
        held = self._confirmed_by_others(session, subscription)
        own = subscription.own.uris
        for uri in sorted(subscription.wanted.uris - own):
            if uri in held:
                subscription.confirm(uri)
                continue
            if link.shared_process is not None:
                link.shared_process.subscribe(session, (uri,))
            subscription.expect(uri)
            link.upstream.remember("resources/subscribe", msgspec.json.encode({"uri": uri}))
            # Over HTTP the two requests may overtake one another: `receive_unsubscribed` sends this one later.
            if not _is_pending(link, "unsubscribe", uri):
                self._ask(link, "subscribe", uri)

    def _ask(self, link: Link, verb: str, uri: str) -> None:
        self._writer.run(link, verb, f"resources/{verb}", msgspec.json.encode({"uri": uri}), about=uri)

    def _confirmed_by_others(self, session: Session, subscription: Subscription) -> set[str]:
        return {uri for other in session.listens.values() if other is not subscription for uri in other.confirmed}

    def receive_resubscribed(self, link: Link, uri: str, *, is_done: bool) -> None:
        """Handles the response to a `resources/subscribe` that was repeated after a reconnection. A subscription may
        have begun to wait for that resource since."""
        if _is_awaited(link, uri):
            self.receive_subscribed(link, uri, is_done=is_done)

    def receive_subscribed(self, link: Link, uri: str, *, is_done: bool) -> None:
        """Handles the response to a `resources/subscribe`.

        Args:
            is_done: it is a result, not an error.
        """
        for session in link.sessions.values():
            for subscription in list(session.listens.values()):
                if uri in subscription.awaited:
                    subscription.receive_answer(uri, is_done=is_done)
                    self._acknowledge_if_complete(link, session, subscription)
        if not is_done:
            link.upstream.forget_subscription(uri)
            for session in link.sessions.values():
                if link.shared_process is not None and session.is_stateless:
                    link.shared_process.unsubscribe(session, uri)

    def receive_unsubscribed(self, link: Link, uri: str) -> None:
        """Handles the response to a `resources/unsubscribe`: subscribes again if the resource is wanted by now."""
        is_asked = _is_pending(link, "subscribe", uri) or _is_pending(link, "unsubscribe", uri)
        if _is_awaited(link, uri) and not is_asked:
            self._ask(link, "subscribe", uri)

    def receive_granted(self, link: Link, asked: ListenFilter, granted: ListenFilter) -> None:
        """Handles the acknowledgment of a stateless server.

        Args:
            asked: the filter that it was sent.
            granted: the part that it confirmed.
        """
        for session in link.sessions.values():
            for subscription in list(session.listens.values()):
                if not subscription.is_asked:
                    continue
                subscription.receive_granted(granted)
                # If not, this subscription came after the request: a larger one will follow, and its acknowledgment.
                if subscription.wanted & asked == subscription.wanted & filters.offered(link):
                    subscription.ask(is_asked=False)
                    self._acknowledge_if_complete(link, session, subscription)

    def _acknowledge_if_complete(self, link: Link, session: Session, subscription: Subscription) -> None:
        if subscription.awaited or subscription.is_asked or subscription.machine.state is not ListenState.OPENING:
            return
        self._acknowledge(link, session, subscription)

    def handle_ack(self, session: Session, key: ExchangeKey) -> None:
        """Acknowledges a subscription after `Limits.listen_ack_s`: what the server has not confirmed is left out."""
        subscription = session.listens[key]
        link = session.router.link_of(subscription.exchange)
        assert link is not None
        self._acknowledge(link, session, subscription)

    def _acknowledge(self, link: Link, session: Session, subscription: Subscription) -> None:
        self._context.timers.cancel(("ack", (session.sid, subscription.exchange.key)))
        granted = subscription.granted
        if granted is None:
            offered = self._offered(session)
            granted = ListenFilter(offered.tools, offered.prompts, offered.resources, frozenset(subscription.confirmed))
        granted |= subscription.own
        if subscription.wanted.tasks:
            for grant_tasks in link.interceptors.grant_tasks:
                granted |= grant_tasks(link, subscription.exchange, subscription.wanted)
        self.tell(session, subscription, subscription.machine.receive_acknowledged(granted))
        for id in sorted(granted.tasks):
            self._by_task.setdefault(id, []).append((session, subscription))
            for receive_watched in link.interceptors.receive_watched:
                receive_watched(id)

    def _offered(self, session: Session) -> ListenOffer:
        """Returns the notifications that the server declared, in the capabilities that the client was shown."""

        try:
            declared = envelope.member_of(session.greeting, "capabilities")
        except RemoteProtocolError:
            declared = None
        return ListenOffer(
            tools=filters.declares(declared, "tools", "listChanged"),
            prompts=filters.declares(declared, "prompts", "listChanged"),
            resources=filters.declares(declared, "resources", "listChanged"),
            uris_any=filters.declares(declared, "resources", "subscribe"),
        )

    # --- Notifications ------------------------------------------------------------------------------------------------

    def deliver(self, session: Session, method: str, message: bytes) -> None:
        """Sends a notification of a change to each subscription of the session that covers it."""
        params = envelope.decode(message).params
        for subscription in list(session.listens.values()):
            try:
                changes = subscription.machine.receive_change(method, params)
            except RemoteProtocolError as error:
                self._context.note("warning", f"server sent a broken {method}: {error.message}", session.server)
                return
            self.tell(session, subscription, changes)

    def tell(self, session: Session, subscription: Subscription, changes: list[Change]) -> None:
        """Sends changes on a subscription."""
        for change in changes:
            message = envelope.encode_notification(change.method, change.params)
            self._responder.tell(session, subscription.exchange, message)

    def is_watched(self, task: str) -> bool:
        return task in self._by_task

    def tell_task(self, task: str, message: bytes) -> None:
        """Sends the state of a task to the subscriptions that name it.

        Args:
            message: a `notifications/tasks`.
        """
        params = envelope.decode(message).params
        for session, subscription in list(self._by_task.get(task, ())):
            self.tell(session, subscription, subscription.machine.receive_change(TASK, params))

    # --- Loss and recovery of the server ------------------------------------------------------------------------------

    def receive_lost(self, link: Link) -> None:
        """Marks the subscriptions of a lost server as stale. Those without an acknowledgment go on waiting: when the
        server is back, `UpstreamSession.replay` or `ServerListens.open` asks it again."""
        for session in link.sessions.values():
            for subscription in session.listens.values():
                if subscription.machine.state is ListenState.LIVE:
                    subscription.machine.receive_lost()

    def receive_ready(self, link: Link) -> None:
        """Notifies stale subscriptions of a change of all that they cover, now that the server is back: some may have
        been missed."""
        for session in link.sessions.values():
            for subscription in session.listens.values():
                if subscription.machine.state is ListenState.STALE:
                    self.tell(session, subscription, subscription.machine.receive_recovered())

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        """Ends a subscription, and unsubscribes from what no other one wants.

        Args:
            link: None: nothing is sent to the server.
        """
        subscription = session.end_listen(exchange)
        self._forget_tasks(subscription)
        self._context.timers.cancel(("ack", (session.sid, exchange.key)))
        if subscription.machine.state is not ListenState.CLOSED:
            subscription.machine.receive_close()
        if link is None:
            return
        if link.is_stateless:
            if link.shared_process is not None:
                held = {uri for other in session.listens.values() for uri in other.wanted.uris}
                for uri in subscription.wanted.uris - held:
                    link.shared_process.unsubscribe(session, uri)
            filters.renew_later(self._context, link)
            return
        held = {uri for other in session.listens.values() for uri in other.confirmed | other.awaited}
        for uri in sorted((subscription.confirmed | subscription.awaited) - held):
            if link.shared_process is not None and not link.shared_process.unsubscribe(session, uri):
                continue
            link.upstream.forget_subscription(uri)
            if link.upstream.state is UpstreamState.READY:
                self._ask(link, "unsubscribe", uri)

    def _forget_tasks(self, subscription: Subscription) -> None:
        for id in subscription.wanted.tasks:
            kept = [entry for entry in self._by_task.get(id, ()) if entry[1] is not subscription]
            if kept:
                self._by_task[id] = kept
            else:
                self._by_task.pop(id, None)

    def end_all(self, session: Session) -> None:
        """Ends the subscriptions of a session with the response to their request: the proxy is shutting down.

        On a pipe each is cancelled as well. A client that reads the response ignores the notification.
        """
        for key in session.passed:
            exchange = session.exchanges[key]
            session.router.withdraw(session, exchange, None, session.headers)
            exchange.mark_native()
            self._end(session, exchange, tagged(b'{"resultType":"complete"}', exchange.id_raw))
        for subscription in list(session.listens.values()):
            exchange = subscription.exchange
            result = subscription.machine.receive_close()
            self.forget(None, session, exchange)
            self._end(session, exchange, result)

    def _end(self, session: Session, exchange: Exchange, result: bytes) -> None:
        result = named(result, server_info_of(session.greeting))
        self._responder.answer(session, exchange, envelope.encode_result(exchange.id_raw, result))
        tell_end(self._responder, session, exchange)


def _is_awaited(link: Link, uri: str) -> bool:
    """True if a subscription waits for the server to confirm the resource."""
    return any(uri in each.awaited for session in link.sessions.values() for each in session.listens.values())


def _is_pending(link: Link, verb: str, uri: str) -> bool:
    """True if our `resources/subscribe` or `resources/unsubscribe` for that resource has no response yet."""
    return any(
        isinstance(each, OwnRequest) and each.purpose == verb and each.about == uri for each in link.pending.values()
    )


class ListenOffer(msgspec.Struct, frozen=True):
    """The notifications that a server offers.

    Attributes:
        tools, prompts, resources: of changes of the list.
        uris_any: of changes of a resource that is subscribed.
    """

    tools: bool
    prompts: bool
    resources: bool
    uris_any: bool
