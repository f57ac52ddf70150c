"""How calls of clients without sessions end before their time, in each state they can be in, and that nothing is left.

Ends are: the client hangs up or cancels, does not come back, its server dies or is stopped, its session has been idle,
the proxy drains, the proxy stops.
"""

from __future__ import annotations

import pytest
from driving import FORGOTTEN, Driver, Heard, result
from isthmus.core.base.effects import Cause, End, Post, Send, Spawn
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity
from stateless_driving import (
    ACCEPT,
    Modern,
    ask,
    assert_empty,
    assert_idle,
    bridge,
    collect,
    give,
    modern,
    parked,
    rise,
    rounds,
    served,
    speak,
)
from stateless_scenes import ANSWERED, LIMITS, STATES, Scene

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


# --- In each state of a call ------------------------------------------------------------------------------------------

EVERYWHERE = [
    pytest.param(up, down, state, id=f"{down}-{up}-{state}")
    for up in ("pipe", "http")
    for down in ("pipe", "http")
    for state in STATES
]
over_everything = pytest.mark.parametrize("up, down, state", EVERYWHERE)


@over_everything
def test_a_client_that_wants_no_answer_gets_none(up: str, down: str, state: str) -> None:
    """A leg that waits can be cancelled: its server hears of one cancellation if it has the call, and of one answer to
    each question. One that has ended cannot, nor can what it left: the call stays parked."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    before = len(world.log)
    if scene.leg is not None:
        client.cancel(scene.leg, str(client.last_id))
        assert not [e for e in world.log[before:] if isinstance(e, Send) and e.channel == scene.leg], "no answer"
        assert world.hears("") is (state == "collect")
        if state == "collect":
            assert world.hear("").frame["result"] == {"action": "cancel"}
        if scene.heard is not None:
            assert world.hear("notifications/cancelled").frame["params"]["requestId"] == scene.heard.id
            give_late(world, scene.heard)
        assert not world.hears("notifications/cancelled")
        assert not world.engine.exchange_count
    elif down == "pipe":
        assert client.pipe is not None
        client.cancel(client.pipe, str(client.last_id))
        assert len(world.log) == before, "the id of a leg that is over is no request's"
        client.call(requestState=scene.state, inputResponses=ANSWERED)
        assert not world.hears("notifications/cancelled")
        return
    if state == "levelling":
        world.answer(world.hear("logging/setLevel"))
        assert not world.hears("tools/call"), "what had not gone up does not go up any more"
    world.wait(LIMITS.park_ttl_s + LIMITS.cancel_grace_s)
    if state == "subscribing":
        assert world.hears("resources/unsubscribe")
        return
    world.heard.clear()
    assert_idle(world)


def give_late(world: Driver, heard: Heard) -> None:
    """A server that answers what was cancelled."""
    if heard.channel not in world.over:
        before = len(world.log)
        speak(world, heard, result(str(heard.id)))
        assert not [e for e in world.log[before:] if isinstance(e, Send)], "its answer is nobody's"
        if heard.post is not None:
            world.end(heard.channel)


@over_everything
def test_nothing_is_left_when_the_proxy_stops(up: str, down: str, state: str) -> None:
    """Whoever waits is answered; sessions, servers, timers and every table are empty."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    world.stop()
    if scene.leg is not None:
        answer = client.answered(scene.leg, client.last_id)
        assert ("result" if state == "subscribing" else "error") in answer
    assert_empty(world)


@over_everything
def test_what_is_open_may_finish_while_the_proxy_drains(up: str, down: str, state: str) -> None:
    """New requests are refused with 503; a client that comes back for a call that is parked, or held, gets its
    answer."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    world.engine.receive_drain(world.now)
    channel = client.call("new")
    answer = client.answered(channel, client.last_id)
    assert "shutting down" in answer["error"]["message"]
    assert down == "pipe" or world.sent[channel][-1].status == 503
    if scene.heard is None or state == "visit":
        return
    if state == "collect":
        world.heard.clear()
        collect(world)
        assert scene.leg is not None
        scene.state = rounds(client, scene.leg, client.last_id - 1)[1]
    if scene.state is not None:
        scene.leg = client.call(requestState=scene.state, inputResponses=ANSWERED)
        last_id = client.last_id
    else:
        last_id = client.last_id - 1
    if state != "held":
        give(world, scene.heard)
    assert scene.leg is not None
    assert client.answered(scene.leg, last_id)["result"]["resultType"] == "complete"
    assert not world.engine.exchange_count


@over_everything
def test_a_server_that_dies_leaves_no_call_without_an_answer(up: str, down: str, state: str) -> None:
    """A call that it had is answered: its outcome is unknown; one that it had not goes to the next process. A client
    that is away is told when it comes back, and nobody is told twice."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    if up == "http":
        lose_http(world, scene)
    else:
        world.end(world.last_dial(Spawn).channel)
    if scene.heard is not None and state != "held":
        if scene.state is not None:
            scene.leg = client.call(requestState=scene.state, inputResponses=ANSWERED)
        assert scene.leg is not None
        found = client.answered(scene.leg, client.last_id)["error"]
        assert found["data"]["outcome"] == "unknown"
        assert not world.hears("tools/call"), "it is not begun again"
        assert not world.hears(""), "nobody is left to hear an answer"
    elif state == "held":
        channel = client.call(requestState=scene.state, inputResponses=ANSWERED)
        assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    world.wait(1)
    world.stop()
    assert_empty(world)


def lose_http(world: Driver, scene: Scene) -> None:
    """A server over HTTP that forgets its session, and breaks off what it was doing."""
    for dial in list(world.dials):
        if isinstance(dial.target, Post | Get) and world.engine._desk.role_of(dial.channel) is not None:
            if dial.channel not in world.over:
                world.end(dial.channel, FORGOTTEN if isinstance(dial.target, Get) else Cause(End.BROKEN))


@over_everything
def test_a_client_that_hangs_up_for_good_leaves_nothing(up: str, down: str, state: str) -> None:
    """A pipe that ends takes all of its client with it. Over HTTP what is left ends by idleness, with the server."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    if client.pipe is not None:
        world.end(client.pipe)
        assert not world.engine.session_count
    else:
        if scene.leg is not None:
            client.cancel(scene.leg)
        world.wait(LIMITS.session_idle_ttl_s + LIMITS.park_ttl_s)
    assert_empty(world)


@pytest.mark.parametrize("state", ["parked", "held"])
def test_a_session_is_not_idle_while_its_call_is_parked(state: str) -> None:
    """An answer that waits for its client can be had for as long as its state is good, however short idle sessions are
    kept."""
    world, client, _ = served(limits=Limits(session_idle_ttl_s=30.0))
    heard, _, token = parked(world, client)
    if state == "held":
        give(world, heard)
    world.wait(500)
    channel = client.call(requestState=token, inputResponses=ANSWERED)
    if state != "held":
        give(world, heard)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    world.wait(60)
    assert_empty(world)
