"""The choice of files that are evicted to make room for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...base.plan import Eviction
from .entry import StoredEntry


def choose(
    entries: Iterable[StoredEntry], missing_bytes: int, order: Eviction, is_live: Callable[[str], bool]
) -> list[StoredEntry]:
    """Returns files that together have at least `missing_bytes`; none if all candidates together have less.

    Candidates are taken least recently used first, all of sessions that are over before those of live ones, and of
    these all of one kind before the other (`order`). A file is spared if those taken after it turn out to be large
    enough without it; the one taken last is spared first.

    Args:
        is_live: returns True if a session of that public name is open.
    """
    candidates = sorted(entries, key=lambda entry: (is_live(entry.record.sid), _rank(entry, order), entry.used))
    chosen: list[StoredEntry] = []
    surplus = -missing_bytes
    for entry in candidates:
        if surplus >= 0:
            break
        if entry.record.size_bytes:  # an empty file frees nothing
            chosen.append(entry)
            surplus += entry.record.size_bytes
    if surplus < 0:
        return []
    for entry in reversed(chosen.copy()):
        if entry.record.size_bytes <= surplus:
            chosen.remove(entry)
            surplus -= entry.record.size_bytes
    return chosen


def _rank(entry: StoredEntry, order: Eviction) -> int:
    first = "artifact" if order is Eviction.ARTIFACTS_FIRST else "upload"
    return 0 if entry.record.kind == first else 1
