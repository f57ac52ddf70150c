"""Tests of garbage collection: reference cycles are found although it runs rarely."""

from __future__ import annotations

import gc
import weakref

from isthmus.app.runtime.garbage_collector import THRESHOLDS, collect_rarely


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_are_found_in_time_though_rarely() -> None:
    before = gc.get_threshold()
    was_on = gc.isenabled()
    gc.enable()
    try:
        collect_rarely()
        assert gc.get_freeze_count() > 0
        left = [weakref.ref(Cycle()) for _ in range(3 * THRESHOLDS[0])]
        assert sum(one() is not None for one in left) <= THRESHOLDS[0] + 100
        assert left[0]() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        if not was_on:
            gc.disable()
