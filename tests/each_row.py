"""A test that walks the rows of a table, where `pytest.mark.parametrize` would make a test of each row.

Setting up a test costs some milliseconds, which is far more than most rows need. So this is for large tables whose rows
only call functions: fixtures are shared by all rows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

ROW_MAX_CHARS: Final = 300
"""The length of the row that a failure shows."""


def each_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls the decorated test with each row. Takes what `pytest.mark.parametrize` takes, and can be stacked as well.

    All rows are walked. The failures are raised together, each with a note of its row.
    """
    columns = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    table = [
        row.values if isinstance(row, type(pytest.param())) else (row,) if names == columns[0] else row for row in rows
    ]
    assert table, "a test of no row cannot fail"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        whole = inspect.signature(test)
        assert whole.parameters.keys() >= set(columns)

        @functools.wraps(test)
        def walk(**others: Any) -> None:
            failures: list[BaseException] = []
            for row in table:
                arguments = dict(zip(columns, row, strict=True))
                try:
                    test(**arguments, **others)
                except (Exception, pytest.fail.Exception) as failure:
                    failure.add_note(f"in the row {arguments!r}"[:ROW_MAX_CHARS])
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        kept = [each for name, each in whole.parameters.items() if name not in columns]
        walk.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
        return walk

    return decorate
