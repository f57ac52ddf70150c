"""SIGTERM, SIGINT and SIGHUP: the first signal stops a run in order, a second one ends it at once. If the first one
has the run wait before it drains, the second one ends that, and the third one the run.

SIGHUP has another meaning for work that can read its files again: then it does only that, unless the terminal of this
process was closed.

Supervisors signal a whole process group, and some tools signal a process and then its group. So a signal within
`SAME_SIGNAL_S` of the first counts as a repetition and is ignored.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import anyio
from anyio import to_thread

SAME_SIGNAL_S: Final = 1.0

_log: Final = logging.getLogger("isthmus.server")


class Stop:
    """The reaction to the first signal, which the running work may change.

    Attributes:
        order: called at the first signal; cancels the work unless it is replaced.
        reload: called in a thread, at SIGHUP; None: SIGHUP stops the work.
        hurry: called at a second signal; returns True if it has shortened the stop, which then goes on in order.
        at_once: called before a second signal ends the process.
    """

    def __init__(self, order: Callable[[], None]) -> None:
        self.order = order
        self.reload: Callable[[], None] | None = None
        self.hurry: Callable[[], bool] = lambda: False
        self.at_once: Callable[[], None] = lambda: None


async def stoppable(work: Callable[[Stop], Awaitable[int]], if_stopped: int) -> int:
    """Runs `work`, with signals handled from before it begins. Returns its result, or `if_stopped` if cancelled."""
    code = if_stopped
    with anyio.open_signal_receiver(*_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                stop = Stop(scope.cancel)
                tasks.start_soon(_handle, signals, stop)
                code = await work(stop)
            tasks.cancel_scope.cancel()
    return code


def _signals() -> list[signal.Signals]:
    """Returns the signals to handle: SIGHUP, sent when a terminal closes, only if it is not ignored, as under nohup."""
    may_hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if may_hang_up else [])]


async def _handle(signals: AsyncIterator[signal.Signals], stop: Stop) -> None:
    first_at: float | None = None
    had_terminal = _has_terminal()
    async for number in signals:
        is_closed = had_terminal and not _has_terminal()
        if number == signal.SIGHUP and stop.reload is not None and first_at is None and not is_closed:
            await to_thread.run_sync(stop.reload)
        elif first_at is None:
            if number == signal.SIGHUP:
                _log.info("got SIGHUP, and there are no files to read again: stopping")
            first_at = anyio.current_time()
            stop.order()
        elif anyio.current_time() - first_at >= SAME_SIGNAL_S:
            if stop.hurry():
                first_at = anyio.current_time()
            else:
                stop.at_once()
                end_by(number)


def _has_terminal() -> bool:
    """True if this process has a controlling terminal, which SIGHUP would be about."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def end_by(number: signal.Signals) -> None:
    """Ends this process by the signal, as a parent that waits for it expects.

    Nothing is cleaned up: the orphan guard ends the child processes, and the next run removes the temporary folder.
    """
    for each in {*_signals(), number}:
        signal.signal(each, signal.SIG_DFL)
    os.kill(os.getpid(), number)
