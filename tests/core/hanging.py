"""An end for searches that may hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

HANGS_S = 60
"""A linear search of the texts of these tests takes a second at most, and any other hours."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raises AssertionError in what takes longer than `HANGS_S`. Python's `re` looks for signals while it searches."""

    def give_up(number: int, frame: object) -> None:
        raise AssertionError("the search hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
