"""Parses baggage.

Source: W3C Baggage, https://www.w3.org/TR/baggage/.
"""

from __future__ import annotations

import re
from typing import Final

BAGGAGE_MAX_CHARS: Final = 8192
"""Characters of a baggage. The recommendation asks for no more to be passed on. At it: it is dropped."""

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_OCTETS: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_PROPERTY: Final = rf";[ \t]*+{_TOKEN}(?:[ \t]*+=[ \t]*+{_OCTETS})?[ \t]*+"
_MEMBER: Final = re.compile(rf"{_TOKEN}[ \t]*+=[ \t]*+{_OCTETS}[ \t]*+(?:{_PROPERTY})*+")


def parse_baggage(text: str) -> str:
    """Returns a baggage without needless spaces between its members; "" if it is invalid, or too long."""
    if not text or len(text) > BAGGAGE_MAX_CHARS:
        return ""
    members = [part.strip(" \t") for part in text.split(",")]
    return ",".join(members) if all(_MEMBER.fullmatch(member) for member in members) else ""
