"""Where a client comes in whose server is played over HTTP, on two-way streams of messages."""

from __future__ import annotations

import itertools

from ..script.behaviour import Behaviour
from .duplex import Company, Performer
from .http_request import Request
from .ledger import Ledger


class Lobby(Company):
    """Of one conversation.

    Attributes:
        hint: what a client did that speaks something else, for people; empty if nothing was seen of that.
    """

    def __init__(self, behaviour: Behaviour, ledger: Ledger) -> None:
        super().__init__(behaviour, ledger)
        self.hint = ""
        self._numbers = itertools.count()
        self._performers: dict[int, Performer] = {}

    def channel(self) -> int:
        """A new number."""
        return next(self._numbers)

    def enter(self, performer: Performer) -> None:
        """From now on there can be posts for it."""
        self._performers[performer.wire] = performer

    def performer(self, wire: str) -> Performer | None:
        return self._performers.get(int(wire)) if wire.isascii() and wire.isdecimal() else None


class Caller(Request):
    """Who comes into one, by a connection of its own."""

    @property
    def lobby(self) -> Lobby:
        found: Lobby = self.server.hall  # type: ignore[attr-defined]
        return found

    @property
    def ledger(self) -> Ledger:
        return self.lobby.ledger
