"""What is said of files that are gone: of the latest so many, for so long, and how long ago it was."""

from __future__ import annotations

import pytest
from isthmus.core.files.store.tombstones import Ending, Owner, Tombs

ANN = Owner("s", "ann", "S", is_bearer=False, is_restored=False)


def buried(*ids: str, tombs_max: int = 10, ttl_s: float = 1e6, why: Ending = Ending.EXPIRED) -> Tombs:
    tombs = Tombs(tombs_max=tombs_max, ttl_s=ttl_s)
    for at, id in enumerate(ids):
        tombs.bury("upload", id, ANN, why, float(at))
    return tombs


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
def test_how_long_ago_is_told_in_whole_units(seconds: float, ago: str) -> None:
    assert buried("a").find("upload", "S", "a", seconds) == (ANN, f"it expired {ago}")


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (Ending.EXPIRED, "it expired just now"),
        (Ending.EVICTED, "it made room for newer files just now"),
        (Ending.DELETED, "an operator deleted it just now"),
        (Ending.CLOSED, "it ended with its session just now"),
    ],
)
def test_each_end_has_its_words(why: Ending, said: str) -> None:
    assert buried("a", why=why).find("upload", "S", "a", 0.0) == (ANN, said)


def test_a_file_is_found_by_all_of_its_name() -> None:
    tombs = buried("a")
    assert tombs.find("artifact", "S", "a", 0.0) is None
    assert tombs.find("upload", "T", "a", 0.0) is None
    assert tombs.find("upload", "S", "b", 0.0) is None


def test_a_tomb_is_read_for_so_long() -> None:
    tombs = buried("a", ttl_s=5.0)
    assert tombs.find("upload", "S", "a", 4.9) is not None
    assert tombs.find("upload", "S", "a", 5.0) is None


def test_beyond_so_many_the_oldest_is_forgotten() -> None:
    """Who is buried again is the newest."""
    tombs = buried("a", "b", "a", "c", tombs_max=2)
    assert len(tombs) == 2
    assert [tombs.find("upload", "S", id, 3.0) is not None for id in "abc"] == [True, False, True]


def test_an_end_is_counted_by_its_name() -> None:
    """An operator reads how many files went, and why."""
    assert {why: why.value for why in Ending} == {why: why.name.lower() for why in Ending}


def test_who_buries_one_again_says_what_holds() -> None:
    """Whose it was, why and when: all of it is the later one's."""
    tombs = buried("a")
    bob = Owner("t", "bob", "S", is_bearer=True, is_restored=True)
    tombs.bury("upload", "a", bob, Ending.DELETED, 7.0)
    assert tombs.find("upload", "S", "a", 9.0) == (bob, "an operator deleted it 2 seconds ago")
    assert len(tombs) == 1
