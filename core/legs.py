"""The open requests of one pipe that belong to no session."""

from __future__ import annotations

from .exchange import Exchange
from .jsonrpc import IdKey
from .session import Session

PRUNED_AT: int = 64
"""So many entries are kept before those that are over are looked for; twice as many as are open, after that."""


class Legs:
    """The open requests of one pipe, by their ids: there they must differ."""

    __slots__ = ("_prune_at", "open")

    def __init__(self) -> None:
        self.open: dict[IdKey, tuple[Session, Exchange]] = {}
        self._prune_at = PRUNED_AT

    @property
    def is_busy(self) -> bool:
        """Whether one is to be answered. A subscription is not: it goes on as long as its client listens."""
        found = [self.find(id_key) for id_key in list(self.open)]
        return any(one is not None and one[1].method != "subscriptions/listen" for one in found)

    def add(self, id_key: IdKey, session: Session, exchange: Exchange) -> None:
        self.open[id_key] = session, exchange
        if len(self.open) >= self._prune_at:
            for key in list(self.open):
                self.find(key)
            self._prune_at = max(PRUNED_AT, 2 * len(self.open))

    def find(self, id_key: IdKey | None) -> tuple[Session, Exchange] | None:
        """The open request of that id. Those that are over are forgotten on the way."""
        found = None if id_key is None else self.open.get(id_key)
        if found is None or id_key is None:
            return None
        if found[1].is_over or found[1].id_key != id_key or found[1].reply.stream.channel is None:
            del self.open[id_key]
            return None
        return found
