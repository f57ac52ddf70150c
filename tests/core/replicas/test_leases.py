"""Leases: at most one replica has a tag, one that is gone is found out, and no outage of the store costs a lease."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.replica import ReplicaName
from isthmus.core.replicas.leases import (
    LEASE_S,
    REPLICAS_MAX,
    SCAN_EVERY_S,
    TRANSITIONS,
    Leases,
    LeaseState,
    Peer,
    Save,
    Scan,
)
from isthmus.core.replicas.records import ADDRESS_MAX_CHARS, Lease, encode
from lease_worlds import Replica, World

GONE_S = int(LEASE_S) + 3 + 1
"""Seconds after which a replica that died is gone: a lease, an interval between two reads, and a turn of the world."""

OFFSETS = st.tuples(*[st.sampled_from((0.0, -60.0, 60.0, 1e9))] * 3)


def test_the_table_uses_every_state() -> None:
    assert set(TRANSITIONS) == set(LeaseState)
    assert {state for row in TRANSITIONS.values() for state in row.values()} | {LeaseState.TAKING} == set(LeaseState)


# --- Faults ---------------------------------------------------------------------------------------------------------

FAULTS: dict[str, Callable[[World, Replica], None]] = {
    "store goes": lambda world, _: setattr(world.store, "is_away", True),
    "store loses answers and goes": lambda world, _: (
        setattr(world.store, "is_away", True),
        setattr(world.store, "loses_answers", True),
    ),
    "store is read-only": lambda world, _: setattr(world.store, "is_read_only", True),
    "store comes back": lambda world, _: [setattr(world.store, n, False) for n in ("is_away", "is_read_only")],
    "store loses one answer": lambda _, replica: setattr(replica, "loses_answer", True),
    "pause": lambda _, replica: setattr(replica, "is_paused", True),
    "go on": lambda _, replica: setattr(replica, "is_paused", False),
    "cut off": lambda _, replica: setattr(replica, "is_cut_off", True),
    "reach": lambda _, replica: setattr(replica, "is_cut_off", False),
    "kill": lambda _, replica: setattr(replica, "is_dead", True),
    "stop": lambda world, replica: None if replica.is_paused else replica.stop(world.now),
    "start again": lambda world, replica: world.start(replica.leases.own.tag),
}
OF_THE_STORE = [name for name in FAULTS if name.startswith("store")]


def steps(faults: list[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    return st.lists(st.tuples(st.sampled_from(faults), st.integers(0, 9), st.integers(0, 20)), max_size=14)


def lived(offsets_s: tuple[float, ...], story: list[tuple[str, int, int]], tags: str = "aab") -> World:
    world = World(offsets_s)
    for tag in tags:
        world.start(tag)
    for name, which, seconds in story:
        FAULTS[name](world, world.replicas[which % len(world.replicas)])
        world.go_on(seconds)
    return world


@settings(max_examples=100)
@given(story=steps(list(FAULTS)), offsets_s=OFFSETS)
def test_a_tag_goes_from_run_to_run_and_never_back(
    story: list[tuple[str, int, int]], offsets_s: tuple[float, ...]
) -> None:
    """A run that has lost its lease never saves it again, and knows it after its next renewal, whatever happens."""
    world = lived(offsets_s, story)
    for key in ("replica/a", "replica/b"):
        runs = [run for run, _ in groupby(run for saved, run in world.store.history if saved == key)]
        assert len(runs) == len(set(runs))
    for replica in world.replicas:
        replica.is_paused = replica.is_cut_off = replica.loses_answer = False
    world.store.is_away = world.store.is_read_only = False
    world.go_on(3 + 1)
    for tag in "ab":
        holders = [replica for replica in world.replicas if replica.holds and replica.leases.own.tag == tag]
        assert len(holders) <= 1
        assert all(replica.leases.own.run.encode() in world.store.records[f"replica/{tag}"][0] for replica in holders)


@settings(max_examples=100)
@given(story=steps(OF_THE_STORE), offsets_s=OFFSETS)
def test_a_store_that_was_away_costs_nobody_a_lease(
    story: list[tuple[str, int, int]], offsets_s: tuple[float, ...]
) -> None:
    """All leases are held after it was away for long, could save nothing, or saved later than it had answered."""
    world = lived(offsets_s, [("store comes back", 0, 5), *story, ("store comes back", 0, 30)], tags="abc")
    assert [replica.leases.state for replica in world.replicas] == [LeaseState.HELD] * 3
    assert world.replicas[0].leases.replica_count == 3
    saved = len(world.store.history)
    world.go_on(3)
    assert sorted(key for key, _ in world.store.history[saved:]) == ["replica/a", "replica/b", "replica/c"]


@settings(max_examples=100)
@given(story=steps(list(FAULTS)), offsets_s=OFFSETS)
def test_clocks_that_differ_change_nothing(story: list[tuple[str, int, int]], offsets_s: tuple[float, ...]) -> None:
    assert lived(offsets_s, story).store.history == lived((0.0,), story).store.history


@settings(max_examples=100)
@given(story=steps(list(FAULTS)), offsets_s=OFFSETS)
def test_one_that_died_is_gone_after_a_lease(story: list[tuple[str, int, int]], offsets_s: tuple[float, ...]) -> None:
    """A lease of a dead process is deleted once another replica can use the store."""
    world = lived(offsets_s, story)
    world.store.is_away = world.store.is_read_only = False
    for replica in world.replicas:
        replica.is_dead = True
    other = world.start("c")
    world.go_on(GONE_S + 3)
    assert set(world.store.records) == {"replica/c"}
    assert other.leases.replica_count == 1


# --- The hard cases, one by one -------------------------------------------------------------------------------------


def test_a_holder_that_was_paused_learns_that_it_is_gone() -> None:
    world = World()
    one, other = world.start("a"), world.start("b")
    world.go_on(5)
    assert other.leases.find("a") == Peer("a", one.leases.own.run, "http://a:1")
    one.is_paused = True
    world.go_on(GONE_S)
    assert other.leases.find("a") is None
    successor = world.start("a")
    assert (successor.holds, one.holds) == (True, True)
    one.is_paused = False
    one.turn(world.now)
    assert (successor.holds, one.leases.state) == (True, LeaseState.LOST)
    assert one.leases.rival is not None
    assert one.leases.rival.lease is not None
    assert one.leases.rival.lease.run == successor.leases.own.run


def test_a_second_replica_of_one_tag_does_not_start() -> None:
    world = World()
    one = world.start("a", place="here")
    world.go_on(1)
    other = world.start("a", place="there")
    assert other.leases.state is LeaseState.TAKING
    world.go_on(6)
    assert (one.holds, other.leases.state) == (True, LeaseState.REFUSED)
    assert other.leases.rival is not None
    assert other.leases.rival.lease is not None
    assert other.leases.rival.lease.run == one.leases.own.run
    world.go_on(30)
    assert one.holds


@pytest.mark.parametrize(("place", "waits_s"), [("here", 0), ("there", int(LEASE_S) + 3), ("", int(LEASE_S) + 3)])
def test_the_lease_of_a_dead_run_is_taken_over(place: str, waits_s: int) -> None:
    """A process that has bound the same socket takes it over at once, any other after a lease."""
    world = World()
    one = world.start("a", place="here")
    world.go_on(5)
    one.is_dead = True
    other = world.start("a", place=place)
    for _ in range(waits_s):
        assert not other.holds
        world.go_on(1)
        if other.holds:
            break
    assert other.holds
    assert world.now - 5 >= (LEASE_S if waits_s else 0)


def test_a_lease_that_is_given_back_is_free() -> None:
    world = World()
    one, other = world.start("a"), world.start("b")
    world.go_on(4)
    one.stop(world.now)
    assert set(world.store.records) == {"replica/b"}
    assert world.start("a").holds
    assert other.holds


def test_a_machine_that_stood_still_kills_nobody() -> None:
    """All of its replicas were paused, and the first to go on sees leases that are old and unchanged."""
    world = World()
    replicas = [world.start(tag) for tag in "abc"]
    world.go_on(20)
    world.now += 3600.0
    world.go_on(30)
    assert all(replica.holds for replica in replicas)
    late = world.start("a")
    world.now += 3600.0
    late.turn(world.now)
    world.go_on(30)
    assert replicas[0].holds


def test_one_that_cannot_renew_deletes_nobody() -> None:
    """A replica whose renewals fail reads on, and knows that those of others may fail, too."""
    now, leases = 0.0, Leases(ReplicaName("a", "0" * 32), now=0.0)
    frozen = ("replica/b", encode(Lease("1" * 32)), 7)
    assert isinstance(leases.handle_timeout(now)[0], Scan)
    assert isinstance(leases.receive_scan([frozen], now)[0], Save)
    leases.receive_saved(8, now)
    for _ in range(30):
        now += 1.0
        for order in leases.handle_timeout(now):
            if isinstance(order, Save):
                leases.receive_failed(now)
            assert leases.receive_scan([frozen], now) == []
    assert leases.replica_count == 2


def test_a_renewal_that_took_effect_late_is_followed_by_another() -> None:
    """The other follows at once: the late one is the last that others have seen."""
    world = World()
    one = world.start("a")
    one.loses_answer = True
    world.go_on(3)
    saved = len(world.store.history)
    world.go_on(3)
    assert len(world.store.history) == saved + 1
    assert one.holds


def test_records_that_cannot_be_read_are_kept() -> None:
    """A later version of Isthmus may have written them: nothing is known of how it renews them."""
    world = World()
    unreadable = encode(Lease("7" * 32, "http://" + "z" * ADDRESS_MAX_CHARS))
    world.store.records["replica/z"] = (unreadable, 1)
    world.store.records["replica/not-a-tag"] = (b"", 2)
    one = world.start("a")
    world.go_on(60)
    assert one.leases.find("z") == Peer("z", "", "")
    assert one.leases.replica_count == 2
    assert set(world.store.records) == {"replica/a", "replica/not-a-tag", "replica/z"}
    assert world.start("z").leases.state is LeaseState.REFUSED


def test_tags_that_are_not_known_are_looked_up_once_a_second() -> None:
    world = World()
    leases = world.start("a").leases
    world.go_on(1)
    leases.receive_wish(world.now)
    (order,) = leases.handle_timeout(world.now)
    assert isinstance(order, Scan)
    assert leases.receive_scan([("replica/b", encode(Lease("1" * 32, "unix:/b")), 5)], world.now) == []
    assert leases.find("b") == Peer("b", "1" * 32, "unix:/b")
    leases.receive_wish(world.now + 0.5)
    deadline = leases.next_timeout()
    assert deadline is not None
    assert deadline.at == world.now + SCAN_EVERY_S
    assert leases.handle_timeout(world.now + 0.9) == []


def test_a_store_has_so_many_replicas() -> None:
    world = World()
    full = [(f"replica/{n:x}", encode(Lease(f"{n:032x}")), n + 1) for n in range(REPLICAS_MAX)]
    world.store.records = {key: (value, version) for key, value, version in full}
    world.store.last_version = REPLICAS_MAX
    refused = world.start("zz")
    assert (refused.leases.state, refused.leases.rival) == (LeaseState.REFUSED, None)
    del world.store.records["replica/0"]
    assert world.start("zz").holds
