"""Test of a short storm of each hostile kind, in one world. `make hostile` makes longer ones, and measures each."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hostile_world import HostileWorld
from isthmus.core.base.limits import MIB
from storm import KINDS

pytestmark = pytest.mark.chaos

STORM_S = 0.3
RSS_MARGIN_BYTES = 200 * MIB
"""The tolerance without a warm-up: what an allocator keeps of a few messages of the longest size."""


def test_hostile_peers_harm_no_honest_client_and_leave_nothing(tmp_path: Path) -> None:
    """Every honest call is answered once and rightly, and what an attack has taken is given back."""
    world = HostileWorld(
        "1", tmp_path, list(KINDS), storm_s=STORM_S, warm_up_s=0, settles=False, rss_margin_bytes=RSS_MARGIN_BYTES
    )
    anyio.run(world.run)
    wrongs = [*world.wrongs, *(f"{row.kind}: {wrong}" for row in world.rows for wrong in row.wrongs)]
    assert not wrongs, "\n".join([*wrongs[:20], "see it again with: make hostile SEEDS=1"])
    attacks = {row.kind: row.counts for row in world.rows[1:]}
    assert attacks.keys() == KINDS.keys()
    idle = [kind for kind, counts in attacks.items() if not counts.get("connections")]
    assert not idle, f"these made no connection: {idle}"
