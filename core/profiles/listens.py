"""`subscriptions/listen` of clients without sessions, at a profile: each server is asked for its part.

The part of a server is its resources and tasks in the filter, and the changes of its lists. Resources and tasks open
the leg to their server. Changes of lists are asked for on each leg that there is, or comes: what a server lists is not
known before.

The client's subscription is acknowledged once all parts have been, or after `Limits.listen_ack_s`. What a server has
refused is left out. What a server that cannot be reached has is not: the server is asked again until it is there. A
change of each resource of its part then makes up for what was missed, and its lists are read again.

Source: 2026-07-28 basic/patterns/subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..base.errors import UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.methods import LISTEN
from ..jsonrpc import envelope
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey
from ..state.listen import Listen, ListenState
from ..state.listen_filter import ACKNOWLEDGED, LISTS, ListenFilter, format_filter, parse_filter, untagged
from ..state.ports import FileDirectory
from ..state.subscription import Subscription
from ..subscriptions.client_listens import ClientListens
from .legs import Front, Leg, LegReply, Legs
from .names import Route
from .rewriting import Rewriter

RETRY_MIN_S: Final = 2.0
"""The first pause before a server is asked again for a part that it has lost. It doubles each time."""
RETRY_MAX_S: Final = 120.0
"""The longest pause."""


class Part:
    """The part of a subscription that one server is asked for.

    Attributes:
        wanted: the filter, in the words of the server.
        uris: the URIs that clients see, by those of the server.
        inner: the request on the leg, while it is open.
        is_settled: the subscription does not wait for it any more.
        is_missed: changes of it may have been missed.
        granted: what of it is covered, in the words of the client.
        pause_s: before it is asked for again.
    """

    def __init__(self, wanted: ListenFilter, uris: Mapping[str, str]) -> None:
        self.wanted = wanted
        self.uris = uris
        self.inner: tuple[Leg, Exchange] | None = None
        self.is_settled = False
        self.is_missed = False
        self.granted = self._shown(wanted)
        self.pause_s = RETRY_MIN_S

    def _shown(self, part: ListenFilter) -> ListenFilter:
        uris = frozenset(self.uris[uri] for uri in part.uris if uri in self.uris)
        return ListenFilter(part.tools, part.prompts, part.resources, uris, part.tasks)

    def open(self, leg: Leg, inner: Exchange) -> None:
        """Begins to ask for it."""
        self.inner = leg, inner

    def settle(self, granted: ListenFilter) -> None:
        """Handles what the server has acknowledged, or refused."""
        self.granted, self.is_settled, self.pause_s = self._shown(granted), True, RETRY_MIN_S

    def take_missed(self) -> bool:
        """True if changes may have been missed. They are made up for now."""
        is_missed, self.is_missed = self.is_missed, False
        return is_missed

    def lose(self) -> float:
        """Handles the loss of its server. Returns the pause before it is asked for again."""
        pause_s, self.pause_s = self.pause_s, min(2 * self.pause_s, RETRY_MAX_S)
        self.inner, self.is_settled, self.is_missed = None, True, True
        return pause_s


class FrontListen:
    """A client's subscription.

    Attributes:
        subscription: as its session keeps it.
        lists: the changes of lists that it covers.
        artifacts: the part that no server is asked for: changes of the profile's own files.
        parts: by server.
    """

    def __init__(self, subscription: Subscription, changing: ListenFilter, artifacts: ListenFilter) -> None:
        self.subscription = subscription
        self.lists = subscription.wanted & changing
        self.artifacts = artifacts
        self.parts: dict[str, Part] = {}

    @property
    def granted(self) -> ListenFilter:
        """All that is covered."""
        found = self.lists | self.artifacts
        for part in self.parts.values():
            found |= part.granted
        return found


class _PartReply(LegReply):
    """The reply to a request for a part: notifications and the end go to `listens`."""

    def __init__(self, listens: Listens, front: Front, listen: FrontListen, server: str) -> None:
        super().__init__(lambda _reply, _message: None)
        self._listens = listens
        self._front = front
        self._listen = listen
        self._server = server

    def take(self, message: bytes | None) -> tuple[bytes | None, bool]:
        self.remaining -= 1
        self._listens.receive_end(self._front, self._listen, self._server, message)
        return None, False

    def take_notification(self, message: bytes) -> bool:
        self._listens.receive(self._front, self._listen, self._server, message)
        return True


class Listens:
    """The subscriptions of all clients of one profile.

    Args:
        legs: opens legs to servers.
        rewriter: rewrites URIs.
        files: the files of all servers; None if this copy has none.
        receive_change: handles the notification of a server that a list has changed. True if the client is to be told
            now.
        changing: the lists of the profile that may change.
    """

    def __init__(
        self,
        context: Context,
        client_listens: ClientListens,
        legs: Legs,
        rewriter: Rewriter,
        files: FileDirectory | None,
        receive_change: Callable[[Front, str, str], bool],
        changing: ListenFilter,
    ) -> None:
        self._context = context
        self._client_listens = client_listens
        self._legs = legs
        self._rewriter = rewriter
        self._files = files
        self._receive_change = receive_change
        self._changing = changing
        self._open: dict[tuple[str, ExchangeKey], tuple[Front, FrontListen]] = {}

    # --- Clients ----------------------------------------------------------------------------------------------------

    def begin(
        self,
        front: Front,
        exchange: Exchange,
        route_uri: Callable[[str], Route | None],
        server_of: Callable[[str], str | None],
    ) -> None:
        """Begins a subscription.

        Args:
            route_uri: returns the server of a URI that the client may see, and the URI there.
            server_of: returns the server of a task that the client may see.

        Raises:
            RemoteProtocolError: the filter cannot be read, or would be above a limit. Nothing has changed.
        """
        wanted = self._client_listens.read_filter(front.session, exchange)
        exchange.step(ExchangeInput.PREPARED)
        exchange.receive_written(0, None)
        machine = Listen(exchange.id_raw, wanted, queue_max=self._context.limits.held_per_session_max)
        subscription = Subscription(exchange, machine)
        front.session.begin_listen(subscription)
        artifacts = ListenFilter() if self._files is None else self._files.granted(front.session, wanted)
        listen = FrontListen(subscription, self._changing, artifacts)
        for server, (uris, tasks) in _split(wanted, route_uri, server_of).items():
            named = ListenFilter(uris=frozenset(uris), tasks=frozenset(tasks))
            listen.parts[server] = Part(listen.lists | named, uris)
        self._open[front.session.sid, exchange.key] = front, listen
        if listen.lists:
            for server in front.legs:
                listen.parts.setdefault(server, Part(listen.lists, {}))
        at = self._context.now + self._context.limits.listen_ack_s
        self._context.timers.set(("profile ack", (front.session.sid, exchange.key)), at, "what is subscribed")
        for server in list(listen.parts):
            self._ask(front, listen, server)
        self._acknowledge_if_complete(front, listen)

    def join(self, front: Front, leg: Leg) -> None:
        """Handles a new leg: it is asked for the changes of its lists."""
        for open_front, listen in list(self._open.values()):
            if open_front is front and listen.lists and leg.server not in listen.parts:
                listen.parts[leg.server] = Part(listen.lists, {})
                listen.parts[leg.server].is_settled = True  # its client waits for other parts only
                self._ask(front, listen, leg.server)

    def withdraw(self, front: Front, exchange: Exchange) -> None:
        """Ends the parts of a subscription that is over, if it is one."""
        found = self._open.pop((front.session.sid, exchange.key), None)
        if found is None:
            return
        listen = found[1]
        self._context.timers.cancel(("profile ack", (front.session.sid, exchange.key)))
        if exchange.key in front.session.listens:
            self._client_listens.forget(None, front.session, exchange)
        for server, part in listen.parts.items():
            self._context.timers.cancel(("profile relisten", (front.session.sid, (exchange.key, server))))
            if part.inner is not None:
                inner, part.inner = part.inner, None
                self._legs.cancel(*inner, None, front.session.headers)

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _ask(self, front: Front, listen: FrontListen, server: str) -> None:
        exchange, part = listen.subscription.exchange, listen.parts[server]
        leg = self._legs.open(front, server)
        if isinstance(leg, str):
            self._retry_later(front, listen, server)
            return
        if part.inner is not None:
            return  # it was asked as the leg was opened
        inner = Exchange(
            exchange.key,
            _PartReply(self, front, listen, server),
            sid=leg.session.sid,
            id_raw=exchange.id_raw,
            id_key=exchange.id_key,
            method=LISTEN,
            params=set_member(exchange.params or b"{}", "notifications", format_filter(part.wanted)),
            headers=leg.passed(exchange.headers),
            request=exchange.request,
            trace=exchange.trace,
        )
        part.open(leg, inner)
        self._legs.send(leg, inner)

    def receive(self, front: Front, listen: FrontListen, server: str, message: bytes) -> None:
        """Handles a notification on a part."""
        part, frame = listen.parts.get(server), envelope.decode(message)
        if part is None or part.inner is None or frame.method is None or listen.subscription.exchange.is_over:
            return
        try:
            params, _ = untagged(frame.params)
            if frame.method == ACKNOWLEDGED:
                granted = parse_filter(params, names_max=len(part.wanted.uris) + len(part.wanted.tasks))
                part.settle(granted & part.wanted)
                self._receive_granted(front, listen, server)
            elif frame.method not in LISTS or self._receive_change(front, server, frame.method):
                if params is not None:
                    params = self._rewriter.message(server, frame.method, params)
                changes = listen.subscription.machine.receive_change(frame.method, params)
                self._client_listens.tell(front.session, listen.subscription, changes)
        except RemoteProtocolError as error:
            self._context.note("warning", f"server sent a broken {frame.method}: {error.message}", server)

    def receive_end(self, front: Front, listen: FrontListen, server: str, message: bytes | None) -> None:
        """Handles the end of a part: the server refused it, has ended it, or is lost."""
        part = listen.parts.get(server)
        if part is None or part.inner is None or listen.subscription.exchange.is_over:
            return
        error = None if message is None else envelope.decode(message).error
        if error is not None and not part.is_settled and envelope.error_code(error) != UPSTREAM_UNAVAILABLE:
            part.inner = None
            part.settle(ListenFilter())
        else:
            self._retry_later(front, listen, server)
        self._acknowledge_if_complete(front, listen)

    def _retry_later(self, front: Front, listen: FrontListen, server: str) -> None:
        part = listen.parts[server]
        pause_s = part.lose()
        if part.wanted == listen.lists and server not in front.legs:
            del listen.parts[server]  # the next leg to the server is asked
            return
        key = listen.subscription.exchange.key
        at = self._context.now + pause_s
        self._context.timers.set(("profile relisten", (front.session.sid, (key, server))), at, "what was subscribed")

    def handle_retry(self, sid: str, place: tuple[ExchangeKey, str]) -> None:
        """Asks again for a part that was lost."""
        key, server = place
        found = self._open.get((sid, key))
        if found is not None and not found[1].subscription.exchange.is_over:
            self._ask(*found, server)

    # --- Acknowledgment ---------------------------------------------------------------------------------------------

    def _receive_granted(self, front: Front, listen: FrontListen, server: str) -> None:
        subscription, part = listen.subscription, listen.parts[server]
        if subscription.machine.state is not ListenState.LIVE:
            self._acknowledge_if_complete(front, listen)
        elif part.take_missed():
            for method, params in part.granted.changes():
                if method not in LISTS or self._receive_change(front, server, method):
                    changes = subscription.machine.receive_change(method, params)
                    self._client_listens.tell(front.session, subscription, changes)

    def _acknowledge_if_complete(self, front: Front, listen: FrontListen) -> None:
        if all(part.is_settled for part in listen.parts.values()):
            self._acknowledge(front, listen)

    def _acknowledge(self, front: Front, listen: FrontListen) -> None:
        subscription = listen.subscription
        if subscription.machine.state is not ListenState.OPENING:
            return
        self._context.timers.cancel(("profile ack", (front.session.sid, subscription.exchange.key)))
        changes = subscription.machine.receive_acknowledged(listen.granted)
        self._client_listens.tell(front.session, subscription, changes)

    def handle_ack(self, sid: str, key: ExchangeKey) -> None:
        """Acknowledges a subscription after `Limits.listen_ack_s`, though servers have not answered."""
        found = self._open.get((sid, key))
        if found is not None:
            for part in found[1].parts.values():
                part.is_missed = not part.is_settled
            self._acknowledge(*found)


def _split(
    wanted: ListenFilter, route_uri: Callable[[str], Route | None], server_of: Callable[[str], str | None]
) -> dict[str, tuple[dict[str, str], set[str]]]:
    """Returns the part of each server: its URIs, with those that clients see, and the ids of its tasks. What is of no
    server is left out."""
    found: dict[str, tuple[dict[str, str], set[str]]] = {}
    for uri in sorted(wanted.uris):
        route = route_uri(uri)
        if route is not None:
            found.setdefault(route.server, ({}, set()))[0][route.raw] = uri
    for id in sorted(wanted.tasks):
        server = server_of(id)
        if server is not None:
            found.setdefault(server, ({}, set()))[1].add(id)
    return found
