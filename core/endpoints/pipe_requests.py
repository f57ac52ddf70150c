"""The open requests of one pipe that belong to no session."""

from __future__ import annotations

from typing import Final

from ..jsonrpc.envelope import IdKey
from ..state.exchange import Exchange
from ..state.session import Session

SWEPT_MIN: Final = 32
"""Number of entries up to which ended ones are not searched for."""


class PipeRequests:
    """The open requests of one pipe that belong to no session, by their ids. The ids of open requests on a pipe must
    differ.

    No event reports the end of a request. Ended ones are removed whenever there are twice as many entries as were open
    the last time, so there are never many more entries than open requests, and each entry is looked at twice at most.
    """

    __slots__ = ("_sweep_at", "open")

    def __init__(self) -> None:
        self.open: dict[IdKey, tuple[Session, Exchange]] = {}
        self._sweep_at = SWEPT_MIN

    def add(self, id_key: IdKey, session: Session, exchange: Exchange) -> None:
        """Adds an open request."""
        if len(self.open) >= self._sweep_at:
            for other in list(self.open):
                self.find(other)
            self._sweep_at = max(SWEPT_MIN, 2 * len(self.open))
        self.open[id_key] = session, exchange

    @property
    def is_waiting(self) -> bool:
        """True if a response is owed. A subscription has none before its end."""
        found = [self.find(id_key) for id_key in list(self.open)]
        return any(one is not None and not one[0].is_listen(one[1]) for one in found)

    def take_all(self) -> list[tuple[Session, Exchange]]:
        """Removes all entries. Returns the open ones."""
        found = [self.find(id_key) for id_key in list(self.open)]
        self.open.clear()
        return [one for one in found if one is not None]

    def find(self, id_key: IdKey | None) -> tuple[Session, Exchange] | None:
        """Returns the open request of that id. An entry whose request has ended is removed."""
        found = None if id_key is None else self.open.get(id_key)
        if found is None or id_key is None:
            return None
        if found[1].is_over or found[1].id_key != id_key or found[1].reply.stream.channel is None:
            del self.open[id_key]
            return None
        return found
