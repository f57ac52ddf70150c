"""The smallest world in which the same goes wrong: parts are left out of it as long as the same checker fails.

First whole clients, servers and faults, one by one, then operations by halves, quarters, and so on; and again from the
beginning, until nothing can be left out any more. A world is made again for each try, so tries are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import masks
from simulation import Report, run_world

TRIES_MAX: Final = 400
"""A world takes a fraction of a second, and less as it shrinks: a minute or two in all."""


def shrink(failed: Report, *, tries_max: int = TRIES_MAX, run: Callable[[str], Report] = run_world) -> Report:
    """What is left of a world that went wrong, after at most so many tries. Its seed is the name of what is left."""
    best, tries, parts = failed, 0, -1
    while len(best.parts) != parts:
        parts = len(best.parts)
        for step in (_wholes, _operations):
            for group in step(best):
                left = [part for part in best.parts if part not in group and part.partition(".")[0] not in group]
                if len(left) == len(best.parts):
                    continue  # went with what was left out meanwhile
                if tries == tries_max:
                    return best
                tries += 1
                report = run(masks.format(failed.seed.partition("/")[0], left))
                if report.checker == failed.checker:
                    best = report
    return best


def _wholes(report: Report) -> Iterator[frozenset[str]]:
    """Those that come last first: they matter least."""
    for part in reversed(report.parts):
        if "." not in part:
            yield frozenset((part,))


def _operations(report: Report) -> Iterator[frozenset[str]]:
    """Half of what is left, the later half first, and so on to single ones."""
    parts = [part for part in report.parts if "." in part]
    size = (len(parts) + 1) // 2
    while size:
        for start in reversed(range(0, len(parts), size)):
            yield frozenset(parts[start : start + size])
        size //= 2
