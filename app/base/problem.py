"""A fault of a configuration."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One fault: the dotted key, what was expected, and what was seen ("": show the value in the document)."""

    key: str
    expected: str
    seen: str = ""
