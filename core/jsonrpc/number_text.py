"""JSON numbers by value, read from their digits.

No number is computed: `1e999999999` costs as little as `1`, and every digit of a long integer counts.
"""

from __future__ import annotations

import re
from typing import Final

SAFE_INTEGER_MAX: Final = 2**53 - 1
"""The largest integer that every reader takes for the same, including readers that have only floating point."""

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_EXPONENT_DIGITS_MAX: Final = 18
"""The longest exponent that is computed with. Nobody means a number with a longer one: it is kept as text."""


def normal_form(text: str) -> str:
    """Returns one text for all the ways to write a number: its digits without zeros at the ends, `e`, and their
    exponent.

    `text` is a JSON number. Zero is "0", whatever its sign. Beyond exponents of 18 digits two ways to write one number
    may have two forms; different numbers never have the same form.
    """
    match = _NUMBER.fullmatch(text)
    assert match is not None, "JSON's grammar of numbers is this one"
    sign, whole, fraction, exponent_sign, exponent = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    significant = digits.rstrip("0")
    shift = len(digits) - len(significant) - len(fraction)
    exponent = exponent.lstrip("0")
    if len(exponent) > _EXPONENT_DIGITS_MAX:
        return f"{sign}{significant}e{exponent_sign.strip('+')}{exponent}~{shift}"
    return f"{sign}{significant}e{int(exponent_sign + (exponent or '0')) + shift}"


def is_integral(text: str) -> bool:
    """True if a JSON number is an integer, however it is written: 42, 42.0, 4.2e1."""
    _, _, exponent = normal_form(text).partition("e")
    return not exponent.startswith("-")


def safe_integer(text: str) -> int | None:
    """Returns a JSON number as an integer; None if it is not an integer within ±(2^53-1)."""
    digits, _, exponent = normal_form(text).partition("e")
    if not exponent:
        return 0
    if "~" in exponent or exponent.startswith("-") or len(digits) + int(exponent) > 17:
        return None
    value = int(digits) * 10 ** int(exponent)
    return value if abs(value) <= SAFE_INTEGER_MAX else None
