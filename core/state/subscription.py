"""The record that a session keeps of one `subscriptions/listen` of a client: the request and its `Listen` machine."""

from __future__ import annotations

from .exchange import Exchange
from .listen import Listen
from .listen_filter import ListenFilter


class Subscription:
    """One subscription.

    Attributes:
        exchange: the request, which is open as long as the subscription.
        machine: the state of the listen, with its filter and the changes that wait for the acknowledgment.
        awaited: the URIs that a server with sessions has yet to confirm.
        confirmed: the URIs that it has confirmed.
        is_asked: a stateless server was asked for all of the filter, and has not answered.
        granted: the part of the filter that such a server confirmed.
        own: the part whose notifications come from the proxy, whatever the server confirms.
    """

    __slots__ = ("awaited", "confirmed", "exchange", "granted", "is_asked", "machine", "own")

    def __init__(self, exchange: Exchange, machine: Listen) -> None:
        self.exchange = exchange
        self.machine = machine
        self.awaited: set[str] = set()
        self.confirmed: set[str] = set()
        self.granted: ListenFilter | None = None
        self.is_asked = False
        self.own = ListenFilter()

    def grant_own(self, own: ListenFilter) -> None:
        """Adds a part whose notifications come from the proxy."""
        self.own |= own

    def ask(self, *, is_asked: bool) -> None:
        """Begins, or ends, to wait for a stateless server."""
        self.is_asked = is_asked

    def expect(self, uri: str) -> None:
        """Begins to wait for a server with sessions to confirm a resource."""
        self.awaited.add(uri)

    def confirm(self, uri: str) -> None:
        """Handles a resource that is confirmed, as the server has it subscribed."""
        self.confirmed.add(uri)

    def receive_answer(self, uri: str, *, is_done: bool) -> None:
        """Handles the server's answer about a resource."""
        self.awaited.discard(uri)
        if is_done:
            self.confirmed.add(uri)

    def receive_granted(self, granted: ListenFilter) -> None:
        """Handles what a stateless server has granted."""
        self.granted = granted & self.wanted

    @property
    def wanted(self) -> ListenFilter:
        """The filter of the request."""
        return self.machine.wanted
