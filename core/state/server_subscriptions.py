"""Our subscriptions with a stateless server (`subscriptions/listen`), and what waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..base.empty import NONE, without
from .exchange import Exchange
from .listen_filter import ListenFilter

_NOTHING: Final = ListenFilter()


class UpstreamListen:
    """One of our subscriptions.

    Attributes:
        number: the number of the request.
        wanted: the filter of the request.
        granted: the part that the server acknowledged; None before.
    """

    __slots__ = ("granted", "number", "wanted")

    def __init__(self, number: int, wanted: ListenFilter) -> None:
        self.number = number
        self.wanted = wanted
        self.granted: ListenFilter | None = None

    def receive_granted(self, granted: ListenFilter) -> ListenFilter:
        """Handles the acknowledgment. Returns the part of the filter that is granted."""
        self.granted = granted & self.wanted
        return self.granted


class ServerSubscriptions:
    """The subscriptions of one link.

    Attributes:
        listens: those that are open, by number, the newest last.
        missed: changes that may have been missed while nothing was subscribed.
        waiting: requests that wait for a resource to be subscribed.
    """

    __slots__ = ("listens", "missed", "waiting")

    def __init__(self) -> None:
        self.listens: Mapping[int, UpstreamListen] = NONE
        self.missed = _NOTHING
        self.waiting: tuple[Exchange, ...] = ()

    @property
    def newest(self) -> UpstreamListen | None:
        """The one that was opened last; None if none is open."""
        return next(reversed(tuple(self.listens.values())), None)

    def open(self, number: int, wanted: ListenFilter) -> None:
        """Adds a subscription."""
        self.listens = {**self.listens, number: UpstreamListen(number, wanted)}

    def close(self, number: int) -> UpstreamListen | None:
        """Removes a subscription. Returns it; None if it was closed before."""
        found = self.listens.get(number)
        self.listens = without(self.listens, number)
        return found

    def reopen(self, number: int, again: int) -> None:
        """Gives a subscription that was sent once more its new number."""
        found = self.close(number)
        if found is not None:
            self.open(again, found.wanted)

    def miss(self, listen: UpstreamListen) -> None:
        """Records that changes of what it covered may be missed from now on."""
        self.missed |= listen.granted or _NOTHING

    def receive_lost(self) -> None:
        """Drops all subscriptions, whose server is lost."""
        for listen in self.listens.values():
            self.miss(listen)
        self.listens = NONE

    def take_missed(self, granted: ListenFilter) -> ListenFilter:
        """Forgets what may have been missed. Returns the part of it that is subscribed again."""
        missed, self.missed = self.missed & granted, _NOTHING
        return missed

    def wait(self, exchange: Exchange) -> None:
        """Lets a request wait for its resource to be subscribed."""
        self.waiting = (*self.waiting, exchange)

    def stop_waiting(self, exchange: Exchange) -> None:
        """Removes a request from those that wait."""
        self.waiting = tuple(each for each in self.waiting if each is not exchange)

    def take_waiting(self) -> tuple[Exchange, ...]:
        """Removes and returns the requests that wait."""
        waiting, self.waiting = self.waiting, ()
        return waiting
