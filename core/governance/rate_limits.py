"""The rates of calls, as buckets of tokens.

A bucket is full at first. Each call takes a token, and tokens come back evenly: `calls` of them in `per_s`. A call for
which there is no token is refused, and takes nothing. A call that several limits cover needs a token of each.

All that is kept of a bucket is the time at which it is full again. That time is an integer, in nanoseconds times
`calls`: a call moves it by the nanoseconds of `per_s`. So no error of rounding adds up, however long a gateway runs.

A bucket that is full is forgotten, as a new one is full, too. No other bucket is forgotten: at the limit of the table,
callers without a bucket are refused. So nobody can make more calls because of what others do. The buckets that all
callers share are as many as there are limits, and are always there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ..base.governance import RateLimit
from ..base.timers import Timers

SECOND_NS: Final = 1_000_000_000

Key = tuple[str, int, str | None]
"""The bucket of a server's limit: its place among the limits, and the caller; None for that of all callers."""


class Refused(NamedTuple):
    """A call that was refused.

    Attributes:
        limit: the limit that was reached; None if there is no room for the caller's bucket.
        wait_s: whole seconds after which the call would pass, if no others are made.
        is_first: no call was refused for that reason since the last one that passed.
    """

    limit: RateLimit | None
    wait_s: int
    is_first: bool


class RateLimits:
    """The buckets of all servers.

    Args:
        limits: the limits of each server.
        buckets_max: the most buckets of callers.
    """

    def __init__(self, limits: Mapping[str, Sequence[RateLimit]], *, buckets_max: int) -> None:
        self._limits = limits
        self._buckets_max = buckets_max
        self._full_at: dict[Key, int] = {}
        self._expiry: Timers[Key] = Timers()  # of the buckets of callers
        self._refused: set[Key] = set()  # the buckets for which a call was refused, since they last gave a token
        self._is_short = False  # a caller was refused for lack of room, since one last had it

    def __len__(self) -> int:
        """The number of buckets of callers."""
        return len(self._expiry)

    def take(self, server: str, tool: str, caller: str, now: float) -> Refused | None:
        """Takes what a call needs. Returns None if it may pass; else nothing was taken.

        Args:
            caller: a name that no other caller has.
            now: seconds on the caller's monotonic clock.
        """
        while (key := self._expiry.take_due(now)) is not None:
            del self._full_at[key]
            self._refused.discard(key)
        now_ns = int(now * SECOND_NS)
        taken: dict[Key, int] = {}
        longest_ns, reached, reason = 0, None, None
        for place, limit in enumerate(self._limits[server]):
            if not limit.covers(tool):
                continue
            key = server, place, caller if limit.is_for_each_caller else None
            at, token = now_ns * limit.calls, _period_ns(limit)
            taken[key] = full_at = max(self._full_at.get(key, at), at) + token
            wait_ns = -((limit.calls * token + at - full_at) // limit.calls)
            if wait_ns > longest_ns:
                longest_ns, reached, reason = wait_ns, limit, key
        if reason is not None:
            is_first = reason not in self._refused
            self._refused.add(reason)
            return Refused(reached, -(-longest_ns // SECOND_NS), is_first)
        added = sum(key[2] is not None and key not in self._full_at for key in taken)
        if added and len(self._expiry) + added > self._buckets_max:
            is_first, self._is_short = not self._is_short, True
            head = self._expiry.next_timeout()
            return Refused(None, 1 if head is None else math.ceil(head.at - now), is_first)
        if added:
            self._is_short = False
        for key, full_at in taken.items():
            self._full_at[key] = full_at
            self._refused.discard(key)
            if key[2] is not None:
                self._expiry.set(key, full_at / self._limits[server][key[1]].calls / SECOND_NS, "rate limit")
        return None


def _period_ns(limit: RateLimit) -> int:
    return max(1, round(limit.per_s * SECOND_NS))
