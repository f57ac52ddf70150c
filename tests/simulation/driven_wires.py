"""Connections to servers that report what arrived as the product's drivers do.

Things that arrived together are reported together, large messages in the pieces they came in, and documents part by
part where the engine wants that.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import Connected
from isthmus.core.wire.http import response
from isthmus.core.wire.http.response import ENDED_ORDERLY, Arrived, Begun, Ended, Opened, Piece
from isthmus.core.wire.ndjson import Line, LineReader
from simulated_wires import Item, LineWire, ResponseWire, together

LARGE_BYTES = 500
"""Data longer than this is large here. A few hundred characters of filler make it so."""
PARTS_MIN_BYTES = 700
CRUMB_BYTES = 40
"""Pieces below this size are joined."""
FILLERS = (0, 0, 300, 600, 2500)


class DrivenLines(LineWire):
    """The pipe of a server."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._reader = LineReader(line_size_max_bytes=1 << 20, joined_size_max_bytes=LARGE_BYTES)

    def receive(self, piece: bytes) -> list[Item]:
        found: list[Item] = []
        lines = [line for line in self._reader.receive_bytes(piece) if isinstance(line, Line)]
        if lines and lines[0].rest:  # the end of a long line stands first in what was read
            found.append(("pieces", (lines[0].data, *lines[0].rest)))
            lines = lines[1:]
        return found + together([b"".join((line.data, *line.rest)) for line in lines])


class DrivenResponse(ResponseWire):
    """A connection to a server, for one request.

    Args:
        passes: tells whether the engine wants a document with this beginning and this size part by part.
    """

    def __init__(
        self, target: Post | Listen | Delete, rng: random.Random, passes: Callable[[bytes, int], bool]
    ) -> None:
        super().__init__(target, rng)
        self._passes = passes
        self._opened: Connected | None = None  # the opening of the response, until it is reported
        self._document: bytes | None = None

    def _items_of(self, facts: list[response.ReplyEvent]) -> list[Item]:
        if len(facts) > 1 and all(isinstance(fact, Arrived) for fact in facts):
            return super()._items_of(facts)
        found: list[Item] = []
        for fact in facts:
            if isinstance(fact, Opened) and self._reader.is_gathering:
                self._opened = Connected(fact.session)
            elif isinstance(fact, Arrived) and self._opened is not None:
                self._document = fact.message
            elif isinstance(fact, Begun):
                if self._opened is not None and self._passes(fact.beginning, fact.size_bytes):
                    opened, self._opened = self._opened, None
                    found.append(("part", self._reader.pass_on(), opened, fact.size_bytes, False))
            elif isinstance(fact, Piece):
                found.append(("part", (fact.data,), None, 0, fact.is_last))
            elif isinstance(fact, Ended) and fact.cause is ENDED_ORDERLY and self._document is not None:
                found.append(("replied", self._opened, self._document))
            else:
                found += [*self._held(), *super()._items_of([fact])]
        return found

    def _held(self) -> list[Item]:
        """Returns what was held back for more to come, after all. Nothing more came."""
        opened, document, self._opened, self._document = self._opened, self._document, None, None
        found: list[Item] = [] if opened is None else [("open", opened, None)]
        return found if document is None else [*found, ("say", document)]
