"""What the same bytes come to, found out once: clients of one kind say the same of themselves, and one server says the
same to each session. What they come to is shared then, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

KNOWN_MAX: Final = 128
"""So many kinds of clients, or servers, are there at once; of more, those are found out anew that were not seen for
longest."""

KNOWN_SIZE_MAX_BYTES: Final = 8 * 1024
"""What is longer is not remembered: an introduction takes some hundred bytes, a server's with instructions a few
thousand."""


def remembered(find: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """`find`, a function of the bytes alone with a result that nobody changes. What it raises is found out anew."""
    known = functools.lru_cache(maxsize=KNOWN_MAX)(find)

    @functools.wraps(find)
    def found(data: bytes) -> T:
        return known(data) if len(data) <= KNOWN_SIZE_MAX_BYTES else find(data)

    return found
