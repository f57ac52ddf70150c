"""Tests of the tombstones: the reasons of the latest gone files are kept for some time, and say how long ago a file
went."""

from __future__ import annotations

import pytest
from isthmus.core.files.store.tombstones import Ending, Owner, Tombstones

ANN = Owner("s", "ann", "S", is_bearer=False, is_restored=False)


def buried(*ids: str, tombstones_max: int = 10, ttl_s: float = 1e6, why: Ending = Ending.EXPIRED) -> Tombstones:
    tombstones = Tombstones(tombstones_max=tombstones_max, ttl_s=ttl_s)
    for at, id in enumerate(ids):
        tombstones.bury("upload", id, ANN, why, float(at))
    return tombstones


@pytest.mark.parametrize(
    ("seconds", "ago"),
    [
        (0.0, "just now"),
        (0.9, "just now"),
        (1.0, "1 second ago"),
        (1.9, "1 second ago"),
        (2.0, "2 seconds ago"),
        (59.9, "59 seconds ago"),
        (60.0, "1 minute ago"),
        (119.0, "1 minute ago"),
        (120.0, "2 minutes ago"),
        (3599.0, "59 minutes ago"),
        (3600.0, "1 hour ago"),
        (7200.0, "2 hours ago"),
        (86_399.0, "23 hours ago"),
        (86_400.0, "1 day ago"),
        (172_800.0, "2 days ago"),
    ],
)
def test_the_time_since_the_end_is_in_whole_units(seconds: float, ago: str) -> None:
    assert buried("a").find("upload", "S", "a", seconds) == (ANN, f"it expired {ago}")


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (Ending.EXPIRED, "it expired just now"),
        (Ending.EVICTED, "it made room for newer files just now"),
        (Ending.DELETED, "an operator deleted it just now"),
        (Ending.CLOSED, "it ended with its session just now"),
    ],
)
def test_each_reason_has_a_text(why: Ending, text: str) -> None:
    assert buried("a", why=why).find("upload", "S", "a", 0.0) == (ANN, text)


def test_a_tombstone_is_found_by_kind_session_and_id() -> None:
    tombstones = buried("a")
    assert tombstones.find("artifact", "S", "a", 0.0) is None
    assert tombstones.find("upload", "T", "a", 0.0) is None
    assert tombstones.find("upload", "S", "b", 0.0) is None


def test_a_tombstone_is_read_for_so_long() -> None:
    tombstones = buried("a", ttl_s=5.0)
    assert tombstones.find("upload", "S", "a", 4.9) is not None
    assert tombstones.find("upload", "S", "a", 5.0) is None


def test_beyond_so_many_the_oldest_is_forgotten() -> None:
    """A file that is buried again is the newest."""
    tombstones = buried("a", "b", "a", "c", tombstones_max=2)
    assert len(tombstones) == 2
    assert [tombstones.find("upload", "S", id, 3.0) is not None for id in "abc"] == [True, False, True]


def test_an_end_is_counted_by_its_name() -> None:
    """Metrics count the ends by these names."""
    assert {why: why.value for why in Ending} == {why: why.name.lower() for why in Ending}


def test_a_later_burial_replaces_an_earlier_one() -> None:
    """Owner, reason and time are those of the later call."""
    tombstones = buried("a")
    bob = Owner("t", "bob", "S", is_bearer=True, is_restored=True)
    tombstones.bury("upload", "a", bob, Ending.DELETED, 7.0)
    assert tombstones.find("upload", "S", "a", 9.0) == (bob, "an operator deleted it 2 seconds ago")
    assert len(tombstones) == 1
