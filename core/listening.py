"""One subscription of a client without sessions, as far as a session keeps it."""

from __future__ import annotations

from .exchange import Exchange
from .listen import Filter, Listen


class Listening:
    """
    Attributes:
        exchange: the request, which is open as long as the subscription.
        machine: what was confirmed, and what waits for that.
        awaited: the resources that the server has yet to confirm.
        confirmed: those that it has.
    """

    __slots__ = ("awaited", "confirmed", "exchange", "machine")

    def __init__(self, exchange: Exchange, machine: Listen) -> None:
        self.exchange = exchange
        self.machine = machine
        self.awaited: set[str] = set()
        self.confirmed: set[str] = set()

    @property
    def wanted(self) -> Filter:
        return self.machine.wanted
