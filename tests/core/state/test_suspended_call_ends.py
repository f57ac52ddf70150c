"""The transitions of a suspended call, input by input, and the state that is left after its end."""

from __future__ import annotations

import pytest
from each_row import each_row
from isthmus.core.base.errors import INVALID_PARAMS, LocalProtocolError, RemoteProtocolError
from isthmus.core.state.suspended_call import (
    TRANSITIONS,
    SuspendedCall,
    SuspendedCallInput,
    SuspendedCallState,
    SuspendedQuestion,
    invalid_state,
)


def question(number: int) -> SuspendedQuestion:
    return SuspendedQuestion(number, "roots/list", b'{"method":"roots/list","n":%d}' % number)


def in_state(state: SuspendedCallState) -> SuspendedCall:
    """A call that came to the state through its own methods."""
    call = SuspendedCall("p")
    if state is SuspendedCallState.RUN:
        return call
    if state is SuspendedCallState.GONE:
        call.end()
        return call
    call.receive_question(question(1))
    if state is not SuspendedCallState.COLLECT:
        call.issue()
    if state is SuspendedCallState.HELD:
        call.settle(b"outcome")
    return call


@each_row("state", list(SuspendedCallState))
@each_row("input", list(SuspendedCallInput))
def test_each_input_leads_to_its_state(state: SuspendedCallState, input: SuspendedCallInput) -> None:
    """A call asks, is suspended, and goes on with the answers, or is over. Source: 2026-07-28 basic/patterns/mrtr."""
    expected = {
        (SuspendedCallState.RUN, SuspendedCallInput.ASK): SuspendedCallState.COLLECT,
        (SuspendedCallState.RUN, SuspendedCallInput.SETTLE): SuspendedCallState.GONE,
        (SuspendedCallState.RUN, SuspendedCallInput.END): SuspendedCallState.GONE,
        (SuspendedCallState.COLLECT, SuspendedCallInput.ISSUE): SuspendedCallState.WAITING,
        (SuspendedCallState.COLLECT, SuspendedCallInput.EMPTY): SuspendedCallState.RUN,
        (SuspendedCallState.COLLECT, SuspendedCallInput.SETTLE): SuspendedCallState.GONE,
        (SuspendedCallState.COLLECT, SuspendedCallInput.END): SuspendedCallState.GONE,
        (SuspendedCallState.WAITING, SuspendedCallInput.CLAIM): SuspendedCallState.RUN,
        (SuspendedCallState.WAITING, SuspendedCallInput.SETTLE): SuspendedCallState.HELD,
        (SuspendedCallState.WAITING, SuspendedCallInput.END): SuspendedCallState.GONE,
        (SuspendedCallState.HELD, SuspendedCallInput.CLAIM): SuspendedCallState.GONE,
        (SuspendedCallState.HELD, SuspendedCallInput.END): SuspendedCallState.GONE,
    }
    assert TRANSITIONS[state].get(input) is expected.get((state, input))


@pytest.mark.parametrize("state", list(SuspendedCallState))
def test_the_end_leaves_nothing(state: SuspendedCallState) -> None:
    """An end in any state, and a second one, leave no question and no outcome."""
    call = in_state(state)
    assert call.state is state
    assert call.has_request is (state in (SuspendedCallState.RUN, SuspendedCallState.COLLECT))
    for _ in range(2):
        call.end()
        assert (call.state, call.open, call.outcome) == (SuspendedCallState.GONE, {}, None)
        assert call.is_over and not call.has_request


@pytest.mark.parametrize("state", [SuspendedCallState.RUN, SuspendedCallState.COLLECT, SuspendedCallState.WAITING])
def test_an_outcome_is_kept_while_the_client_is_away(state: SuspendedCallState) -> None:
    call = in_state(state)
    is_away = state is SuspendedCallState.WAITING
    assert call.settle(b"outcome") is is_away
    assert call.outcome == (b"outcome" if is_away else None)
    assert call.open == {}
    assert call.state is (SuspendedCallState.HELD if is_away else SuspendedCallState.GONE)


@pytest.mark.parametrize("state", list(SuspendedCallState))
@pytest.mark.parametrize("round", [0, 1, 2])
def test_a_round_is_claimed_while_its_client_is_away(state: SuspendedCallState, round: int) -> None:
    """All other claims are refused with one error."""
    call = in_state(state)
    if state in (SuspendedCallState.WAITING, SuspendedCallState.HELD) and round == 1:
        call.check_round(round)
        return
    with pytest.raises(RemoteProtocolError) as caught:
        call.check_round(round)
    assert caught.value.message == invalid_state().message == "Invalid or expired requestState"
    assert (caught.value.rpc_code, caught.value.data) == (INVALID_PARAMS, {"reason": "invalid_request_state"})
    assert call.state is state


def test_keys_and_rounds_are_counted_from_one() -> None:
    """Keys go on over the rounds; a question asked while the client is away belongs to the next round."""
    call = SuspendedCall("p")
    assert (call.round, call.ticks, call.missed, call.progress) == (0, 0, [], None)
    for number in (4, 5):
        call.receive_question(question(number))
    assert call.issue() == {"r1": question(4).entry, "r2": question(5).entry}
    call.receive_question(question(6))
    assert call.state is SuspendedCallState.WAITING
    assert call.claim(1, {"r1": b"{}", "r9": b"{}"}) == [(question(4), b"{}")]
    assert call.state is SuspendedCallState.COLLECT
    assert call.issue() == {"r2": question(5).entry, "r3": question(6).entry}
    assert call.round == 2
    call.receive_withdrawal(5)
    assert list(call.open) == ["r3"]
    assert call.claim(2, {"r2": b"{}", "r3": b"[]"}) == [(question(6), b"[]")]
    assert call.state is SuspendedCallState.RUN


@pytest.mark.parametrize("state", list(SuspendedCallState))
def test_an_error_names_the_state_and_the_input(state: SuspendedCallState) -> None:
    """The error holds the names of the state and of the input."""
    for given in set(SuspendedCallInput) - set(TRANSITIONS[state]):
        call = in_state(state)
        with pytest.raises(LocalProtocolError) as caught:
            call.step(given)
        message = f"SuspendedCall is {state.name.lower()}: {given.name.lower()} is not possible there"
        assert str(caught.value).startswith(message)
        assert call.state is state
