"""Tests of a few storms: fixed seeds, and the seeds of all that ever failed. `make chaos` makes many."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import pytest
from world import run_world

pytestmark = pytest.mark.chaos

SEEDS: Final = ("1",)
"""Together with the kept seeds these have every fault."""
KEPT: Final = tuple((Path(__file__).parent / "seeds.txt").read_text().split())
"""Seeds that failed once."""
STORM_S: Final = 2.0


@pytest.mark.parametrize("seed", dict.fromkeys((*SEEDS, *KEPT)))
def test_a_storm_leaves_nothing_lost_nothing_twice_and_nothing_behind(seed: str, tmp_path: Path) -> None:
    """Every request ends once, in agreement with its executions. Afterwards everything is as it was before."""
    report = anyio.run(lambda: run_world(seed, tmp_path, storm_s=STORM_S))
    print(report)
    assert not report.wrongs, f"{report}\nsee it again with: make chaos SEEDS={seed}"
    assert report.outcomes["success"] > 0
