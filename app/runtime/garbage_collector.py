"""Thresholds of the garbage collector of cycles.

A proxy makes hardly any garbage cycles, and most of its objects live as long as their sessions. A collection visits all
of them, so calls cost more the more sessions are open. With 4,000 idle sessions, Python's own thresholds cost a quarter
of the CPU time of a call.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (10_000, 20, 50)
"""Arguments of `gc.set_threshold`, instead of 700, 10 and 10: net allocations before a collection of the youngest
generation, and collections of each generation before the next older one. 10,000 objects are some MB at most."""


def collect_rarely() -> None:
    """Exempts all present objects, mostly modules, from collection, and makes later collections rarer."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
