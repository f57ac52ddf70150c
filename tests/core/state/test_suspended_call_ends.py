"""Where each input leads a call that may be parked, and what is left of one that has ended."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import INVALID_PARAMS, LocalProtocolError, RemoteProtocolError
from isthmus.core.state.suspended_call import TRANSITIONS, Input, Park, State, Wanted, invalid_state


def question(number: int) -> Wanted:
    return Wanted(number, "roots/list", b'{"method":"roots/list","n":%d}' % number)


def in_state(state: State) -> Park:
    """A park that came there by its own inputs."""
    park = Park("p")
    if state is State.RUN:
        return park
    if state is State.GONE:
        park.end()
        return park
    park.receive_question(question(1))
    if state is not State.COLLECT:
        park.issue()
    if state is State.HELD:
        park.settle(b"outcome")
    return park


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("input", list(Input))
def test_where_each_input_leads(state: State, input: Input) -> None:
    """2026-07-28 basic/patterns/mrtr: it asks, is parked with that, and goes on with the answers; or it is over."""
    expected = {
        (State.RUN, Input.ASK): State.COLLECT,
        (State.RUN, Input.SETTLE): State.GONE,
        (State.RUN, Input.END): State.GONE,
        (State.COLLECT, Input.ISSUE): State.PARKED,
        (State.COLLECT, Input.EMPTY): State.RUN,
        (State.COLLECT, Input.SETTLE): State.GONE,
        (State.COLLECT, Input.END): State.GONE,
        (State.PARKED, Input.CLAIM): State.RUN,
        (State.PARKED, Input.SETTLE): State.HELD,
        (State.PARKED, Input.END): State.GONE,
        (State.HELD, Input.CLAIM): State.GONE,
        (State.HELD, Input.END): State.GONE,
    }
    assert TRANSITIONS[state].get(input) is expected.get((state, input))


@pytest.mark.parametrize("state", list(State))
def test_the_end_leaves_nothing(state: State) -> None:
    """Whenever it comes, and as often as it does."""
    park = in_state(state)
    assert park.state is state
    assert park.has_leg is (state in (State.RUN, State.COLLECT))
    for _ in range(2):
        park.end()
        assert (park.state, park.open, park.outcome) == (State.GONE, {}, None)
        assert park.is_over and not park.has_leg


@pytest.mark.parametrize("state", [State.RUN, State.COLLECT, State.PARKED])
def test_an_outcome_is_kept_for_who_is_away(state: State) -> None:
    park = in_state(state)
    is_away = state is State.PARKED
    assert park.settle(b"outcome") is is_away
    assert park.outcome == (b"outcome" if is_away else None)
    assert park.open == {}
    assert park.state is (State.HELD if is_away else State.GONE)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("round", [0, 1, 2])
def test_a_round_is_claimed_where_somebody_is_away_for_it(state: State, round: int) -> None:
    """Any other is refused in one way, whatever is wrong with it."""
    park = in_state(state)
    if state in (State.PARKED, State.HELD) and round == 1:
        park.check_round(round)
        return
    with pytest.raises(RemoteProtocolError) as caught:
        park.check_round(round)
    assert caught.value.message == invalid_state().message == "Invalid or expired requestState"
    assert (caught.value.rpc_code, caught.value.data) == (INVALID_PARAMS, {"reason": "invalid_request_state"})
    assert park.state is state


def test_keys_and_rounds_are_counted_from_one() -> None:
    """Keys go on over the rounds; what is asked while its client is away belongs to the next."""
    park = Park("p")
    assert (park.round, park.ticks, park.missed, park.progress) == (0, 0, [], None)
    for number in (4, 5):
        park.receive_question(question(number))
    assert park.issue() == {"r1": question(4).entry, "r2": question(5).entry}
    park.receive_question(question(6))
    assert park.state is State.PARKED
    assert park.claim(1, {"r1": b"{}", "r9": b"{}"}) == [(question(4), b"{}")]
    assert park.state is State.COLLECT
    assert park.issue() == {"r2": question(5).entry, "r3": question(6).entry}
    assert park.round == 2
    park.receive_withdrawal(5)
    assert list(park.open) == ["r3"]
    assert park.claim(2, {"r2": b"{}", "r3": b"[]"}) == [(question(6), b"[]")]
    assert park.state is State.RUN


@pytest.mark.parametrize("state", list(State))
def test_an_error_says_what_is_not_possible_and_when(state: State) -> None:
    """In the words of the states and inputs, which are their names."""
    for wish in set(Input) - set(TRANSITIONS[state]):
        park = in_state(state)
        with pytest.raises(LocalProtocolError) as caught:
            park.step(wish)
        said = f"Park is {state.name.lower()}: {wish.name.lower()} is not possible there"
        assert str(caught.value).startswith(said)
        assert park.state is state
