"""Worlds that last, all of whose messages cross wires as bytes."""

from __future__ import annotations

from isthmus.core.wire.http.routes import Surface
from lasting import LastingWorld
from wired_network import WiredNetwork


class WiredWorld(LastingWorld):
    """See the module."""

    network: WiredNetwork
    network_kind = WiredNetwork

    def __init__(self, name: str, *, is_heard: bool = True) -> None:
        super().__init__(name, is_heard=is_heard)
        self.network.surface = Surface(tuple(self._server_ids), hosts=frozenset({"here"}), origins=frozenset())
