"""Test of a short storm of each hostile kind, in one world. With THOROUGH set, it takes five minutes: longer storms in
several worlds. `make hostile` measures each storm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import anyio
import pytest
from hostile_world import HostileWorld
from isthmus.core.base.limits import MIB
from storm import KINDS

pytestmark = pytest.mark.chaos

IS_THOROUGH: Final = bool(os.environ.get("THOROUGH"))
SEEDS: Final = ("1", "2", "3") if IS_THOROUGH else ("1",)
STORM_S: Final = 1.5 if IS_THOROUGH else 0.2
PAUSE_S: Final = 0.03 if IS_THOROUGH else 0.15
"""The pause of honest clients: each of the seven calls at least once in a storm."""
RSS_MARGIN_BYTES: Final = 200 * MIB
"""The tolerance without a warm-up: what an allocator keeps of a few messages of the longest size."""


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_peers_harm_no_honest_client_and_leave_nothing(seed: str, tmp_path: Path) -> None:
    """Every honest call is answered once and rightly, each attack reaches the limits that it is to reach, and what it
    has taken is given back."""
    world = HostileWorld(
        seed,
        tmp_path,
        list(KINDS),
        storm_s=STORM_S,
        warm_up_s=0,
        settles=False,
        rss_margin_bytes=RSS_MARGIN_BYTES,
        pause_s=PAUSE_S,
    )
    anyio.run(world.run)
    wrongs = [*world.wrongs, *(f"{row.kind}: {wrong}" for row in world.rows for wrong in row.wrongs)]
    assert not wrongs, "\n".join([*wrongs[:20], f"see it again with: make hostile SEEDS={seed}"])
    attacks = {row.kind: row.counts for row in world.rows[1:]}
    assert attacks.keys() == KINDS.keys()
    idle = [kind for kind, counts in attacks.items() if not counts.get("connections")]
    assert not idle, f"these made no connection: {idle}"
