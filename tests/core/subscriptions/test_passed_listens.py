"""Tests of the choice between a client's own subscription at the server and one that the proxy keeps for all."""

from __future__ import annotations

from itertools import product

from each_row import each_row
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.state.listen_filter import ListenFilter
from isthmus.core.subscriptions.passed_listens import passes

TOOLS, OWN = ListenFilter(tools=True), ListenFilter(resources=True)
KEEPS = {
    "sessions": {"is_stateless": False},
    "serial": {"sharing": Sharing.SERIAL},
    "concurrent": {"sharing": Sharing.CONCURRENT},
    "hidden tools": {"tools": NameFilter(include=("a",))},
    "hidden prompts": {"prompts": NameFilter(exclude=("a",))},
    "hidden resources": {"resources": NameFilter(exclude_regexes=("a",))},
    "own resources": {"own": OWN},
    "tasks": {"wanted": TOOLS | ListenFilter(tasks=frozenset({"t"}))},
}


def choice(**facts: object) -> bool:
    wanted, own = facts.pop("wanted", TOOLS), facts.pop("own", ListenFilter())
    is_stateless = facts.pop("is_stateless", True)
    return passes(ServerPlan(id="s", kind=Kind.PIPE, **facts), wanted, own, is_stateless=is_stateless)


def test_a_subscription_passes_if_nothing_keeps_it() -> None:
    for wanted in (TOOLS, OWN, ListenFilter(), ListenFilter(uris=frozenset({"a:1"}))):
        assert choice(wanted=wanted)


@each_row(("one", "other"), list(product(KEEPS, repeat=2)))
def test_each_reason_keeps_a_subscription_alone_and_with_any_other(one: str, other: str) -> None:
    assert not choice(**KEEPS[one] | KEEPS[other])
