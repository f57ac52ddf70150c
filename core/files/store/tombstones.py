"""What became of files that are gone, for a while: whoever still names one is told why."""

from __future__ import annotations

import enum
from typing import NamedTuple

from .records import FileKind


class Ending(enum.Enum):
    EXPIRED = "expired"
    EVICTED = "evicted"
    DELETED = "deleted"  # by an operator
    CLOSED = "closed"  # with its session


_PHRASES = {
    Ending.EXPIRED: "it expired {ago}",
    Ending.EVICTED: "it made room for newer files {ago}",
    Ending.DELETED: "an operator deleted it {ago}",
    Ending.CLOSED: "it ended with its session {ago}",
}


class Owner(NamedTuple):
    """Whose a file is.

    Attributes:
        is_bearer: of a client without sessions.
        is_restored: an earlier run stored it.
    """

    server: str
    principal: str
    sid: str
    is_bearer: bool
    is_restored: bool


class _Tomb(NamedTuple):
    owner: Owner
    why: Ending
    at: float


class Tombs:
    """At most `tombs_max`, each read for `ttl_s`; beyond that the oldest is forgotten."""

    def __init__(self, *, tombs_max: int, ttl_s: float) -> None:
        self._max = tombs_max
        self._ttl_s = ttl_s
        self._tombs: dict[tuple[FileKind, str, str], _Tomb] = {}

    def __len__(self) -> int:
        return len(self._tombs)

    def bury(self, kind: FileKind, id: str, owner: Owner, why: Ending, now: float) -> None:
        self._tombs.pop((kind, owner.sid, id), None)
        self._tombs[kind, owner.sid, id] = _Tomb(owner, why, now)
        while len(self._tombs) > self._max:
            del self._tombs[next(iter(self._tombs))]

    def find(self, kind: FileKind, sid: str, id: str, now: float) -> tuple[Owner, str] | None:
        """Whose it was, and what became of it, as the end of a sentence."""
        tomb = self._tombs.get((kind, sid, id))
        if tomb is None or tomb.at + self._ttl_s <= now:
            return None
        return tomb.owner, _PHRASES[tomb.why].format(ago=_ago(now - tomb.at))


def _ago(seconds: float) -> str:
    if seconds < 1:
        return "just now"
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{int(seconds)} second{'s' if seconds >= 2 else ''} ago"
