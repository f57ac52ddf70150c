"""What is counted of files on their way: requests and bytes, in and out, for each server."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from ...core.base.effects import Cause, End


class Direction(enum.Enum):
    IN = "in"
    OUT = "out"


class Outcome(enum.Enum):
    DONE = "done"  # all of it was taken in, or given out
    REFUSED = "refused"  # answered with an error
    BROKEN = "broken"  # the client, or we, did not see it through


class Way(NamedTuple):
    server: str
    direction: Direction


class Counts:
    """Since the listener began. Read by whoever shows it.

    Attributes:
        under_way: requests that are going on.
        size_bytes: of files, however the request ended.
        over: requests that have ended.
    """

    def __init__(self) -> None:
        self.under_way: Counter[Way] = Counter()
        self.size_bytes: Counter[Way] = Counter()
        self.over: Counter[tuple[Way, Outcome]] = Counter()


class Traffic:
    """One request. It is counted from its first byte of a file, or else when it is over.

    Args:
        way: None for a request that moves no file, which is not counted.

    Attributes:
        status: what it was answered with; 0 before.
    """

    def __init__(self, counts: Counts, way: Way | None) -> None:
        self.status = 0
        self._counts = counts
        self._way = way
        self._is_under_way = False

    def begin(self) -> None:
        """Its file is on its way from now on."""
        if self._way is not None:
            self._is_under_way = True
            self._counts.under_way[self._way] += 1

    def note(self, size_bytes: int) -> None:
        """So much more of the file has come or gone."""
        if self._way is not None:
            self._counts.size_bytes[self._way] += size_bytes

    def end(self, cause: Cause) -> None:
        """It is over. Called once."""
        if self._way is None:
            return
        if self._is_under_way:
            self._counts.under_way[self._way] -= 1
        is_broken = cause.end not in (End.DONE, End.REFUSED)
        outcome = Outcome.BROKEN if is_broken else Outcome.REFUSED if self.status >= 400 else Outcome.DONE
        self._counts.over[self._way, outcome] += 1
