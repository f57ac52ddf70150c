"""Tests of worlds with several replicas: fixed seeds, what happens in them, and planted faults."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from isthmus.core.base.shares import Shares
from isthmus.core.base.storage import Save
from isthmus.core.files.store.store import FileStore
from isthmus.core.state import shared_limits
from isthmus.core.state.context import Context
from isthmus.core.state.storage_orders import StorageOrders
from isthmus.core.tasks.foreign_tasks import ForeignTasks
from replica_network import REPLICA_FAULTS
from replicas import ReplicasWorld
from worlds import run_world

SEEDS: Final = tuple(f"replicas-{number}" for number in (2, 27, 28, 39))
KEPT: Final = tuple((Path(__file__).parent / "replicas_seeds.txt").read_text().split())


def test_any_replica_answers_and_promises_are_kept() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        report = run_world(seed, is_checked=False)
        assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"
        counts += report.counts
    happened = ("forward", "returned", "lease lost", "lease deleted", "receive_records", "tasks followed", "crash")
    assert all(counts[name] for name in happened), counts


@pytest.mark.parametrize("seed", KEPT)
def test_what_once_failed_does_not(seed: str) -> None:
    report = run_world(seed, is_checked=False)
    assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"


def test_a_seed_gives_one_history_over_all_replicas() -> None:
    first, again = (run_world("replicas-5", is_checked=False) for _ in range(2))
    assert (first.history, first.messages, first.counts) == (again.history, again.messages, again.counts)


def test_each_fault_strikes_in_some_worlds_only() -> None:
    worlds = [ReplicasWorld(f"replicas-{number}") for number in range(24)]
    has = Counter(fault for world in worlds for fault in world.faults)
    assert all(0 < has[fault] < len(worlds) for fault in REPLICA_FAULTS)
    assert {len(world.replicas) for world in worlds} >= {1, 2, 3, 5}


# --- Planted faults ---------------------------------------------------------------------------------------------------


def _pass_on_again(self: Any, channel: Any, name: str, *, is_returned: bool, forward: Any = Context.forward) -> bool:
    return forward(self, channel, name, is_returned=False)  # type: ignore[no-any-return]


def _never_pass_on(self: Any, channel: Any, name: str, *, is_returned: bool) -> bool:
    return False


def _evict_any(self: FileStore, entry: Any) -> bool:
    return True


def _free_earlier_runs(
    shares: Shares, owner: str, *given: Any, taken: Any = shared_limits.taken, **more: Any
) -> Shares:
    tag = owner.partition(".")[0]
    kept = {name: share for name, share in shares.items() if name == owner or name.partition(".")[0] != tag}
    return taken(kept, owner, *given, **more)  # type: ignore[no-any-return]


def _save_without_look(self: Any, make: Any, then: Any, *, late: Any = None, order: Any = StorageOrders.order) -> None:
    def made(ticket: Any) -> Any:
        effect = make(ticket)
        is_share = isinstance(effect, Save) and effect.key.startswith("quota/")
        return msgspec.structs.replace(effect, if_version=None) if is_share else effect

    order(self, made, then, late=late)


def _find_none(self: Any, id: str, then: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("owner", "name", "instead", "seed", "what"),
    [
        (Context, "forward", _pass_on_again, "replicas-1", "that was returned is passed on again"),
        (Context, "forward", _never_pass_on, "replicas-2", "nothing went wrong|was refused with 404"),
        (FileStore, "_is_unused_elsewhere", _evict_any, "replicas-23", "has stored"),
        (shared_limits, "taken", _free_earlier_runs, "replicas-5", "makes None of Granted"),
        (StorageOrders, "order", _save_without_look, "replicas-5", "makes None of Granted"),
        (ForeignTasks, "wait_for_task", _find_none, "replicas-15", "is not known any more"),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, instead: Any, seed: str, what: str
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert re.search(what, run_world(seed, is_checked=False).wrong)
