"""Some worlds with a disk, files, tasks and restarts, and some on wires; always the same ones, and those that once went
wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from isthmus.core.base.effects import Collect, Effect, Forget, InlineSource, Save, StorageAnswer
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.files.store.store import Shelf
from isthmus.core.wire.chunks import Pieces
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
def test_what_was_promised_is_kept_and_nothing_else(seed: str) -> None:
    report = run_world(seed)
    assert not report.wrong, f"{report.wrong}\nsee it again with: make simulate SEEDS={seed}"


@pytest.mark.parametrize("seed", ["lasting-0", "wired-7"])
def test_a_seed_gives_one_history_over_all_runs(seed: str) -> None:
    first, again = (run_world(seed, is_heard=False) for _ in range(2))
    assert (first.history, first.messages, first.told) == (again.history, again.messages, again.told)
    assert first.told["crash"] > 0
    assert first.told["receive_answer Saved"] > 0


def test_drivers_tell_of_what_is_large_in_each_way() -> None:
    """Documents as they come, lines in pieces, and what came together as one."""
    told = sum((run_world(seed, is_heard=False).told for seed in ("driven-10", "driven-41")), Counter())
    inputs = ("PostOpening at once", "end at once with opening message", "receive_pieces", "receive_part and end")
    assert all(told[name] for name in inputs), told


def test_each_fault_strikes_and_each_world_is_spared_some() -> None:
    worlds = [LastingWorld(f"lasting-{number}") for number in range(24)]
    has = Counter(fault for world in worlds for fault in world.faults)
    assert all(0 < has[fault] < len(worlds) for fault in LASTING_FAULTS)
    assert any(not world.faults for world in worlds)


def test_a_server_tells_a_channel_from_that_of_its_number_in_the_run_before() -> None:
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


# --- What worlds see --------------------------------------------------------------------------------------------------


def _forget_one(self: Shelf, uploads: Any, artifacts: Any, restore: Any = Shelf.restore) -> None:
    restore(self, list(uploads)[1:], artifacts)


def _may_use_all(self: Shelf, owner: Any, server: str, sid: str, principal: str) -> bool:
    return bool(owner.server == server)


def _never_expire(self: Shelf, entry: Any) -> None:
    pass


def _take_as_they_came(self: Pieces, beginning_bytes: int = 0, take: Any = Pieces.take_pieces) -> tuple[bytes, ...]:
    return take(self)  # type: ignore[no-any-return]


def _lose_some(self: LineReader, piece: bytes, keep: Any = LineReader._keep) -> None:
    keep(self, piece[:-1] if len(piece) % 16 == 7 else piece)


@pytest.mark.parametrize(
    ("owner", "name", "instead", "seed", "what"),
    [
        (Shelf, "restore", _forget_one, "lasting-0", "of an earlier run|nobody can find"),
        (Shelf, "_may_use", _may_use_all, "lasting-1", "was given Promise|was sent a file of another"),
        (Shelf, "_set_deadline", _never_expire, "lasting-0", "expired, and still there|left "),
        (LineReader, "_keep", _lose_some, "wired-0", "Wrong|Error"),
        (Pieces, "take_pieces", _take_as_they_came, "driven-58", "the first part of a message that does not pass"),
    ],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, instead: Any, seed: str, what: str
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert re.search(what, run_world(seed, is_heard=False).wrong)


# --- The disk ---------------------------------------------------------------------------------------------------------


def _disk() -> StormyDisk:
    return LastingWorld("lasting-0/").network.disk


def _order(disk: StormyDisk, *orders: Effect) -> list[StorageAnswer]:
    """Give orders. Returns where their answers will be."""
    answers: list[StorageAnswer] = []
    disk.network.answer = lambda ticket, answer: answers.append(answer)  # type: ignore[method-assign]
    assert all(map(disk.carry_out, orders))
    return answers


def test_what_was_answered_lasts_and_what_was_under_way_is_whole_or_absent() -> None:
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


def test_a_start_leaves_what_owns_and_is_owned() -> None:
    disk = _disk()
    disk.blobs = {"a": b"1", "b": b"2"}
    disk.records = {"task/1": b'{"blob":"c"}', "event/1": b"{}"}
    disk.write("/w/x/ws/f", b"x")
    assert disk.start() == ([], [], [])
    assert not (disk.blobs or disk.records or disk.files)
