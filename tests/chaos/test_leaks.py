"""Test of a few hundred sessions, opened and dropped in every way. `make leaks` does it with 10,000."""

from __future__ import annotations

from pathlib import Path

import leaks
import pytest

pytestmark = pytest.mark.chaos


def test_sessions_leave_nothing_behind(tmp_path: Path) -> None:
    """Sessions that end leave no process, no descriptor, no session, and no memory beyond noise."""
    figures = leaks.run(150, 60, tmp_path, rests=1)
    print(figures)
    assert not figures.wrongs, str(figures)
