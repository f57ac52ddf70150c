"""Dicts that are nearly always empty, and share one empty table."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from isthmus.core.base.empty import NONE, without


@pytest.mark.parametrize(
    "table, left", [(NONE, NONE), ({"a": 1}, NONE), ({"b": 1}, {"b": 1}), ({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 3})]
)
def test_an_entry_is_left_out(table: Mapping[str, int], left: Mapping[str, int]) -> None:
    before = dict(table)
    found = without(table, "a")
    assert found == left
    assert list(found) == list(left), "the oldest stays first"
    assert (found is NONE) is not bool(left)
    assert table == before


def test_a_table_without_the_entry_is_not_copied() -> None:
    table = {"b": 1}
    assert without(table, "a") is table


def test_the_shared_empty_table_cannot_be_filled() -> None:
    with pytest.raises(TypeError):
        NONE["a"] = 1  # type: ignore[index]
