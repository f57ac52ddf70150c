"""Decides which requests have spans, before anything is made for one, and gives spans their ids.

A client that sends a trace context has decided itself. For all others a share of random trace ids decides
(`Tracing.ratio`), so that the programs of a trace that know its id and the share decide alike. No more than
`Tracing.spans_per_second_max` spans are made, whatever clients ask for.

Which requests these are is drawn ahead, so that a call on the fast path costs a look at a counter: `skip` requests
whose clients send no context have no span, and then comes one that has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from ..base.ids import Entropy
from ..base.telemetry import Tracing
from .context import SAMPLED, TraceContext

DRAWN_BYTES: Final = 1024
"""Random bytes that are drawn at once: for 128 requests, or as many spans. To draw costs more than the rest of a
decision."""
_HALVES: Final = struct.Struct(f">{DRAWN_BYTES // 8}Q")
_SPACE: Final = 1 << 64
_ALL: Final = 1 << 62  # more requests than there ever are


class Sampler:
    """The sampler of one engine.

    Attributes:
        skip: the number of requests without a context that have no span, from the next one on. 0: it is to be looked
            for.
        refused: the requests that were to have spans, and have none since too many were made.
    """

    def __init__(self, tracing: Tracing, entropy: Entropy) -> None:
        self.refused = 0
        self._entropy = entropy
        self._bound = round(tracing.ratio * _SPACE) if tracing.is_recorded else 0
        self._is_recorded = tracing.is_recorded
        self._spans_per_second_max = float(tracing.spans_per_second_max)
        self._left = self._spans_per_second_max
        self._left_at = float("-inf")
        self._halves: Iterator[int] = iter(())  # the lower halves of the ids of traces, for the next requests
        self._found: int | None = None  # the one of the request after those that are skipped
        self._pool: Iterator[int] = iter(())
        self.skip = _ALL
        if self._bound:
            self._look()

    def takes_next(self, now: float) -> bool:
        """True if the next request without a context has a span."""
        if not self.skip and self._found is None:
            self._look()
        return not self.skip and self._has_room(now)

    def pass_over(self) -> None:
        """Handles a request without a context for which `takes_next` is not True."""
        if self.skip:
            self.skip -= 1
        else:
            self.begin(None, self._left_at)

    def begin(self, parent: TraceContext | None, now: float) -> TraceContext | None:
        """Returns the context of the span of a request; None if it has none.

        Args:
            parent: what its client sent; None if it sent nothing valid.
        """
        if parent is not None:
            if not parent.is_sampled or not self._is_recorded or not self._may_begin(now):
                return None
            return TraceContext(parent.trace_id, self._span_id(), parent.flags & 3, parent.state)
        if not self.skip and self._found is None:
            self._look()
        if self.skip:
            self.skip -= 1
            return None
        lower, self._found = self._found, None
        if not self._may_begin(now):
            return None
        return TraceContext(f"{self._draw():016x}{lower:016x}", self._span_id(), SAMPLED)

    def child_of(self, context: TraceContext) -> TraceContext:
        """Returns the context of a further span under one that was begun. It counts, and is never refused."""
        self._left -= 1
        return TraceContext(context.trace_id, self._span_id(), context.flags, context.state)

    def _may_begin(self, now: float) -> bool:
        if not self._has_room(now):
            self.refused += 1
            return False
        self._left -= 1
        return True

    def _has_room(self, now: float) -> bool:
        most = self._spans_per_second_max
        if now > self._left_at:
            self._left, self._left_at = min(most, self._left + (now - self._left_at) * most), now
        return self._left >= 1

    def _look(self) -> None:
        """Looks for the next request with a span, among those for which there are random bytes."""
        skip, bound = 0, self._bound
        while not skip and self._found is None:
            for half in self._halves:
                if half < bound:
                    self._found = half
                    break
                skip += 1
            else:
                if not skip:
                    self._halves = iter(_HALVES.unpack(self._entropy(DRAWN_BYTES)))
        self.skip = skip

    def _span_id(self) -> str:
        return f"{self._draw():016x}"

    def _draw(self) -> int:
        """Returns 64 random bits, not all of them 0: no id is."""
        while not (drawn := next(self._pool, 0)):
            self._pool = iter(_HALVES.unpack(self._entropy(DRAWN_BYTES)))
        return drawn
