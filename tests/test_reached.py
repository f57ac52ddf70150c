"""Tests of the table of unreached lines and branches, and of its limit."""

from __future__ import annotations

from typing import Any

import pytest
from reached import is_enough, table


def counts(lines: int, branches: int) -> dict[str, int]:
    """Returns counts out of 1000 lines and 200 branches."""
    return {
        "num_statements": 1000,
        "covered_lines": lines,
        "missing_lines": 1000 - lines,
        "num_branches": 200,
        "covered_branches": branches,
        "missing_branches": 200 - branches,
    }


def report(lines: int, branches: int, **files: Any) -> dict[str, Any]:
    return {"files": files, "totals": counts(lines, branches)}


@pytest.mark.parametrize(
    ("lines", "branches", "enough"),
    [(980, 196, True), (979, 200, False), (1000, 195, False), (1000, 200, True), (0, 0, False)],
)
def test_lines_and_branches_are_judged_each_for_itself(lines: int, branches: int, enough: bool) -> None:
    assert is_enough(report(lines, branches)) is enough


def test_the_table_names_what_is_missed() -> None:
    """Modules without a gap are left out, and so are branches of lines that are missed themselves."""
    full = {"missing_lines": [], "missing_branches": [], "summary": counts(1000, 200)}
    gaps = {"missing_lines": [3, 4], "missing_branches": [[1, 3], [3, 4], [9, -7]], "summary": counts(998, 197)}
    assert table(report(998, 197, a=full, b=gaps)).splitlines()[2:] == [
        "| `b` | 99.8 % | 98.5 % | 3, 4 | 1→3, 9→-7 |",
        "| all | 99.8 % | 98.5 % | 2 of 1000 | 3 of 200 |",
    ]
