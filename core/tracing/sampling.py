"""Decides which requests have spans, before anything is made for one, and gives spans their ids.

A client that sends a trace context has decided itself. For all others a share of random trace ids decides
(`Tracing.ratio`), so that the programs of a trace that know its id and the share decide alike. No more than
`Tracing.spans_per_second_max` spans are made, whatever clients ask for.

The id of the next trace is drawn ahead. A call on the fast path, whose client sends no context, is asked only whether
that id is in the share.
"""

from __future__ import annotations

from typing import Final

from ..base.ids import Entropy
from ..base.telemetry import Tracing
from .context import SAMPLED, TraceContext

DRAWN_BYTES: Final = 1024
"""Random bytes that are drawn at once: for 64 traces. To draw costs more than the rest of a decision."""
_SPACE: Final = 1 << 64


class Sampler:
    """The sampler of one engine.

    Attributes:
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
        self._pool = b""
        self._at = 0
        self._next = b""
        self._is_next_sampled = False
        if self._bound:
            self._prepare_next()

    def takes_next(self, now: float) -> bool:
        """True if the next request without a context has spans."""
        return self._is_next_sampled and self._has_room(now)

    def begin(self, parent: TraceContext | None, now: float) -> TraceContext | None:
        """Returns the context of the span of a request; None if it has none.

        Args:
            parent: what its client sent; None if it sent nothing valid.
        """
        if parent is not None:
            if not parent.is_sampled or not self._is_recorded or not self._may_begin(now):
                return None
            return TraceContext(parent.trace_id, self._span_id(), parent.flags & 3, parent.state)
        if not self._bound:
            return None
        is_sampled, trace_id = self._is_next_sampled, self._next
        self._prepare_next()
        if not is_sampled or not self._may_begin(now):
            return None
        return TraceContext(trace_id.hex(), self._span_id(), SAMPLED)

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

    def _prepare_next(self) -> None:
        self._next = drawn = self._draw(16)
        self._is_next_sampled = int.from_bytes(drawn[8:]) < self._bound

    def _span_id(self) -> str:
        return self._draw(8).hex()

    def _draw(self, size: int) -> bytes:
        """Returns random bytes, not all of them 0: no id is."""
        while True:
            if self._at + size > len(self._pool):
                self._pool, self._at = self._entropy(DRAWN_BYTES), 0
            drawn = self._pool[self._at : self._at + size]
            self._at += size
            if any(drawn):
                return drawn
