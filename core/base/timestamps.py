"""Conversion between Unix time and ISO 8601 text."""

from __future__ import annotations

import datetime
from typing import Final

_LATEST_UNIX: Final = 253402300799  # the last second of the year 9999
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def format_time(at_unix: float) -> str:
    """Returns the time in UTC with milliseconds. Times before 1970 are written as its first second, times after 9999 as
    its last."""
    at_ms = round(min(max(at_unix, 0.0), _LATEST_UNIX) * 1000)
    at = _EPOCH + datetime.timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float | None:
    """Returns the Unix time that a text names; None if it names none. A text without an offset is taken for UTC."""
    try:
        at = datetime.datetime.fromisoformat(text.upper())
        return ((at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None
