"""A suspended call against a plain model: a list of questions that the server has asked and nobody has answered."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from isthmus.core.base.errors import LocalProtocolError, RemoteProtocolError
from isthmus.core.state.suspended_call import (
    TRANSITIONS,
    SuspendedCall,
    SuspendedCallInput,
    SuspendedCallState,
    SuspendedQuestion,
)


def wanted(number: int) -> SuspendedQuestion:
    return SuspendedQuestion(number, "roots/list", b'{"method":"roots/list"}')


def test_every_state_is_reached_by_inputs() -> None:
    """A call reaches each state through its own methods, not only along the table."""
    seen = set()
    call = SuspendedCall("p")
    seen.add(call.state)
    call.receive_question(wanted(1))
    seen.add(call.state)
    call.issue()
    seen.add(call.state)
    assert call.settle(b"outcome")
    seen.add(call.state)
    call.claim(1, {})
    seen.add(call.state)
    assert seen == set(SuspendedCallState)


@pytest.mark.parametrize("state", list(SuspendedCallState), ids=lambda state: state.value)
def test_an_input_without_a_row_is_refused(state: SuspendedCallState) -> None:
    """A claim and an issue that the state has no row for are refused, and the state stays."""
    call = SuspendedCall("p")
    call.state = state
    call.open = {"r1": wanted(1)}
    if SuspendedCallInput.CLAIM not in TRANSITIONS[state]:
        with pytest.raises(RemoteProtocolError):
            call.claim(0, {})
    if SuspendedCallInput.ISSUE not in TRANSITIONS[state]:
        with pytest.raises(LocalProtocolError):
            call.issue()
    assert call.state is state
    assert call.open


@dataclass
class Question:
    """An open question as the model knows it, with the key under which the client sees it."""

    key: str
    number: int


class SuspendedCallModel(RuleBasedStateMachine):
    """Runs question, withdrawal, issue, claim, settle and end in any order. The model keeps the open questions by key,
    and the round."""

    def __init__(self) -> None:
        super().__init__()
        self.suspended_call = SuspendedCall("p")
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
    def add_question(self) -> None:
        self.count += 1
        self.suspended_call.receive_question(wanted(self.count))
        self.waiting.append(Question(f"r{self.count}", self.count))

    @precondition(lambda self: not self.is_over)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.count))  # 0: one that was never asked
        self.suspended_call.receive_withdrawal(number)
        self.waiting = [question for question in self.waiting if question.number != number]
        self.withdrawn.add(number)

    @precondition(lambda self: not self.is_over and not self.is_away and self.waiting)
    @rule()
    def issue(self) -> None:
        entries = self.suspended_call.issue()
        assert list(entries) == [question.key for question in self.waiting]
        self.round += 1
        self.is_away = True
        self.shown |= set(entries)

    @precondition(lambda self: self.is_away)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """Claims with answers of this round, of earlier ones and of unknown keys; each open key is taken."""
        keys = data.draw(st.sets(st.sampled_from([f"r{n}" for n in range(self.count + 2)])))
        keys &= self.shown | {"r0", f"r{self.count + 1}"}
        taken = self.suspended_call.claim(self.round, dict.fromkeys(sorted(keys), b"{}"))
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
        before = self.suspended_call.state, dict(self.suspended_call.open)
        with pytest.raises(RemoteProtocolError):
            self.suspended_call.claim(round, {"r1": b"{}"})
        assert (self.suspended_call.state, self.suspended_call.open) == before

    @precondition(lambda self: not self.is_over and self.outcome is None)
    @rule()
    def settle(self) -> None:
        is_kept = self.suspended_call.settle(b"outcome")
        assert is_kept is self.is_away
        self.waiting = []
        if is_kept:
            self.outcome = b"outcome"
        else:
            self.is_over = True

    @rule()
    def end(self) -> None:
        self.suspended_call.end()
        self.waiting, self.outcome, self.is_away, self.is_over = [], None, False, True

    @invariant()
    def the_state_is_what_the_model_says(self) -> None:
        if self.is_over:
            expected = SuspendedCallState.GONE
        elif self.is_away:
            expected = SuspendedCallState.HELD if self.outcome is not None else SuspendedCallState.WAITING
        else:
            expected = SuspendedCallState.COLLECT if self.waiting else SuspendedCallState.RUN
        assert self.suspended_call.state is expected
        assert self.suspended_call.round == self.round
        assert self.suspended_call.has_request is (expected in (SuspendedCallState.RUN, SuspendedCallState.COLLECT))
        assert list(self.suspended_call.open) == [question.key for question in self.waiting]
        assert (
            self.suspended_call.outcome == (self.outcome if expected is SuspendedCallState.HELD else None)
            or expected is SuspendedCallState.GONE
        )


TestSuspendedCall = SuspendedCallModel.TestCase
TestSuspendedCall.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
