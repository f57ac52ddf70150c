"""Byte sizes: parsed from `10Mi`, `5MB`, `1.5GiB` or `512k`, and formatted for people."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

PATTERN: Final = r"^[0-9]{1,15}(\.[0-9]{1,9})? ?([kKmMgGtT]i?)?[bB]?$"
"""The whole grammar, as a regular expression that means the same in Python and in JSON Schema."""

_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Returns the bytes that `text` means: k, M, G, T are powers of 1000, Ki, Mi, Gi, Ti of 1024. Rounds down.

    Case does not count: a limit is never stated in bits (b) or thousandths (m).

    Raises:
        ValueError: `text` is no such size.
    """
    if re.match(PATTERN, text) is None or text.endswith("\n"):
        raise ValueError(f"{text!r} is no byte size, expected one such as 512k, 10Mi, 5MB or 1.5GiB")
    bare = text.lower().removesuffix("b")
    digits = bare.rstrip(" kmgti")
    unit = bare[len(digits) :].strip()
    base = 1024 if unit.endswith("i") else 1000
    return int(Decimal(digits) * base ** _POWERS[unit.removesuffix("i")])


def format_size(size_bytes: int) -> str:
    """Formats a size for people, in the largest unit that it fills."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} B"
