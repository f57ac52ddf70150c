"""Tests of the choice between the addresses of a server: balanced, never an ill one where one is well, and sticky."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.revisions import Era
from isthmus.core.upstream.addresses import Addresses, is_of_address

LIMITS = Limits(crash_loop_pause_s=10.0, crash_loop_pause_max_s=60.0)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, 9), st.sets(st.integers(0, 3))),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("fail"), st.integers(0, 3)),
        st.tuples(st.just("succeed"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from([1, 9, 10, 11, 20, 60, 61])),
    ),
    max_size=60,
)


@given(count=st.integers(1, 4), steps=STEPS)
def test_a_link_gets_the_emptiest_well_address_and_stays_there(count: int, steps: list[tuple]) -> None:
    """The model is told which addresses are well, and keeps the places of all links itself."""
    addresses, now, places = Addresses([f"https://{n}/" for n in range(count)], LIMITS), 0.0, dict[str, int]()
    for step, *told in steps:
        if step == "place":
            link, besides = str(told[0]), told[1]
            well = {place for place in range(count) if addresses.all[place].is_well(now)}
            links = Counter(place for other, place in places.items())
            left, before = set(range(count)) - besides, places.get(link)
            chosen = addresses.place(link, now, besides=besides)
            if chosen is None:
                assert not left, "there was another"
            else:
                assert chosen in left
                assert chosen in well or not left & well, "an ill one was chosen, and one is well"
                assert chosen not in well or links[chosen] == min(links[each] for each in left & well)
                places[link] = chosen
            assert chosen is not None or places.get(link) == before
        elif step == "leave":
            addresses.leave(str(told[0]))
            places.pop(str(told[0]), None)
        elif step == "wait":
            now += told[0]
        elif told[0] < count and step == "fail":
            addresses.receive_failure(told[0], "no", now)
            assert not addresses.all[told[0]].is_well(now)
            assert addresses.all[told[0]].is_well(now + LIMITS.crash_loop_pause_max_s), "the pause has a bound"
        elif told[0] < count:
            addresses.receive_success(told[0])
            assert addresses.all[told[0]].is_well(now)
        assert [address.links for address in addresses.all] == [[*places.values()].count(n) for n in range(count)]


@given(count=st.integers(1, 5), links=st.integers(0, 40))
def test_links_are_balanced_within_one(count: int, links: int) -> None:
    addresses = Addresses(["a"] * count, LIMITS)
    for link in range(links):
        addresses.place(str(link), 0.0)
        counts = [address.links for address in addresses.all]
        assert max(counts) - min(counts) <= 1


def test_of_equal_addresses_the_one_is_chosen_that_was_not_for_longest() -> None:
    """Links that follow each other, each over before the next one comes, go round."""
    addresses, chosen = Addresses("abc", LIMITS), []
    for _ in range(7):
        chosen.append(addresses.place("x", 0.0))
        addresses.leave("x")
    assert chosen == [0, 1, 2, 0, 1, 2, 0]


def test_the_pause_doubles_up_to_its_bound_and_one_link_tries_the_address_after_it() -> None:
    addresses, now, pauses = Addresses("ab", LIMITS), 0.0, []
    for _ in range(5):
        addresses.receive_failure(0, "no", now)
        addresses.receive_failure(0, "no again", now)  # within the pause: it stays as long
        begun = now
        while not addresses.all[0].is_well(now):
            now += 1.0
        pauses.append(now - begun)
        for link in "xyz":
            addresses.leave(link)
        assert [addresses.place(link, now) for link in "xyz"] == [0, 1, 1], "all but one leave it alone"
    assert pauses == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert addresses.all[0].last_error == "no again"
    addresses.receive_success(0)
    assert addresses.place("w", now) == 0


def test_an_address_whose_try_has_no_outcome_is_tried_again_after_as_long() -> None:
    addresses = Addresses("ab", LIMITS)
    addresses.receive_failure(0, "no", 0.0)
    assert [addresses.place("x", 10.0), addresses.place("y", 10.0)] == [0, 1]
    addresses.leave("x")
    assert [addresses.place("z", 19.0), addresses.place("x", 20.0)] == [1, 0]


def test_where_none_is_well_the_one_is_tried_whose_pause_ends_first() -> None:
    addresses = Addresses("abc", LIMITS)
    for place in (2, 0, 1):
        addresses.receive_failure(place, "no", place + 1.0)
    assert addresses.place("x", 4.0) == 0
    assert addresses.place("x", 4.0, besides={0}) == 1
    assert addresses.place("x", 4.0, besides={0, 1, 2}) is None
    addresses.receive_order()
    assert all(address.is_well(4.0) and not address.failures for address in addresses.all)


def test_a_session_leaves_its_address_only_after_a_whole_pause() -> None:
    addresses = Addresses("ab", LIMITS)
    addresses.receive_failure(0, "no", 0.0)
    addresses.receive_failure(0, "no", 9.0)
    assert addresses.is_left_for_good(0, 9.0, has_session=False)
    assert not addresses.is_left_for_good(0, 9.0, has_session=True)
    addresses.receive_failure(0, "no", 10.0)
    assert addresses.is_left_for_good(0, 10.0, has_session=True)
    addresses.receive_failure(1, "no", 10.0)
    assert not addresses.is_left_for_good(0, 10.0, has_session=False), "there is no better one"


def test_a_link_of_an_earlier_run_goes_to_the_address_of_that_name() -> None:
    addresses = Addresses("ab", LIMITS)
    assert [addresses.keep("x", "b", 0.0), addresses.keep("y", "gone", 0.0)] == [1, 0]
    assert [address.links for address in addresses.all] == [1, 1]


@pytest.mark.parametrize("era", Era)
def test_only_what_another_address_may_change_is_of_the_address(era: Era) -> None:
    """Each way to end, and each status, has its answer; a cut at `server/discover` may be for want of that method."""
    is_cut = era is Era.HANDSHAKE
    expected = {End.DONE: False, End.REFUSED: False, End.UNREACHABLE: True}
    for end in End:
        assert is_of_address(Cause(end), era) is expected.get(end, is_cut), end
        assert not is_of_address(Cause(end, is_ours=True), era)
    moved = [status for status in range(300, 600) if is_of_address(Cause(End.REFUSED, status=status), era)]
    assert moved == [502, 503, 504]
