"""Which parts of a file a `Range` header asks for (RFC 9110, 14)."""

from __future__ import annotations

import re
from typing import Final

PARTS_MAX: Final = 16
"""Ranges of one request. Readers of PDF ask for a few; who asks for more gets the whole."""
HEADER_MAX_BYTES: Final = 1024

_UNIT: Final = re.compile(rb"bytes[ \t]*=", re.IGNORECASE)
_RANGE: Final = re.compile(rb"([0-9]{0,18})-([0-9]{0,18})")


def parse_ranges(value: bytes, size: int) -> list[range] | None:
    """The ranges to send of a file of `size` bytes: none of them empty, none touching another, in the order asked for.

    Returns:
        None where the header is not to be heeded, and the whole file is sent: it is malformed, in another unit, or has
        more than `PARTS_MAX` ranges. An empty list where nothing that is asked for exists.
    """
    unit = _UNIT.match(value)
    if unit is None or len(value) > HEADER_MAX_BYTES:
        return None
    items = [item.strip(b" \t") for item in value[unit.end() :].split(b",")]
    items = [item for item in items if item]  # RFC 9110, 5.6.1: empty elements of a list do not count
    if not 1 <= len(items) <= PARTS_MAX:
        return None
    found: list[range] = []
    for item in items:
        matched = _RANGE.fullmatch(item)
        if matched is None or item == b"-":
            return None
        first, last = matched[1], matched[2]
        if first and last and int(last) < int(first):
            return None
        if first:
            one = range(min(int(first), size), min(int(last) + 1, size) if last else size)
        else:
            one = range(max(0, size - int(last)), size)
        if one:
            _add(found, one)
    return found


def _add(found: list[range], one: range) -> None:
    """Put in a range, with what it touches become one, where the first of them stood."""
    at = len(found)
    for i in range(len(found) - 1, -1, -1):
        other = found[i]
        if other.start <= one.stop and one.start <= other.stop:
            one = range(min(one.start, other.start), max(one.stop, other.stop))
            del found[i]
            at = i
    found.insert(at, one)
