"""Tests of worlds with a disk, files, tasks and restarts, some of them on wires: fixed seeds, and all that once
failed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from isthmus.core.base.effects import Effect
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.storage import Collect, Forget, InlineSource, Save, StorageAnswer
from isthmus.core.files.store.owners import FileUser, Owner
from isthmus.core.files.store.store import FileStore
from isthmus.core.wire.chunks import Chunks
from isthmus.core.wire.ndjson import LineReader
from lasting import LASTING_FAULTS, LastingWorld
from simulated_disk import StormyDisk
from simulated_network import Channel
from simulated_servers import Server, Session
from worlds import run_world

SEEDS: Final = (
    *(f"lasting-{number}" for number in range(5)),
    *(f"wired-{number}" for number in (1, 5, 7)),
    "driven-10",
    "driven-41",
)
KEPT: Final = tuple((Path(__file__).parent / "lasting_seeds.txt").read_text().split())


@pytest.mark.parametrize("seed", dict.fromkeys((*SEEDS, *KEPT)))
def test_promises_are_kept_and_nothing_else_is(seed: str) -> None:
    report = run_world(seed)
    assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"


@pytest.mark.parametrize("seed", ["lasting-0", "wired-7"])
def test_a_seed_gives_one_history_over_all_runs(seed: str) -> None:
    first, again = (run_world(seed, is_checked=False) for _ in range(2))
    assert (first.history, first.messages, first.counts) == (again.history, again.messages, again.counts)
    assert first.counts["crash"] > 0
    assert first.counts["receive_answer Saved"] > 0


def test_large_data_comes_in_each_form_of_input() -> None:
    """Documents come part by part, lines in pieces, and things that came together as one input."""
    counts = sum((run_world(seed, is_checked=False).counts for seed in ("driven-10", "driven-41")), Counter())
    inputs = ("PostOpening at once", "end at once with opening message", "receive_pieces", "receive_part and end")
    assert all(counts[name] for name in inputs), counts


def test_each_fault_strikes_in_some_worlds_only() -> None:
    worlds = [LastingWorld(f"lasting-{number}") for number in range(24)]
    has = Counter(fault for world in worlds for fault in world.faults)
    assert all(0 < has[fault] < len(worlds) for fault in LASTING_FAULTS)
    assert any(not world.faults for world in worlds)


def test_channels_with_one_number_in_two_runs_are_distinct() -> None:
    network = LastingWorld("lasting-0").network
    server = Server(network, ServerPlan(id="s", kind=Kind.HTTP), is_modern=False)
    server.streams.has_ids = True
    before, now = (Channel(ChannelId(3), server) for _ in range(2))
    server.streams.begin(before, Session())
    server.posts[now] = None
    server.receive_end(before, None)
    assert server.streams.of(before) is not None
    assert server.streams.of(now) is None
    assert now in server.posts


# --- Planted faults ---------------------------------------------------------------------------------------------------


def _forget_one(self: FileStore, uploads: Any, artifacts: Any, restore: Any = FileStore.restore) -> None:
    restore(self, list(uploads)[1:], artifacts)


def _may_use_all(self: FileUser, owner: Owner, scope: Any, is_live: Any) -> bool:
    return owner.server in self.servers


def _never_expire(self: FileStore, entry: Any) -> None:
    pass


def _take_as_they_came(self: Chunks, beginning_bytes: int = 0, take: Any = Chunks.take_pieces) -> tuple[bytes, ...]:
    return take(self)  # type: ignore[no-any-return]


def _lose_some(self: LineReader, piece: bytes, keep: Any = LineReader._keep) -> None:
    keep(self, piece[:-1] if len(piece) % 16 == 7 else piece)


@pytest.mark.parametrize(
    ("owner", "name", "instead", "seed", "what"),
    [
        (FileStore, "restore", _forget_one, "lasting-0", "of an earlier run|nobody can find"),
        (FileUser, "may_use", _may_use_all, "lasting-1", "was given Promise|was sent a file of another"),
        (FileStore, "_set_deadline", _never_expire, "lasting-0", "expired, and still there|left "),
        (LineReader, "_keep", _lose_some, "wired-0", "Wrong|Error"),
        (Chunks, "take_pieces", _take_as_they_came, "driven-66", "the first part of a message that does not pass"),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, instead: Any, seed: str, what: str
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert re.search(what, run_world(seed, is_checked=False).wrong)


# --- The disk ---------------------------------------------------------------------------------------------------------


def _disk() -> StormyDisk:
    return LastingWorld("lasting-0/").network.disk


def _order(disk: StormyDisk, *orders: Effect) -> list[StorageAnswer]:
    """Gives orders. Returns the list into which their answers will come."""
    answers: list[StorageAnswer] = []
    disk.network.answer = lambda ticket, answer: answers.append(answer)  # type: ignore[method-assign]
    assert all(map(disk.carry_out, orders))
    return answers


def test_answered_orders_survive_a_crash_and_others_are_whole_or_absent() -> None:
    records, blobs = set(), set()
    for number in range(60):
        disk = _disk()
        disk.rng.seed(number)
        answers = _order(disk, *(Save(Ticket(n), f"task/{n}", b"old") for n in range(2)))
        disk.network.run(1.0)
        assert len(answers) == 2
        sources = tuple(InlineSource(data, "f") for data in (b"one", b"two"))
        collect = Collect(Ticket(9), "s", "", sources, ("a", "b"), 9, 9)
        lost = _order(disk, Save(Ticket(3), "task/0", b"new"), Forget("task/1"), collect)
        disk.crash()
        disk.network.run(1.0)
        assert not lost, "nobody hears of it"
        records.add((disk.records["task/0"], "task/1" in disk.records))
        blobs.add(tuple(sorted(disk.blobs.items())))
    assert records == {(b"old", True), (b"new", True), (b"new", False)}, "in their order"
    assert blobs == {(), (("a", b"one"),), (("a", b"one"), ("b", b"two"))}


def test_a_start_removes_entries_without_an_owner_or_content() -> None:
    disk = _disk()
    disk.blobs = {"a": b"1", "b": b"2"}
    disk.records = {"task/1": b'{"blob":"c"}', "event/1": b"{}"}
    disk.write("/w/x/ws/f", b"x")
    assert disk.start() == ([], [], [])
    assert not (disk.blobs or disk.records or disk.files)
