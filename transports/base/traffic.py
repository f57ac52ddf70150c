"""Counters of file transfers, requests and bytes, in and out, for each server, of requests passed on to other replicas,
and of HTTP responses."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from ...core.base.events import Cause, End


class Direction(enum.Enum):
    """The direction of a file: IN from the client, OUT to it."""

    IN = "in"
    OUT = "out"


class Outcome(enum.Enum):
    """The outcome of a transfer."""

    DONE = "done"  # the whole file was received or sent
    REFUSED = "refused"  # answered with an error
    BROKEN = "broken"  # the client or the gateway broke it off


class Forwarded(enum.Enum):
    """The outcome of a request that was to be passed on to another replica."""

    ANSWERED = "answered"  # by that replica
    GONE = "gone"  # there is no such replica any more: answered here
    UNAVAILABLE = "unavailable"  # it cannot be reached: the client is to send the request again
    LOST = "lost"  # nobody knows whether it was carried out
    BROKEN = "broken"  # its response has broken off
    LEFT = "left"  # the client has hung up


class TransferKind(NamedTuple):
    """The labels that transfers are counted by."""

    server: str
    direction: Direction


class Counts:
    """Totals since the listener began, read by the metrics page.

    Attributes:
        under_way: transfers in progress.
        size_bytes: bytes of files moved, however the request ended.
        over: requests that have ended, by outcome.
        forwards: requests that were to be passed on to other replicas and have ended, by outcome.
        responses: HTTP responses that have begun, by area of the path (`RoutedHead.area`) and status.
    """

    def __init__(self) -> None:
        self.under_way: Counter[TransferKind] = Counter()
        self.size_bytes: Counter[TransferKind] = Counter()
        self.over: Counter[tuple[TransferKind, Outcome]] = Counter()
        self.forwards: Counter[Forwarded] = Counter()
        self.responses: Counter[tuple[str, int]] = Counter()


class Traffic:
    """The counters of one request. It counts as under way from the first byte of a file, and as over when it ends.

    Args:
        way: server and direction; None for a request that moves no file, which is not counted.

    Attributes:
        status: the HTTP status of its response; 0 before.
    """

    def __init__(self, counts: Counts, way: TransferKind | None) -> None:
        self.status = 0
        self._counts = counts
        self._way = way
        self._is_under_way = False

    def begin(self) -> None:
        """Counts the transfer as under way."""
        if self._way is not None:
            self._is_under_way = True
            self._counts.under_way[self._way] += 1

    def note(self, size_bytes: int) -> None:
        """Counts `size_bytes` more of the file."""
        if self._way is not None:
            self._counts.size_bytes[self._way] += size_bytes

    def leave(self) -> None:
        """Counts the request no more: another replica answers it."""
        self._way = None

    def end(self, cause: Cause) -> None:
        """Counts the request as over. Called once."""
        if self._way is None:
            return
        if self._is_under_way:
            self._counts.under_way[self._way] -= 1
        is_broken = cause.end not in (End.DONE, End.REFUSED)
        outcome = Outcome.BROKEN if is_broken else Outcome.REFUSED if self.status >= 400 else Outcome.DONE
        self._counts.over[self._way, outcome] += 1
