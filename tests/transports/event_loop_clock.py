"""The event loop's clock, for tests of time limits: it can be set forward, so that no limit has to be short."""

from __future__ import annotations

import asyncio

import anyio.lowlevel
import pytest
import sniffio


class EventLoopClock:
    """Takes the place of the running event loop's clock, before anything asks that for the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        if sniffio.current_async_library() == "trio":
            import trio

            clock = type(trio.lowlevel.current_clock())
            trio_time = clock.current_time
            monkeypatch.setattr(clock, "current_time", lambda self_: trio_time(self_) + self._ahead_s)
        else:
            loop = asyncio.get_running_loop()
            loop_time = loop.time
            monkeypatch.setattr(loop, "time", lambda: loop_time() + self._ahead_s)

    async def set_forward(self, seconds: float) -> None:
        """Returns when everything that is due by then is done."""
        self._ahead_s += seconds
        await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
