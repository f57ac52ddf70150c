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
        is_asked: a server without sessions was asked for all of it, and has not answered.
        granted: what of it such a server confirmed.
        own: what of it is for us to tell, whatever the server does.
    """

    __slots__ = ("awaited", "confirmed", "exchange", "granted", "is_asked", "machine", "own")

    def __init__(self, exchange: Exchange, machine: Listen) -> None:
        self.exchange = exchange
        self.machine = machine
        self.awaited: set[str] = set()
        self.confirmed: set[str] = set()
        self.granted: Filter | None = None
        self.is_asked = False
        self.own = Filter()

    @property
    def wanted(self) -> Filter:
        return self.machine.wanted
