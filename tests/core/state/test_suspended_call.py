"""The park of one call, against a plain model: a list of what the server has asked and nobody has answered."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from isthmus.core.base.errors import LocalProtocolError, RemoteProtocolError
from isthmus.core.state.suspended_call import TRANSITIONS, Input, Park, State, Wanted


def wanted(number: int) -> Wanted:
    return Wanted(number, "roots/list", b'{"method":"roots/list"}')


def test_a_machine_that_begins_can_come_to_every_state() -> None:
    """By its own inputs, not only along the table: each state is one that a call can be in."""
    seen = set()
    park = Park("p")
    seen.add(park.state)
    park.receive_question(wanted(1))
    seen.add(park.state)
    park.issue()
    seen.add(park.state)
    assert park.settle(b"outcome")
    seen.add(park.state)
    park.claim(1, {})
    seen.add(park.state)
    assert seen == set(State)


@pytest.mark.parametrize("state", list(State), ids=lambda state: state.value)
def test_what_no_row_allows_changes_nothing(state: State) -> None:
    """A claim and an issue that the state has no row for are refused, and the state stays."""
    park = Park("p")
    park.state = state
    park.open = {"r1": wanted(1)}
    if Input.CLAIM not in TRANSITIONS[state]:
        with pytest.raises(RemoteProtocolError):
            park.claim(0, {})
    if Input.ISSUE not in TRANSITIONS[state]:
        with pytest.raises(LocalProtocolError):
            park.issue()
    assert park.state is state
    assert park.open


@dataclass
class Question:
    """One question as the model knows it: in which round the client saw it first, and whether somebody waits for it."""

    key: str
    number: int


class ParkWorld(RuleBasedStateMachine):
    """Ask, withdraw, issue, claim, settle and end in any order. The model keeps what waits, by key, and the round."""

    def __init__(self) -> None:
        super().__init__()
        self.park = Park("p")
        self.count = 0
        self.waiting: list[Question] = []
        self.shown: set[str] = set()
        self.answered: list[int] = []
        self.withdrawn: set[int] = set()
        self.round = 0
        self.claimed: set[int] = set()
        self.is_away = False
        self.outcome: bytes | None = None
        self.is_over = False

    @precondition(lambda self: not self.is_over and self.outcome is None)
    @rule()
    def ask(self) -> None:
        self.count += 1
        self.park.receive_question(wanted(self.count))
        self.waiting.append(Question(f"r{self.count}", self.count))

    @precondition(lambda self: not self.is_over)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.count))  # 0: one that was never asked
        self.park.receive_withdrawal(number)
        self.waiting = [question for question in self.waiting if question.number != number]
        self.withdrawn.add(number)

    @precondition(lambda self: not self.is_over and not self.is_away and self.waiting)
    @rule()
    def issue(self) -> None:
        entries = self.park.issue()
        assert list(entries) == [question.key for question in self.waiting]
        self.round += 1
        self.is_away = True
        self.shown |= set(entries)

    @precondition(lambda self: self.is_away)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """The answers of the round, of earlier ones and of none at all; each key that waits is taken."""
        keys = data.draw(st.sets(st.sampled_from([f"r{n}" for n in range(self.count + 2)])))
        keys &= self.shown | {"r0", f"r{self.count + 1}"}
        taken = self.park.claim(self.round, dict.fromkeys(sorted(keys), b"{}"))
        self.claimed.add(self.round)
        self.is_away = False
        if self.outcome is not None:
            assert not taken
            self.is_over = True
            return
        expected = [question.number for question in self.waiting if question.key in keys]
        assert sorted(one.number for one, _ in taken) == expected
        assert not set(expected) & self.withdrawn, "a withdrawn question is never answered"
        assert not set(expected) & set(self.answered), "none is answered twice"
        self.answered += expected
        self.waiting = [question for question in self.waiting if question.key not in keys]

    @rule(round=st.integers(0, 20))
    def claim_in_vain(self, round: int) -> None:
        """A round is claimed once, and only while its client is away."""
        if self.is_away and round == self.round:
            return
        before = self.park.state, dict(self.park.open)
        with pytest.raises(RemoteProtocolError):
            self.park.claim(round, {"r1": b"{}"})
        assert (self.park.state, self.park.open) == before

    @precondition(lambda self: not self.is_over and self.outcome is None)
    @rule()
    def settle(self) -> None:
        is_kept = self.park.settle(b"outcome")
        assert is_kept is self.is_away
        self.waiting = []
        if is_kept:
            self.outcome = b"outcome"
        else:
            self.is_over = True

    @rule()
    def end(self) -> None:
        self.park.end()
        self.waiting, self.outcome, self.is_away, self.is_over = [], None, False, True

    @invariant()
    def the_state_is_what_the_model_says(self) -> None:
        if self.is_over:
            expected = State.GONE
        elif self.is_away:
            expected = State.HELD if self.outcome is not None else State.PARKED
        else:
            expected = State.COLLECT if self.waiting else State.RUN
        assert self.park.state is expected
        assert self.park.round == self.round
        assert self.park.has_leg is (expected in (State.RUN, State.COLLECT))
        assert list(self.park.open) == [question.key for question in self.waiting]
        assert self.park.outcome == (self.outcome if expected is State.HELD else None) or expected is State.GONE


TestPark = ParkWorld.TestCase
TestPark.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
