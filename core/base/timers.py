"""A table of deadlines by key, in one heap: one wake-up of the driver serves the whole engine.

Postponing is the fast path: a deadline that moves to a later time keeps its old heap entry, so nothing is pushed. When
that entry surfaces, `next_timeout` replaces it by the current time, which gives the same order as if it had been pushed
at once: each setting has a serial number, which the surfaced entry takes over. `tests/core/base/test_timers.py`
compares the table with a plain dictionary.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

HEAP_MIN: Final = 64
"""Heap length up to which rebuilding is not worth it, however many entries are dead."""

K = TypeVar("K", bound=Hashable)


class Deadline(NamedTuple):
    """A deadline (seconds on the caller's monotonic clock) and its reason."""

    at: float
    why: str


class Timers(Generic[K]):
    """A table with at most one deadline for each key. Setting a key again replaces its deadline.

    Replaced and cancelled entries stay in the heap until they surface, and the heap is rebuilt when they are the
    majority, so memory stays proportional to the live deadlines. A postponed deadline keeps its entry until that
    surfaces, since many deadlines are postponed time and again.

    Attributes:
        earliest_at: a lower bound of all deadlines; the one it was set for may have been cancelled since.
    """

    def __init__(self) -> None:
        self.earliest_at = float("inf")
        self._heap: list[tuple[float, int, K]] = []
        self._live: dict[K, tuple[float, int, str, int]] = {}  # deadline, serial, reason, serial of its heap entry
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def set(self, key: K, at: float, why: str) -> None:
        """Sets or replaces the deadline of `key`. `why` names it in traces."""
        self._serial = serial = self._serial + 1
        live = self._live.get(key)
        if live is not None and live[0] <= at:
            self._live[key] = (at, serial, why, live[3])  # the old entry surfaces too early, and is replaced then
            return
        self._live[key] = (at, serial, why, serial)
        heap = self._heap
        heapq.heappush(heap, (at, serial, key))
        if at < self.earliest_at:
            self.earliest_at = at
        if len(heap) > HEAP_MIN:
            self._shrink()

    def cancel(self, key: K) -> None:
        """Removes the deadline of `key`, if it has one."""
        if self._live.pop(key, None) is not None and len(self._heap) > HEAP_MIN:
            self._shrink()

    def next_timeout(self) -> Deadline | None:
        """Returns the earliest deadline; None if there is none."""
        heap = self._heap
        while heap:
            _, entry, key = heap[0]
            live = self._live.get(key)
            if live is None or live[3] != entry:
                heapq.heappop(heap)
                continue
            at, serial, why, _ = live
            if serial == entry:
                self.earliest_at = at
                return Deadline(at, why)
            self._live[key] = (at, serial, why, serial)
            heapq.heapreplace(heap, (at, serial, key))
        self.earliest_at = float("inf")
        return None

    def take_due(self, now: float) -> K | None:
        """Removes and returns the key that is due first; None if none is due. Among equal deadlines, the one set first
        goes first.

        Callers take one key at a time, because handling one may cancel the next.
        """
        head = self.next_timeout()
        if head is None or head.at > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._live[key]
        return key

    def _shrink(self) -> None:
        if len(self._heap) > HEAP_MIN and len(self._heap) > 2 * len(self._live):
            self._heap = [(at, serial, key) for key, (at, serial, _, _) in self._live.items()]
            heapq.heapify(self._heap)
            self._live = {key: (at, serial, why, serial) for key, (at, serial, why, _) in self._live.items()}
