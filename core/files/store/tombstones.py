"""Tombstones of files that are gone: for a while, a client that still names one is told why."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ...state.records import FileKind
from .owners import Owner


class Ending(enum.Enum):
    EXPIRED = "expired"
    EVICTED = "evicted"
    DELETED = "deleted"  # by an operator
    CLOSED = "closed"  # with its session
    REMOVED = "removed"  # by another replica


_PHRASES = {
    Ending.EXPIRED: "it expired {ago}",
    Ending.EVICTED: "it made room for newer files {ago}",
    Ending.DELETED: "an operator deleted it {ago}",
    Ending.CLOSED: "it ended with its session {ago}",
    Ending.REMOVED: "another replica removed it {ago}",
}


class _Tombstone(NamedTuple):
    owner: Owner
    why: Ending
    at: float


class Tombstones:
    """A bounded table of tombstones: at most `tombstones_max`, each readable for `ttl_s`. At the bound the oldest is
    dropped."""

    def __init__(self, *, tombstones_max: int, ttl_s: float) -> None:
        self._max = tombstones_max
        self._ttl_s = ttl_s
        self._tombstones: dict[tuple[FileKind, str, str], _Tombstone] = {}

    def __len__(self) -> int:
        return len(self._tombstones)

    def bury(self, kind: FileKind, id: str, owner: Owner, why: Ending, now: float) -> None:
        self._tombstones.pop((kind, owner.sid, id), None)
        self._tombstones[kind, owner.sid, id] = _Tombstone(owner, why, now)
        while len(self._tombstones) > self._max:
            del self._tombstones[next(iter(self._tombstones))]

    def find(self, kind: FileKind, sid: str, id: str, now: float) -> tuple[Owner, str] | None:
        """Returns the former owner, and what became of the file as the end of a sentence."""
        tombstone = self._tombstones.get((kind, sid, id))
        if tombstone is None or tombstone.at + self._ttl_s <= now:
            return None
        return tombstone.owner, _PHRASES[tombstone.why].format(ago=_ago(now - tombstone.at))


def _ago(seconds: float) -> str:
    if seconds < 1:
        return "just now"
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{int(seconds)} second{'s' if seconds >= 2 else ''} ago"
