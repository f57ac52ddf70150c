"""Dates in HTTP headers (RFC 9110, 5.6.7)."""

from __future__ import annotations

import datetime
import re
from typing import Final

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE: Final = re.compile(r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT")
_LATEST_UNIX: Final = 253_402_300_799
"""The last second of the year 9999, the latest that a date can express."""


def format_date(at_unix: float) -> str:
    """Formats a time in seconds since 1970 as an IMF-fixdate, rounded down to the second."""
    at = datetime.datetime.fromtimestamp(min(max(int(at_unix), 0), _LATEST_UNIX), tz=datetime.UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day}, {at.day:02} {month} {at.year:04} {at.hour:02}:{at.minute:02}:{at.second:02} GMT"


def parse_date(text: str) -> int | None:
    """Parses an IMF-fixdate; None for any other text. The obsolete forms are not read, since clients repeat the date
    that they were sent."""
    matched = _DATE.fullmatch(text)
    if matched is None or matched[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(matched[group]) for group in (1, 3, 4, 5, 6))
    try:
        at = datetime.datetime(year, _MONTHS.index(matched[2]) + 1, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return None
    return int(at.timestamp())
