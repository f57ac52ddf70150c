"""Tables that nearly always are empty. There may be thousands of their owners, and each is one of a dozen: so all that
are empty are the same one, which nobody can change, and a table that is to change is made anew."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


def without(table: Mapping[K, V], key: K) -> Mapping[K, V]:
    """The same table, but with no entry for `key`."""
    if key not in table:
        return table
    return {other: value for other, value in table.items() if other != key} or NONE
