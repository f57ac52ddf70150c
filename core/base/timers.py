"""Deadlines by key, each with its reason, in one heap: one wake-up serves the whole engine."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

HEAP_MIN: Final = 64
"""A heap no longer than this is not worth rebuilding, whatever is dead in it."""

K = TypeVar("K", bound=Hashable)


class Deadline(NamedTuple):
    """When something is due (seconds on the caller's monotonic clock), and why."""

    at: float
    why: str


class Timers(Generic[K]):
    """At most one deadline a key. Setting a key again replaces its deadline.

    Replaced and cancelled entries stay in the heap until they surface, and the heap is rebuilt when they are the
    majority, so memory stays proportional to the live deadlines. What is put off keeps its entry until that surfaces:
    many deadlines are put off time and again.

    Attributes:
        earliest_at: nothing is due before that; what was due then may have been cancelled since.
    """

    def __init__(self) -> None:
        self.earliest_at = float("inf")
        self._heap: list[tuple[float, int, K]] = []
        self._live: dict[K, tuple[float, int, str, int]] = {}  # when, which setting, why, and that of the heap's entry
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def set(self, key: K, at: float, why: str) -> None:
        self._serial = serial = self._serial + 1
        live = self._live.get(key)
        if live is not None and live[0] <= at:
            self._live[key] = (at, serial, why, live[3])  # its entry comes up too early, and is put off then
            return
        self._live[key] = (at, serial, why, serial)
        heap = self._heap
        heapq.heappush(heap, (at, serial, key))
        if at < self.earliest_at:
            self.earliest_at = at
        if len(heap) > HEAP_MIN:
            self._shrink()

    def cancel(self, key: K) -> None:
        """Forget the key's deadline, if it has one."""
        if self._live.pop(key, None) is not None and len(self._heap) > HEAP_MIN:
            self._shrink()

    def next_timeout(self) -> Deadline | None:
        """The earliest deadline, or None."""
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
        """Remove and return the key that is due first, if any is; set earlier goes first among equals.

        One at a time: what is done about one may cancel the next.
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
