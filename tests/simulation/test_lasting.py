"""Some worlds with a disk, files, tasks and restarts, always the same ones, and those that once went wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from isthmus.core.shelf import Shelf
from lasting import LASTING_FAULTS, LastingWorld
from worlds import run_world

SEEDS: Final = tuple(f"lasting-{number}" for number in range(8))
KEPT: Final = tuple((Path(__file__).parent / "lasting_seeds.txt").read_text().split())


@pytest.mark.parametrize("seed", dict.fromkeys((*SEEDS, *KEPT)))
def test_what_was_promised_is_kept_and_nothing_else(seed: str) -> None:
    report = run_world(seed)
    assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"
    assert report.told["receive_answer Saved"] > 0


def test_a_seed_gives_one_history_over_all_runs() -> None:
    first, again = (run_world(SEEDS[0], is_heard=False) for _ in range(2))
    assert (first.history, first.messages, first.told) == (again.history, again.messages, again.told)
    assert first.told["crash"] > 0


def test_each_fault_strikes_and_each_world_is_spared_some() -> None:
    worlds = [LastingWorld(f"lasting-{number}") for number in range(24)]
    has = Counter(fault for world in worlds for fault in world.faults)
    assert all(0 < has[fault] < len(worlds) for fault in LASTING_FAULTS)
    assert any(not world.faults for world in worlds)


# --- What worlds see --------------------------------------------------------------------------------------------------


def _forget_one(self: Shelf, uploads: Any, artifacts: Any, restore: Any = Shelf.restore) -> None:
    restore(self, list(uploads)[1:], artifacts)


def _may_use_all(self: Shelf, owner: Any, server: str, sid: str, principal: str) -> bool:
    return bool(owner.server == server)


def _never_expire(self: Shelf, entry: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "instead", "what"),
    [
        ("restore", _forget_one, "of an earlier run"),
        ("_may_use", _may_use_all, "was given Promise|was sent a file of another"),
        ("_set_deadline", _never_expire, "expired, and still there|left when all times are over"),
    ],
)
def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, instead: Any, what: str) -> None:
    monkeypatch.setattr(Shelf, name, instead)
    wrong = (run_world(seed, is_heard=False).wrong for seed in SEEDS)
    found = next(filter(None, wrong), "")
    with pytest.raises(AssertionError, match=what):
        _fail(found)


def _fail(found: str) -> None:
    raise AssertionError(found)
