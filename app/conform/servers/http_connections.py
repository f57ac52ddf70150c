"""Two-way streams of messages that a client opens by HTTP requests: HTTP+SSE and WebSockets."""

from __future__ import annotations

import itertools

from ..script.behaviour import Behaviour
from .duplex import ServerConnection, ServerConnections
from .http_request import Request
from .ledger import Ledger


class HttpConnections(ServerConnections):
    """The connections of one conversation.

    Attributes:
        hint: for people, the sign that the client uses another transport; empty if there is none.
    """

    def __init__(self, behaviour: Behaviour, ledger: Ledger) -> None:
        super().__init__(behaviour, ledger)
        self.hint = ""
        self._numbers = itertools.count()
        self._by_wire: dict[int, ServerConnection] = {}

    def channel(self) -> int:
        """Returns a new channel number."""
        return next(self._numbers)

    def enter(self, connection: ServerConnection) -> None:
        """Adds a connection, so that POSTs can find it."""
        self._by_wire[connection.wire] = connection

    def connection(self, wire: str) -> ServerConnection | None:
        return self._by_wire.get(int(wire)) if wire.isascii() and wire.isdecimal() else None


class ConnectionRequest(Request):
    """A request handler of one of these connections."""

    @property
    def connections(self) -> HttpConnections:
        found: HttpConnections = self.server.shared  # type: ignore[attr-defined]
        return found

    @property
    def ledger(self) -> Ledger:
        return self.connections.ledger
