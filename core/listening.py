"""One subscription of a client without sessions, as far as a session keeps it."""

from __future__ import annotations

from .exchange import Exchange
from .listen import Filter, Listen


class Listening:
    """
    Attributes:
        exchange: the request, which is open as long as the subscription.
        wanted: what the client asked for.
        machine: whether it was confirmed, and what waits for that.
        orders: the resources that the server has yet to confirm.
        granted: those that it has.
    """

    __slots__ = ("exchange", "granted", "machine", "orders", "wanted")

    def __init__(self, exchange: Exchange, wanted: Filter, machine: Listen) -> None:
        self.exchange = exchange
        self.wanted = wanted
        self.machine = machine
        self.orders: set[str] = set()
        self.granted: set[str] = set()
