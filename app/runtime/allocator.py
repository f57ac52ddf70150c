"""Returns free memory of the C library's allocator to the system.

The GNU C library keeps freed blocks in its heap. It returns only the end of the heap by itself, so one small block that
is in use keeps all free memory below it resident: 100 MiB and more after a few messages of the largest size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

INTERVAL_S: Final = 5.0
"""Time between two measurements of the resident memory. One costs some microseconds."""
GROWTH_BYTES: Final = 4 * 1024 * 1024
"""Growth of the process from which memory is returned. That takes some milliseconds for each 100 MiB of heap."""
PAUSE_MAX: Final = 6
"""Most measurements between two tries to return memory, while tries return little: more may be free later."""
COST_MAX: Final = 0.001
"""Largest share of the time that is spent on tries which return little. A try on a heap of many GiB takes long."""
STATM: Final = Path("/proc/self/statm")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def trim_of_libc() -> Callable[[int], int] | None:
    """Returns the function `malloc_trim` of the GNU C library; None where the C library is another one."""
    import ctypes  # only a command that serves pays for loading it

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim if STATM.exists() else None


async def return_free_memory() -> None:
    """Returns free memory to the system while the process is larger than it was. Never returns itself.

    A process that stays large after a try may use the memory now and free it later. So tries go on at growing
    intervals, as long as the process is larger than at its smallest.
    """
    trim = trim_of_libc()
    if trim is None:
        await anyio.sleep_forever()
        return
    smallest = kept = resident_bytes()
    pause = left = 1
    while True:
        await anyio.sleep(INTERVAL_S)
        size = resident_bytes()
        if size > kept + GROWTH_BYTES:
            pause = left = 1
        left -= 1
        if size > smallest + GROWTH_BYTES and left <= 0:
            began_at = time.monotonic()
            trim(0)
            cost_s = time.monotonic() - began_at
            kept = resident_bytes()
            pause = 1 if kept < size - GROWTH_BYTES else min(pause + 1, PAUSE_MAX)
            left = pause if pause == 1 else max(pause, int(cost_s / COST_MAX / INTERVAL_S))
        smallest = min(smallest, size)


def resident_bytes() -> int:
    return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
