"""A histogram of durations."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

CALLS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds for requests: from a tool that looks something up to one that works for minutes."""
STEPS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds for steps of the gateway itself."""


class Histogram:
    """Durations, counted by buckets.

    Args:
        bounds_s: the upper bounds of the buckets, in seconds, growing. There is one more bucket above them.

    Attributes:
        counts: the number of durations in each bucket.
        sum_s: the sum of all durations.
    """

    __slots__ = ("_bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Counts a duration."""
        self.counts[bisect_left(self._bounds_s, duration_s)] += 1
        self.sum_s += duration_s

    def buckets(self) -> list[tuple[str, float]]:
        """Returns the upper bound of each bucket, and the number of durations up to it."""
        found, total = [], 0
        for bound_s, count in zip((*map(str, self._bounds_s), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound_s, float(total)))
        return found
