"""A test of the measurement of the event loop."""

from __future__ import annotations

import time

import anyio
import pytest
from isthmus.app.telemetry import loop_lag
from isthmus.app.telemetry.histogram import STEPS_S, Histogram

pytestmark = pytest.mark.anyio


class Seen(Histogram):
    """A histogram that tells of each duration."""

    def __init__(self) -> None:
        super().__init__(STEPS_S)
        self.observed = anyio.Event()

    def observe(self, duration_s: float) -> None:
        super().observe(duration_s)
        self.observed.set()
        self.observed = anyio.Event()


async def test_a_loop_that_is_busy_is_seen_to_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "PERIOD_S", 0.001)
    lag = Seen()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop_lag.measure, lag)
            await lag.observed.wait()  # it has begun to wait for the next time
            before_s = lag.sum_s
            time.sleep(0.12)  # noqa: ASYNC251 - this is the point
            await lag.observed.wait()
            tasks.cancel_scope.cancel()
    assert lag.sum_s - before_s > 0.1
