"""How calls of clients without sessions end before their time, in each state they can be in, and that nothing is left.

Ends are: the client hangs up or cancels, does not come back, its server dies or is stopped, its session has been idle,
the proxy drains, the proxy stops.
"""

from __future__ import annotations

import pytest
from driving import Driver, Heard
from isthmus.core.effects import Send
from isthmus.core.limits import Limits
from isthmus.core.plan import Affinity
from stateless_driving import (
    ACCEPT,
    Modern,
    ask,
    assert_empty,
    bridge,
    collect,
    give,
    modern,
    parked,
    rise,
    rounds,
    served,
)

# --- A session for each request ---------------------------------------------------------------------------------------


def for_one(up: str = "pipe", limits: Limits | None = None) -> tuple[Driver, Modern, Heard]:
    """A call with a session of its own, which has gone up."""
    world = bridge(affinity=Affinity.REQUEST, limits=limits)
    client = modern(world, up)
    client.call()
    rise(world)
    return world, client, world.hear("tools/call")


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_session_for_one_request_ends_with_its_answer(up: str) -> None:
    world, _, heard = for_one(up)
    give(world, heard)
    assert_empty(world)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_session_for_one_request_lasts_over_its_rounds(up: str) -> None:
    """A call that asks keeps its session from leg to leg; with the last of them it ends."""
    world, client, heard = for_one(up)
    ask(world, heard)
    collect(world)
    _, state = rounds(client, world.every(Send)[-1].channel)
    assert world.engine.session_count == 1
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert world.hear("").frame["result"] == ACCEPT
    give(world, heard)
    assert_empty(world)


@pytest.mark.parametrize("is_over", [False, True], ids=["parked", "held"])
def test_a_session_for_one_request_ends_when_its_client_does_not_come_back(is_over: bool) -> None:
    """Also where the call was over and its answer waited: nobody else can want that session."""
    world, _, heard = for_one()
    ask(world, heard)
    collect(world)
    if is_over:
        give(world, heard)
    world.wait(Limits().park_ttl_s)
    assert_empty(world)


# --- What is still owed -----------------------------------------------------------------------------------------------


def test_a_pipe_is_owed_the_answers_of_both_eras_and_no_subscription() -> None:
    """Whoever closes its end of a pipe is still answered what is under way; a subscription would never be over."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    assert not world.engine.owes(client.pipe)
    assert not world.engine.exchange_count
    client.call()
    assert world.engine.owes(client.pipe)
    assert world.engine.exchange_count == 1
    give(world, world.hear("tools/call"))
    assert not world.engine.owes(client.pipe)


def test_a_pipe_is_not_owed_what_waits_for_its_client() -> None:
    """A parked call has been answered, with questions: who is not there any more will not come back with answers."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    parked(world, client)
    assert not world.engine.owes(client.pipe)
