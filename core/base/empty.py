"""Shared empty tables. Most tables of a session or link stay empty, and there may be thousands of owners with a dozen
tables each. All empty tables are one read-only mapping; a table that changes is replaced by a new one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
"""The empty table. Read-only, so that no owner can change it for all others."""


def without(table: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Returns the table with no entry for `key`: `table` itself if it has none, `NONE` if nothing is left."""
    if key not in table:
        return table
    return {other: value for other, value in table.items() if other != key} or NONE
