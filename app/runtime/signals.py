"""SIGTERM, SIGINT and SIGHUP: the first asks a run to stop in order, a second one ends it at once.

Supervisors signal a whole process group, and some tools signal a process and then its group: what arrives within
`SAME_SIGNAL_S` of the first is that one again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import anyio

SAME_SIGNAL_S: Final = 1.0


class Stop:
    """What signals do to a run; the work may change it while it is under way.

    Attributes:
        order: called at the first signal; it cancels the work, unless something else is put here.
    """

    def __init__(self, order: Callable[[], None]) -> None:
        self.order = order


async def stoppable(work: Callable[[Stop], Awaitable[int]], if_stopped: int) -> int:
    """What `work` returns, or `if_stopped` if a signal cancelled it. Signals are heard before it begins."""
    code = if_stopped
    with anyio.open_signal_receiver(*_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                stop = Stop(scope.cancel)
                tasks.start_soon(_hear, signals, stop)
                code = await work(stop)
            tasks.cancel_scope.cancel()
    return code


def _signals() -> list[signal.Signals]:
    """A closed terminal ends a run as well, unless it was started to outlive it, as by nohup."""
    may_hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if may_hang_up else [])]


async def _hear(signals: AsyncIterator[signal.Signals], stop: Stop) -> None:
    first_at: float | None = None
    async for number in signals:
        if first_at is None:
            first_at = anyio.current_time()
            stop.order()
        elif anyio.current_time() - first_at >= SAME_SIGNAL_S:
            _die(number)


def _die(number: signal.Signals) -> None:
    """By the signal, as whoever waits for this process expects. The warden then ends its children, and the next run
    removes its temporary folder."""
    for each in _signals():
        signal.signal(each, signal.SIG_DFL)
    os.kill(os.getpid(), number)
