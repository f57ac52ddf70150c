"""Durations as people write them: `90s`, `15m`, `1.5h` or `7d`."""

from __future__ import annotations

import re
from typing import Final

PATTERN: Final = r"^[0-9]{1,9}(\.[0-9]{1,3})?[smhd]$"
"""The whole grammar, as a regular expression that means the same in Python and in JSON Schema."""

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Returns the seconds that `text` means.

    Raises:
        ValueError: `text` is no duration.
    """
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no time, expected one such as 90s, 15m, 2h or 7d")
    return float(matched[1]) * _UNITS_S[matched[2]]
