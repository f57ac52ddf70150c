"""The open requests of one pipe that belong to no session."""

from __future__ import annotations

from .exchange import Exchange
from .jsonrpc import IdKey
from .session import Session


class Legs:
    """The open requests of one pipe, by their ids: there they must differ."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[IdKey, tuple[Session, Exchange]] = {}

    def find(self, id_key: IdKey | None) -> tuple[Session, Exchange] | None:
        """The open request of that id. Those that are over are forgotten on the way."""
        found = None if id_key is None else self.open.get(id_key)
        if found is None or id_key is None:
            return None
        if found[1].is_over or found[1].id_key != id_key or found[1].reply.stream.channel is None:
            del self.open[id_key]
            return None
        return found
