"""A budget is never overdrawn, neither by all nor by one, and what is given back can be taken again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.budget import Budget, Share, address_owner, owner_of

OWNERS = ("", "a", "b")


@given(steps=st.lists(st.tuples(st.sampled_from(OWNERS), st.integers(0, 7), st.booleans()), max_size=40))
def test_a_budget_is_the_sum_of_what_its_owners_hold(steps: list[tuple[str, int, bool]]) -> None:
    budget = Budget(limit=12, owner_limit=7)
    held = dict.fromkeys(OWNERS, 0)
    for owner, amount, gives in steps:
        if gives:
            amount = min(amount, held[owner])
            if held[owner]:
                budget.give_back(owner, amount)
                held[owner] -= amount
        else:
            has_room = sum(held.values()) + amount <= 12 and (not owner or held[owner] + amount <= 7)
            assert budget.has_room(owner, amount) is has_room
            assert budget.take(owner, amount) is has_room
            held[owner] += amount if has_room else 0
        assert budget.used == sum(held.values())
        assert budget.is_full_for("a", 3) is (held["a"] > 4)


def test_a_share_has_a_limit_of_its_own_and_gives_all_back() -> None:
    budget = Budget(limit=100, owner_limit=60)
    one, other = Share(budget, "a", 50), Share(budget, "a")
    assert one.take(50)
    assert not one.take(1), "its own limit"
    assert not other.take(11), "that of its owner"
    assert other.take(10)
    one.give_back(20)
    assert (one.amount, other.amount, budget.used) == (30, 10, 40)
    one.give_all_back()
    one.give_all_back()
    other.give_all_back()
    assert budget.used == 0
    assert one.take(50), "its owner has nothing left"


@pytest.mark.parametrize(
    ("host", "owner"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("::1", "::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("no:address", ""),
    ],
)
def test_an_address_stands_for_its_network(host: str, owner: str) -> None:
    assert address_owner(host) == owner


def test_a_principal_counts_wherever_it_comes_from() -> None:
    assert owner_of("ann", "192.0.2.7") == owner_of("ann", "192.0.2.8") != owner_of("", "192.0.2.7")
    assert owner_of("192.0.2.7", "") != owner_of("", "192.0.2.7"), "no principal can pretend to be an address"
