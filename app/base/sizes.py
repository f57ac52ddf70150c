"""Byte sizes as people write them, `10Mi`, `5MB`, `1.5GiB` or `512k`, and as they read them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

PATTERN: Final = r"^[0-9]{1,15}(\.[0-9]{1,9})? ?([kKmMgGtT]i?)?[bB]?$"
"""The whole grammar, in the dialect that Python and JSON Schema share."""

_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes meant by `text`: k, M, G, T count in thousands, Ki, Mi, Gi, Ti in 1024s; a fraction of a byte is dropped.

    Upper and lower case mean the same, for nobody states a limit in bits or thousandths.

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


def told_size(size_bytes: int) -> str:
    """A size for people, in the largest unit that it fills."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} B"
