"""Tests of shrinking: a failing world is made smaller, and the smaller world can be named and made again."""

from __future__ import annotations

from functools import partial
from typing import Any

import masks
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.routing.dispatcher import Dispatcher
from shrinking import shrink
from simulation import run_world

OWNERS = st.sampled_from(("far", "narrow", "s0", "c1", "c12", "x", "n103"))


@given(parts=st.dictionaries(OWNERS, st.sets(st.integers(0, 20))))
def test_a_name_lists_the_kept_parts(parts: dict[str, set[int]]) -> None:
    kept = {*parts, *(f"{owner}.{number}" for owner, numbers in parts.items() for number in numbers)}
    assert masks.parse(masks.format("17", kept)) == ("17", kept)


def test_a_seed_keeps_all_and_runs_are_written_short() -> None:
    assert masks.parse("17") == ("17", None)
    assert masks.parse("17/") == ("17", frozenset())
    assert masks.format("17", ("far", "c1", "c1.3", "c1.8", "c1.9", "c1.10")) == "17/far,c1.3.8-10"


@pytest.mark.parametrize("name", ["17/S", "17/c1.", "17/c1.x", "17/c1.2-", "17/c1/c2"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected a part"):
        masks.parse(name)


def _keep_what_was_answered(patch: pytest.MonkeyPatch) -> None:
    """Plants a fault: the engine keeps waiting for a response that has come."""
    receive_reply = Dispatcher._receive_reply

    def faulty(self: Any, link: Any, role: Any, frame: Any, number: int) -> None:
        entry = link.pending.get(number)
        receive_reply(self, link, role, frame, number)
        if entry is not None:
            link.pending[number] = entry

    patch.setattr(Dispatcher, "_receive_reply", faulty)


def test_a_planted_fault_is_shown_in_a_small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client, one server, the fault it takes and a few operations are left of hundreds. Nothing more can be left
    out."""
    _keep_what_was_answered(monkeypatch)
    run = partial(run_world, is_checked=False)
    failed = run("4")
    assert failed.checker.startswith("LocalProtocolError state_machine.py step")
    smallest = shrink(failed, run=run)
    assert smallest.parts[0] == "twice"
    assert len(smallest.who) == 2
    assert len(smallest.parts) <= 6 < 300 < len(failed.parts)
    assert smallest.messages <= 25
    again = run(smallest.seed)
    assert (again.history, again.checker) == (smallest.history, failed.checker)
    seed, kept = masks.parse(smallest.seed)
    assert kept is not None
    for part in kept:
        left = {other for other in kept if part not in (other, other.partition(".")[0])}
        assert run(masks.format(seed, left)).checker != failed.checker, part
    monkeypatch.undo()
    assert run(smallest.seed).wrong == ""


def test_tries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _keep_what_was_answered(monkeypatch)
    tried: list[str] = []

    def run(name: str) -> Any:
        tried.append(name)
        return run_world(name, is_checked=False)

    shrink(run("4"), tries_max=5, run=run)
    assert len(tried) == 6
