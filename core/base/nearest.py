"""The known name that a misspelt one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

SIMILAR: Final = 0.6
"""The likeness that two names need, from 0 to 1: one slip in a short word, a few in a long one."""
ALIKE: Final = 0.85
"""A stricter one, for a name that may well be right, since others may know it."""


def nearest(name: str, known: Iterable[str], *, similarity: float = SIMILAR) -> str | None:
    """Returns the known name that is most like `name`; None if none is much like it. Case does not count."""
    names = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), names, n=1, cutoff=similarity)
    return names[found[0]] if found else None


def hint(name: str, known: Iterable[str], *, similarity: float = SIMILAR) -> str:
    """Returns the end of a message about an unknown name, which names the nearest one; "" if there is none."""
    found = nearest(name, known, similarity=similarity)
    return f"; did you mean {found}?" if found else ""
