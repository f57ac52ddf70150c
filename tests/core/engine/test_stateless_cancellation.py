"""Tests of how calls of stateless clients end early, in each state of a call, and that they leave nothing behind.

A call ends early when the client disconnects, cancels or does not come back, when its server dies or is stopped, when
its session has been idle, and when the proxy drains or stops.
"""

from __future__ import annotations

import pytest
from driving import FORGOTTEN, Driver, SentMessage, result
from inside import Inside
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.effects import Post, Send, Spawn
from isthmus.core.base.events import Cause, End
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
    modern,
    respond,
    rounds,
    send_during,
    served,
    start_legacy_server,
    suspended,
)
from stateless_scenes import ANSWERED, LIMITS, STATES, Scene

# --- A session for each request ---------------------------------------------------------------------------------------


def call_in_own_session(up: str = "pipe", limits: Limits | None = None) -> tuple[Driver, Modern, SentMessage]:
    """Returns a call that has a session of its own and has reached its server."""
    world = bridge(affinity=Affinity.REQUEST, limits=limits)
    client = modern(world, up)
    client.call()
    start_legacy_server(world)
    return world, client, world.take_sent("tools/call")


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_session_for_one_request_ends_soon_after_its_answer(up: str) -> None:
    """The session waits for a client that may bring its handle."""
    world, _, received = call_in_own_session(up)
    respond(world, received)
    world.wait(Limits().unclaimed_session_ttl_s)
    assert_empty(world)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_session_for_one_request_lasts_over_its_rounds(up: str) -> None:
    """The session lasts over all requests of the call, and ends soon after the last."""
    world, client, received = call_in_own_session(up)
    ask(world, received)
    collect(world)
    _, state = rounds(client, world.every(Send)[-1].channel)
    assert world.engine.session_count == 1
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert world.take_sent("").frame["result"] == ACCEPT
    respond(world, received)
    world.wait(Limits().unclaimed_session_ttl_s)
    assert_empty(world)


@pytest.mark.parametrize("is_over", [False, True], ids=["suspended", "held"])
def test_a_session_for_one_request_ends_when_its_client_does_not_come_back(is_over: bool) -> None:
    """The session ends for a suspended call and for a held answer alike."""
    world, _, received = call_in_own_session()
    ask(world, received)
    collect(world)
    if is_over:
        respond(world, received)
    world.wait(Limits().suspended_call_ttl_s)
    assert_empty(world)


# --- Owed answers -----------------------------------------------------------------------------------------------------


def test_a_pipe_is_owed_the_answers_of_both_eras_and_no_subscription() -> None:
    """A client that closes its end of a pipe still gets open answers. A subscription would never end."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    assert not world.engine.owes(client.pipe)
    assert not world.engine.exchange_count
    client.call()
    assert world.engine.owes(client.pipe)
    assert world.engine.exchange_count == 1
    respond(world, world.take_sent("tools/call"))
    assert not world.engine.owes(client.pipe)


def test_a_pipe_is_not_owed_a_suspended_call() -> None:
    """A suspended call has been answered, with questions, and its client cannot come back."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    suspended(world, client)
    assert not world.engine.owes(client.pipe)


# --- In each state of a call ------------------------------------------------------------------------------------------

EVERYWHERE = [
    pytest.param(up, down, state, id=f"{down}-{up}-{state}")
    for up in ("pipe", "http")
    for down in ("pipe", "http")
    for state in STATES
]
in_every_state = pytest.mark.parametrize("up, down, state", EVERYWHERE)


@in_every_state
def test_a_cancelled_request_gets_no_answer(up: str, down: str, state: str) -> None:
    """The server of a waiting request gets one cancellation, if it has the call, and one answer to each question. A
    request that has ended cannot be cancelled: its call stays suspended."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    before = len(world.log)
    if scene.request is not None:
        client.cancel(scene.request, str(client.last_id))
        assert not [e for e in world.log[before:] if isinstance(e, Send) and e.channel == scene.request], "no answer"
        assert world.was_sent("") is (state == "collect")
        if state == "collect":
            assert world.take_sent("").frame["result"] == {"action": "cancel"}
        if scene.received is not None:
            assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == scene.received.id
            answer_late(world, scene.received)
        assert not world.was_sent("notifications/cancelled")
        assert not world.engine.exchange_count
    elif down == "pipe":
        assert client.pipe is not None
        client.cancel(client.pipe, str(client.last_id))
        assert len(world.log) == before, "the id of an ended request names no request"
        client.call(requestState=scene.state, inputResponses=ANSWERED)
        assert not world.was_sent("notifications/cancelled")
        return
    if state == "setting_level":
        world.answer(world.take_sent("logging/setLevel"))
        assert not world.was_sent("tools/call"), "a cancelled call is not sent any more"
    world.wait(LIMITS.suspended_call_ttl_s + LIMITS.cancel_grace_s)
    if state == "subscribing":
        assert world.was_sent("resources/unsubscribe")
        return
    world.unread.clear()
    assert_idle(world)


def answer_late(world: Driver, received: SentMessage) -> None:
    """Answers a cancelled call."""
    if received.channel not in world.over:
        before = len(world.log)
        send_during(world, received, result(str(received.id)))
        assert not [e for e in world.log[before:] if isinstance(e, Send)], "a late answer is dropped"
        if received.post is not None:
            world.end(received.channel)


@in_every_state
def test_nothing_is_left_when_the_proxy_stops(up: str, down: str, state: str) -> None:
    """Waiting clients are answered. Sessions, servers, timers and all tables are empty."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    world.stop()
    if scene.request is not None:
        answer = client.answered(scene.request, client.last_id)
        assert ("result" if state == "subscribing" else "error") in answer
    assert_empty(world)


@in_every_state
def test_open_calls_may_finish_while_the_proxy_drains(up: str, down: str, state: str) -> None:
    """New requests are refused with 503. The retry of a suspended call, or of a held answer, is answered."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    world.engine.receive_drain(world.now)
    channel = client.call("new")
    answer = client.answered(channel, client.last_id)
    assert "shutting down" in answer["error"]["message"]
    assert down == "pipe" or world.sent[channel][-1].status == 503
    if scene.received is None or state == "url_elicitation":
        return
    if state == "collect":
        world.unread.clear()
        collect(world)
        assert scene.request is not None
        scene.state = rounds(client, scene.request, client.last_id - 1)[1]
    if scene.state is not None:
        scene.request = client.call(requestState=scene.state, inputResponses=ANSWERED)
        last_id = client.last_id
    else:
        last_id = client.last_id - 1
    if state != "held":
        respond(world, scene.received)
    assert scene.request is not None
    assert client.answered(scene.request, last_id)["result"]["resultType"] == "complete"
    assert not world.engine.exchange_count


@in_every_state
def test_a_server_that_dies_leaves_no_call_without_an_answer(up: str, down: str, state: str) -> None:
    """A call that reached the server is answered once, with an unknown outcome, at its retry if it was suspended. A
    call that did not goes to the next process."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    if up == "http":
        lose_http(world, scene)
    else:
        world.end(world.last_dial(Spawn).channel)
    if scene.received is not None and state != "held":
        if scene.state is not None:
            scene.request = client.call(requestState=scene.state, inputResponses=ANSWERED)
        assert scene.request is not None
        found = client.answered(scene.request, client.last_id)["error"]
        assert found["data"]["outcome"] == "unknown"
        assert not world.was_sent("tools/call"), "the call is not made again"
        assert not world.was_sent(""), "no server is left for an answer"
    elif state == "held":
        channel = client.call(requestState=scene.state, inputResponses=ANSWERED)
        assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    world.wait(1)
    world.stop()
    assert_empty(world)


def lose_http(world: Driver, scene: Scene) -> None:
    """Plays a server over HTTP that forgets its session and breaks off all responses."""
    for dial in list(world.dials):
        if isinstance(dial.target, Post | Get) and Inside(world.engine).context.role_of(dial.channel) is not None:
            if dial.channel not in world.over:
                world.end(dial.channel, FORGOTTEN if isinstance(dial.target, Get) else Cause(End.BROKEN))


@in_every_state
def test_a_client_that_hangs_up_for_good_leaves_nothing(up: str, down: str, state: str) -> None:
    """The end of a pipe ends everything of its client. Over HTTP the rest ends by idleness."""
    scene = Scene(up, down, state)
    world, client = scene.world, scene.client
    if client.pipe is not None:
        world.end(client.pipe)
        assert not world.engine.session_count
    else:
        if scene.request is not None:
            client.cancel(scene.request)
        world.wait(LIMITS.session_idle_ttl_s + LIMITS.suspended_call_ttl_s)
    assert_empty(world)


@pytest.mark.parametrize("state", ["suspended", "held"])
def test_a_session_is_not_idle_while_its_call_is_suspended(state: str) -> None:
    """A held answer can be fetched as long as its state is valid, however short the idle time of sessions is."""
    world, client, _ = served(limits=Limits(session_idle_ttl_s=30.0))
    received, _, token = suspended(world, client)
    if state == "held":
        respond(world, received)
    world.wait(500)
    channel = client.call(requestState=token, inputResponses=ANSWERED)
    if state != "held":
        respond(world, received)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    world.wait(60)
    assert_empty(world)
