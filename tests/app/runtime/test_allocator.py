"""Tests of the memory that goes back to the system, in a process whose heap no other test has used."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import anyio
import pytest
from isthmus.app.runtime import allocator

MARGIN_MIB: Final = 8
SCRIPT: Final = """
import sys
import anyio.lowlevel
from isthmus.app.runtime import allocator

allocator.INTERVAL_S = 0.001

def resident_mib():
    return allocator.resident_bytes() >> 20

async def main():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(allocator.return_free_memory)
        await anyio.lowlevel.checkpoint()
        before = resident_mib()
        pieces, pins = [], []
        for size in range(60_000, 60_500):  # as a message of 30 MB, which arrives in pieces
            pieces.append(b"x" * size)
            pins.append(b"x" * 5000)  # lies above them
        del pieces
        freed = resident_mib()
        with anyio.move_on_after(30):
            while resident_mib() > before + int(sys.argv[1]):
                await anyio.sleep(0.001)
        print(freed - before, resident_mib() - before)
        tasks.cancel_scope.cancel()

anyio.run(main)
"""


@pytest.mark.skipif(allocator.trim_of_libc() is None, reason="needs the GNU C library")
def test_memory_of_freed_messages_leaves_the_process() -> None:
    command = [sys.executable, "-c", SCRIPT, str(MARGIN_MIB)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    freed, later = map(int, done.stdout.split())
    assert freed > 2 * MARGIN_MIB, "the allocator returns such memory by itself: the module is not needed"
    assert later <= MARGIN_MIB


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sizes", "trims"),
    [
        ([0, 4, 4, 4], []),
        ([0, 5, 5], [1]),  # grown by more than the limit
        ([0, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50], [1, 3, 6, 10]),  # nothing is free: ever more rarely
        ([0, 50, 50, 50, 60, 60, 60, 60], [1, 3, 4, 6]),  # further growth
        ([0, 50, 50, 50, 4, 4, 4, 4, 4], [1, 3]),  # it shrinks by itself
        ([9, 10, 5, 9, 10, 10], [4]),  # the smallest size counts
    ],
)
async def test_memory_is_returned_while_the_process_is_larger_than_it_was(
    sizes: list[int], trims: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes in MiB at the start and at each look; numbers of the looks at which memory is returned."""
    tried: list[int] = []
    looks = -1

    def resident_bytes() -> int:
        return sizes[looks] << 20

    async def look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == len(sizes):
            raise TimeoutError

    looks = 0
    monkeypatch.setattr(allocator, "resident_bytes", resident_bytes)
    monkeypatch.setattr(allocator, "trim_of_libc", lambda: lambda _: tried.append(looks))
    monkeypatch.setattr(anyio, "sleep", look)
    with pytest.raises(TimeoutError):
        await allocator.return_free_memory()
    assert tried == trims


@pytest.mark.anyio
async def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "trim_of_libc", lambda: None)
    monkeypatch.setattr(allocator, "resident_bytes", lambda: pytest.fail("measured for nothing"))
    with anyio.move_on_after(0.01) as scope:
        await allocator.return_free_memory()
    assert scope.cancelled_caught
