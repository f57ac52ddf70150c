"""The event loop's own clock, found once instead of at every look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio


def loop_clock() -> Callable[[], float]:
    """What `anyio.current_time` would ask: monotonic seconds of the running event loop, whichever it is.

    Asking through anyio finds the backend anew each time, at ten times the cost of the clock itself.
    """
    try:
        return asyncio.get_running_loop().time
    except RuntimeError:  # trio, whose clock may be a test's
        return anyio.current_time
