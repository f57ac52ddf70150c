"""A fault of a configuration."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One fault.

    Attributes:
        key: the dotted key.
        expected: what is right; empty if `fix` says it.
        seen: what was seen; empty: the value in the document is shown.
        fix: what to write or do; empty if `expected` says it.
    """

    key: str
    expected: str
    seen: str = ""
    fix: str = ""
