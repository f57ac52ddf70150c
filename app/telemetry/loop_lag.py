"""Measures how late the event loop is: everything that is to happen waits as long."""

from __future__ import annotations

import time
from typing import Final

import anyio

from .histogram import Histogram

PERIOD_S: Final = 0.25
"""Seconds between two measurements: a loop that is busy for longer is always seen, and waking up costs little."""


async def measure(lag: Histogram) -> None:
    """Measures until cancelled."""
    while True:
        due_at = time.monotonic() + PERIOD_S
        await anyio.sleep(PERIOD_S)
        lag.observe(max(0.0, time.monotonic() - due_at))
