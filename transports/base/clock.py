"""The event loop's own clock, looked up once instead of at every call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio


def loop_clock() -> Callable[[], float]:
    """Returns the clock behind `anyio.current_time`: monotonic seconds of the running event loop, asyncio's or trio's.

    Calling through anyio looks the backend up each time, at ten times the cost of the clock itself.
    """
    try:
        return asyncio.get_running_loop().time
    except RuntimeError:  # trio: its clock may be one of a test
        return anyio.current_time
