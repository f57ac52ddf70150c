"""Lasting worlds whose messages cross wires as bytes."""

from __future__ import annotations

from isthmus.core.wire.http.routes import Surface
from lasting import LastingWorld
from wired_network import WiredNetwork


class WiredWorld(LastingWorld):
    """A world of the kind that the module describes."""

    network: WiredNetwork
    network_kind = WiredNetwork

    def __init__(self, name: str, *, is_checked: bool = True) -> None:
        super().__init__(name, is_checked=is_checked)
        self.network.surface = Surface(tuple(self._server_ids), hosts=frozenset({"here"}), origins=frozenset())
