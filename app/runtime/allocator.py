"""Free memory of the C library's allocator, which goes back to the system.

The GNU C library keeps freed blocks in its heap, and only the end of the heap goes back by itself: one small block that
lives on keeps all below it resident. After a few messages of the longest kind that is 100 MiB and more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

INTERVAL_S: Final = 5.0
"""Time between two looks at the resident memory. A look costs some microseconds."""
GROWTH_BYTES: Final = 4 * 1024 * 1024
"""Growth since the last time that makes returning memory worth its time: some milliseconds for each 100 MiB of heap."""
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
    """Returns free memory to the system whenever the process has grown. Never returns itself."""
    trim = trim_of_libc()
    if trim is None:
        await anyio.sleep_forever()
        return
    kept = resident_bytes()
    while True:
        await anyio.sleep(INTERVAL_S)
        if resident_bytes() > kept + GROWTH_BYTES:
            trim(0)
            kept = resident_bytes()
        else:
            kept = min(kept, resident_bytes())


def resident_bytes() -> int:
    return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
