"""The search for the smallest part of a world in which the same checker still fails.

Whole clients, servers and faults are left out first, one by one, then operations by halves, quarters, and so on. This
is repeated until nothing more can be left out. Each try makes the world again, so tries are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import masks
from simulation import Report, run_world

TRIES_MAX: Final = 400
"""The bound on tries. A world takes a fraction of a second, and less as it shrinks: a minute or two in all."""


def shrink(failed: Report, *, tries_max: int = TRIES_MAX, run: Callable[[str], Report] = run_world) -> Report:
    """Returns the report of the smallest failing world found within `tries_max` tries. Its seed is the name of that
    world."""
    best, tries, parts = failed, 0, -1
    while len(best.parts) != parts:
        parts = len(best.parts)
        for step in (_wholes, _operations):
            for group in step(best):
                left = [part for part in best.parts if part not in group and part.partition(".")[0] not in group]
                if len(left) == len(best.parts):
                    continue  # was left out together with another part
                if tries == tries_max:
                    return best
                tries += 1
                report = run(masks.format(failed.seed.partition("/")[0], left))
                if report.checker == failed.checker:
                    best = report
    return best


def _wholes(report: Report) -> Iterator[frozenset[str]]:
    """Yields the whole parts, the last ones first: they matter least."""
    for part in reversed(report.parts):
        if "." not in part:
            yield frozenset((part,))


def _operations(report: Report) -> Iterator[frozenset[str]]:
    """Yields the operations to leave out: first the later half, then the earlier one, and so on down to single ones."""
    parts = [part for part in report.parts if "." in part]
    size = (len(parts) + 1) // 2
    while size:
        for start in reversed(range(0, len(parts), size)):
            yield frozenset(parts[start : start + size])
        size //= 2
