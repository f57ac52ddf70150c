"""Parses the `Range` header (RFC 9110, 14)."""

from __future__ import annotations

import re
from typing import Final

PARTS_MAX: Final = 16
"""The most ranges of one request. PDF viewers ask for a few. At it: the header is ignored."""
HEADER_MAX_BYTES: Final = 1024
"""The longest `Range` that is read: sixteen ranges of any numbers fit. At it: the header is ignored."""

_UNIT: Final = re.compile(rb"bytes[ \t]*=", re.IGNORECASE)
_RANGE: Final = re.compile(rb"([0-9]{0,18})-([0-9]{0,18})")


def parse_ranges(value: bytes, size: int) -> list[range] | None:
    """Returns the ranges to send of a file of `size` bytes, in the order requested. None is empty or touches another.

    Returns:
        The ranges. An empty list if no requested byte exists. None if the header is to be ignored and the whole file
        sent: the header is malformed, over `HEADER_MAX_BYTES`, in another unit, or has more than `PARTS_MAX` ranges.
    """
    unit = _UNIT.match(value)
    if unit is None or len(value) > HEADER_MAX_BYTES:
        return None
    items = [item.strip(b" \t") for item in value[unit.end() :].split(b",")]
    items = [item for item in items if item]  # RFC 9110, 5.6.1: a recipient ignores empty list elements
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
    """Adds a range, merged with all ranges that it touches, at the place of the first of them."""
    at = len(found)
    for i in range(len(found) - 1, -1, -1):
        other = found[i]
        if other.start <= one.stop and one.start <= other.stop:
            one = range(min(one.start, other.start), max(one.stop, other.stop))
            del found[i]
            at = i
    found.insert(at, one)
