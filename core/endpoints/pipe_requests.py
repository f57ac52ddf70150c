"""The open requests of one pipe that belong to no session."""

from __future__ import annotations

from typing import Final

from ..jsonrpc.envelope import IdKey
from ..state.exchange import Exchange
from ..state.session import Session

SWEPT_MIN: Final = 32
"""So few entries are not worth a look at each."""


class Legs:
    """The open requests of one pipe, by their ids: there they must differ.

    Nobody tells it when one is over. It looks for those whenever there are twice as many as were open the last time, so
    that there are never many more than are open, and an entry costs two looks at most.
    """

    __slots__ = ("_sweep_at", "open")

    def __init__(self) -> None:
        self.open: dict[IdKey, tuple[Session, Exchange]] = {}
        self._sweep_at = SWEPT_MIN

    def add(self, id_key: IdKey, session: Session, exchange: Exchange) -> None:
        if len(self.open) >= self._sweep_at:
            for other in list(self.open):
                self.find(other)
            self._sweep_at = max(SWEPT_MIN, 2 * len(self.open))
        self.open[id_key] = session, exchange

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is owed. A subscription has none before its end."""
        found = [self.find(id_key) for id_key in list(self.open)]
        return any(one is not None and one[1].key not in one[0].listens for one in found)

    def take_all(self) -> list[tuple[Session, Exchange]]:
        """Those that are open. None is kept."""
        found = [self.find(id_key) for id_key in list(self.open)]
        self.open.clear()
        return [one for one in found if one is not None]

    def find(self, id_key: IdKey | None) -> tuple[Session, Exchange] | None:
        """The open request of that id. Those that are over are forgotten on the way."""
        found = None if id_key is None else self.open.get(id_key)
        if found is None or id_key is None:
            return None
        if found[1].is_over or found[1].id_key != id_key or found[1].reply.stream.channel is None:
            del self.open[id_key]
            return None
        return found
