"""Memoization of functions of short byte strings. Clients of one kind describe themselves with the same bytes, and one
server sends the same introduction to each session: the parsed form is computed once and shared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

KNOWN_MAX: Final = 128
"""Inputs remembered for each function: an estimate of the kinds of clients, or servers, at one time. The least recently
used is dropped first."""

KNOWN_SIZE_MAX_BYTES: Final = 8 * 1024
"""Longest input that is remembered. A client's introduction takes some hundred bytes, a server's with instructions a
few thousand."""


def remembered(find: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Decorates `find`, which must depend on the bytes alone and return a result that no caller changes. Exceptions are
    not remembered."""
    known = functools.lru_cache(maxsize=KNOWN_MAX)(find)

    @functools.wraps(find)
    def found(data: bytes) -> T:
        return known(data) if len(data) <= KNOWN_SIZE_MAX_BYTES else find(data)

    return found
