"""Tests of the tests that walk a table."""

from __future__ import annotations

import pytest
from each_row import each_row

SEEN: list[tuple[int, int, int]] = []


def test_every_failing_row_is_named() -> None:
    @each_row("a, b", [(1, 1), (1, 2), (3, 4)])
    def equal(a: int, b: int) -> None:
        assert a == b

    with pytest.raises(ExceptionGroup, match="2 of 3 rows") as caught:
        equal()
    notes = [each.__notes__ for each in caught.value.exceptions]
    assert notes == [["in the row {'a': 1, 'b': 2}"], ["in the row {'a': 3, 'b': 4}"]]


def test_a_missing_error_is_a_failure_of_its_row() -> None:
    @each_row("text", ["1", "x"])
    def refused(text: str) -> None:
        with pytest.raises(ValueError):
            int(text)

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows"):
        refused()


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError):
        each_row("a", [])


@each_row("a", [1, 2])
@each_row(("b",), [(3,), (4,)])
def test_tables_are_combined_and_fixtures_given(a: int, b: int, anyio_backend_name: str) -> None:
    SEEN.append((a, b, len(anyio_backend_name)))


def test_each_pair_was_walked() -> None:
    SEEN.clear()
    test_tables_are_combined_and_fixtures_given(anyio_backend_name="trio")
    assert SEEN == [(1, 3, 4), (1, 4, 4), (2, 3, 4), (2, 4, 4)]
