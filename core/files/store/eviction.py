"""Which files make room for others."""

from __future__ import annotations

from collections.abc import Iterable

from ...base.plan import Eviction
from .entry import Shelved


def choose(entries: Iterable[Shelved], missing_bytes: int, order: Eviction) -> list[Shelved]:
    """Files that are `missing_bytes` together, or more: none, if all of them are less.

    The least recently used first, all of one kind before the other. What would go in vain, since one that is taken
    after it is large enough without it, is spared: the latest used first.
    """
    candidates = sorted(entries, key=lambda entry: (_rank(entry, order), entry.used))
    chosen: list[Shelved] = []
    surplus = -missing_bytes
    for entry in candidates:
        if surplus >= 0:
            break
        if entry.record.size_bytes:
            chosen.append(entry)
            surplus += entry.record.size_bytes
    if surplus < 0:
        return []
    for entry in reversed(chosen.copy()):
        if entry.record.size_bytes <= surplus:
            chosen.remove(entry)
            surplus -= entry.record.size_bytes
    return chosen


def _rank(entry: Shelved, order: Eviction) -> int:
    first = "artifact" if order is Eviction.ARTIFACTS_FIRST else "upload"
    return 0 if entry.record.kind == first else 1
