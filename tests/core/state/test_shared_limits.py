"""Tests of limits that replicas keep together: never over, whatever comes between, and free again after a kill."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.replica import ReplicaName
from isthmus.core.base.shares import SKEW_S, Limit, Share
from isthmus.core.base.storage import Conflicted, Load, Loaded, Save, Saved, StorageAnswer, StorageFailed
from isthmus.core.state.context import Context
from isthmus.core.state.shared_limits import (
    CONFLICTS_MAX,
    RESERVE_S,
    RETRIED_AFTER_S,
    RETURNED_AFTER_S,
    SHARES_MAX,
    SharedLimits,
)
from isthmus.core.state.storage_orders import StorageOrders

UNIX_AT_ZERO = 1000.0
LIFE_S = 3600.0
MOST = 100


@dataclass
class Store:
    """The records, with a version each."""

    records: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    version: int = 0

    def carry_out(self, order: Load | Save) -> StorageAnswer:
        version, value = self.records.get(order.key, (0, None))
        if isinstance(order, Load):
            return Loaded(value, version)
        if order.if_version != version:
            return Conflicted()
        self.version += 1
        self.records[order.key] = self.version, order.value
        return Saved(self.version)


@dataclass(eq=False)
class File:
    size: int
    owner: str
    ends_at: float


class Replica:
    """A replica that stores files of one account.

    Args:
        skew_s: how far its wall clock is ahead.
    """

    def __init__(self, store: Store, run: int, blocks: int = 0, skew_s: float = 0.0, now: float = 0.0) -> None:
        plan = Plan(
            servers=(ServerPlan(id="s", kind=Kind.PIPE),), replica=ReplicaName("a", f"{run:032x}"), shares_storage=True
        )
        assert plan.replica is not None
        self.owner = plan.replica.owner
        self.store = store
        self.context = Context(plan, entropy=bytes, unix_at_zero=UNIX_AT_ZERO + skew_s, limits=Limits())
        self.orders = StorageOrders(self.context)
        limit = Limit((MOST,), blocks)
        self.limits: SharedLimits[str] = SharedLimits(
            self.context, self.orders, "shares", lambda name: (f"quota/{name}", limit), lambda _: (self.used,)
        )
        self.files: list[File] = []
        self.under_way: list[Load | Save] = []
        self.answers: list[str] = []
        self.count = 0
        self.move(now)

    @property
    def used(self) -> int:
        return sum(file.size for file in self.files)

    def move(self, now: float) -> None:
        self.context.begin(now, None)
        ended = [file for file in self.files if file.ends_at <= now]
        if ended:
            self.files = [file for file in self.files if file not in ended]
            self.limits.receive_less("x")
        while (due := self.context.timers.take_due(now)) is not None:
            match due:
                case ("shares", (name,)):
                    self.limits.handle_timeout(str(name))
                case ("storage", ticket):
                    self.orders.handle_timeout(ticket)  # type: ignore[arg-type]
        self.read()

    def read(self) -> None:
        for order in self.context.out:
            assert isinstance(order, Load | Save)
            self.under_way.append(order)
            self.count += 1
        self.context.out.clear()

    def ask(self, size: int, made: list[File]) -> None:
        ends_at = self.context.now + LIFE_S

        def claimed(problem: str) -> None:
            self.answers.append(problem)
            if not problem and ends_at > self.context.now and self.used + size <= self.limits.share("x")[0]:
                self.files.append(File(size, self.owner, ends_at))
                made.append(self.files[-1])
            elif not problem:
                self.answers[-1] = "full"

        self.limits.claim("x", (size,), self.context.now_unix + LIFE_S, claimed)
        self.read()

    def extend(self, file: File) -> None:
        ends_at = self.context.now + LIFE_S

        def extended(problem: str) -> None:
            if not problem and file.ends_at > self.context.now:
                file.ends_at = ends_at

        self.limits.extend("x", file.owner, UNIX_AT_ZERO + 60.0 + ends_at, extended)
        self.read()

    def answer(self, place: int = 0, *, is_kept: bool = True, is_told: bool = True) -> None:
        """Carries out one of the orders under way. Not kept: it fails. Not told: it is carried out, and counts as
        failed."""
        order = self.under_way.pop(place % len(self.under_way))
        answer = self.store.carry_out(order) if is_kept else None
        self.orders.receive_answer(order.ticket, answer if answer and is_told else StorageFailed("away"))
        self.read()

    def settle(self) -> None:
        while self.under_way:
            self.answer()


STEPS = (
    "ask",
    "ask",
    "ask",
    "answer",
    "answer",
    "answer",
    "answer",
    "answer",
    "fail",
    "lose",
    "drop",
    "extend",
    "kill",
)
WAITS_S = (5.0, 60.0, 900.0, 3590.0)


@given(seed=st.integers(0, 2**32), blocks=st.sampled_from([0, 10]))
def test_a_limit_is_never_exceeded_and_is_free_again(seed: int, blocks: int) -> None:
    """Replicas ask, store, extend what others stored, lose answers and are killed, in any order. Once all files have
    ended, a new replica gets the whole limit."""
    choice, store, now, runs = random.Random(seed), Store(), 0.0, 3
    skews = [choice.choice((-30.0, 0.0, 30.0)) for _ in range(3)]
    replicas = [Replica(store, run, blocks, skew_s) for run, skew_s in enumerate(skews)]
    files: list[File] = []
    for _ in range(600):
        who, number = choice.randrange(3), choice.choice((1, 5, 20, 60))
        one, what = replicas[who], choice.choice(STEPS if choice.random() < 0.95 else ("wait",))
        match what:
            case "ask":
                one.ask(number, files)
            case "answer" | "fail" | "lose" if one.under_way:
                one.answer(number, is_kept=what != "fail", is_told=what == "answer")
            case "drop" if one.files:
                files.remove(file := choice.choice(one.files))
                one.files.remove(file)
                file.ends_at = now
                one.limits.receive_less("x")
            case "extend" if files:
                one.extend(choice.choice(files))
            case "kill" if choice.random() < 0.2:
                replicas[who] = Replica(store, runs, blocks, skews[who], now)
                runs += 1
            case "wait":
                if choice.random() < 0.9:  # else the orders under way are late
                    for other in replicas:
                        other.settle()
                now += choice.choice(WAITS_S)
                files[:] = [file for file in files if file.ends_at > now]
                for other in replicas:
                    other.move(now)
        assert sum(file.size for file in files) <= MOST
    now += LIFE_S + 60.0 + 2 * RESERVE_S + SKEW_S + 100.0
    last = Replica(store, runs, blocks, now=now)
    last.ask(MOST, files)
    last.settle()
    assert last.used == MOST


@pytest.mark.parametrize("seed", range(20))
def test_of_two_that_want_the_last_place_one_gets_it(seed: int) -> None:
    """The other one is refused, and neither waits for long."""
    store, order = Store(), random.Random(seed)
    both = [Replica(store, run) for run in (1, 2)]
    for one in both:
        one.ask(MOST, [])
    while waiting := [one for one in both if one.under_way]:
        order.choice(waiting).answer()
    assert sorted(one.used for one in both) == [0, MOST]
    assert sorted(one.answers[0] for one in both) == ["", "full"]
    assert sum(one.count for one in both) <= 7


def test_a_use_costs_one_order_or_with_blocks_less() -> None:
    for blocks, most in ((0, 12), (10, 4)):
        one = Replica(Store(), 1, blocks)
        for _ in range(10):
            one.ask(3, [])
            one.settle()
        assert one.used == 30
        assert one.count <= most


def test_what_is_not_used_any_more_is_given_back_at_once_for_all() -> None:
    store = Store()
    one, two = Replica(store, 1), Replica(store, 2)
    for _ in range(5):
        one.ask(20, [])
    one.settle()
    two.ask(20, [])
    two.settle()
    assert two.answers == ["full"]
    count = one.count
    one.move(LIFE_S)
    one.move(LIFE_S + 5.0)
    one.settle()
    assert one.count == count + 1
    assert len(one.limits) == 0
    two.move(LIFE_S + 5.0)
    two.ask(MOST, [])
    two.settle()
    assert two.used == MOST


def test_what_was_claimed_and_is_not_used_is_given_back() -> None:
    """An upload that is refused for another limit does so. An extension meanwhile does not put it off."""
    store, problems = Store(), list[str]()
    one, two = Replica(store, 1), Replica(store, 2)
    two.ask(20, [])
    two.settle()
    one.limits.claim_each([("x", (20,)), ("y", (20,))], UNIX_AT_ZERO + LIFE_S, problems.append)
    one.read()
    one.settle()
    one.move(1.0)
    one.limits.extend("x", two.owner, UNIX_AT_ZERO + LIFE_S + 2 * RESERVE_S, problems.append)
    one.read()
    one.settle()
    assert problems == ["", ""]
    one.move(1.0 + RETURNED_AFTER_S)
    one.settle()
    assert not any(one.owner.encode() in value for _, value in store.records.values())
    assert len(one.limits) == 0


def test_a_share_that_another_replica_has_extended_is_given_back() -> None:
    """The owner has not heard of the extension, and takes the share for over."""
    store, made = Store(), list[File]()
    one, two = Replica(store, 1, blocks=10), Replica(store, 2, blocks=10)
    one.ask(20, made)
    one.settle()
    two.limits.extend("x", one.owner, UNIX_AT_ZERO + LIFE_S + 2 * RESERVE_S, lambda _: None)
    two.read()
    two.settle()
    made[0].ends_at = LIFE_S + RESERVE_S + 60.0
    one.move(made[0].ends_at)
    one.move(made[0].ends_at + RETURNED_AFTER_S)
    one.settle()
    two.ask(MOST - 10, made)
    two.settle()
    assert two.used == MOST - 10


def test_a_replica_that_is_refused_has_seen_the_newest_record() -> None:
    store = Store()
    one, two = Replica(store, 1), Replica(store, 2)
    one.ask(80, [])
    one.settle()
    two.ask(20, [])
    two.settle()
    one.files.clear()
    one.limits.receive_less("x")
    one.move(5.0)
    one.settle()
    two.ask(80, [])
    two.settle()
    assert two.used == MOST


def test_a_storage_that_is_away_refuses_and_heals() -> None:
    one = Replica(Store(), 1)
    one.ask(10, [])
    one.answer(is_told=False)
    assert one.answers == ["away"]
    one.move(RETRIED_AFTER_S)
    one.settle()
    assert len(one.limits) == 0
    two = Replica(one.store, 2)
    two.ask(MOST, [])
    two.settle()
    assert two.used == MOST


def test_a_return_that_is_carried_out_late_takes_nothing_that_is_used() -> None:
    one, made = Replica(Store(), 1), list[File]()
    one.ask(10, made)
    one.ask(10, made)
    one.settle()
    one.files.pop()
    one.limits.receive_less("x")
    one.move(RETURNED_AFTER_S)
    late = one.under_way[0]
    one.answer(is_kept=False)
    one.ask(10, made)
    one.settle()
    assert one.used == 20
    assert isinstance(one.store.carry_out(late), Conflicted)


def test_a_record_of_another_release_is_kept() -> None:
    store = Store({"quota/x": (1, b"[]")}, 1)
    one = Replica(store, 1)
    one.ask(10, [])
    one.settle()
    assert "cannot be read" in one.answers[0]
    assert store.records["quota/x"] == (1, b"[]")


def test_a_change_that_others_keep_overtaking_fails() -> None:
    one = Replica(Store(), 1)
    one.ask(10, [])
    for number in range(2 * CONFLICTS_MAX + 1):
        assert not one.answers
        one.store.records["quota/x"] = 1000 + number, b"{}"
        one.answer()
    assert one.answers == ["too many replicas want room at once"]


def test_a_record_has_a_bounded_number_of_shares() -> None:
    store = Store()
    others = {f"a.{run}": Share((0,), UNIX_AT_ZERO + 1.0) for run in range(SHARES_MAX)}
    store.records["quota/x"] = 1, msgspec.json.encode(others)
    one = Replica(store, 1)
    one.ask(10, [])
    one.settle()
    assert one.answers == ["full"]
    one.move(SKEW_S + 2.0)
    one.ask(10, [])
    one.settle()
    assert one.used == 10
