"""Every request, question and stream of a lost server is settled, each with what is true of it."""

from __future__ import annotations

import json

import pytest
from driving import DONE, Client, Driver, connect, driver, newcomer, request
from isthmus.core.base.effects import Cause, Close, Connected, Delete, End, Join, Listen, Post, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import bridge, modern, tables

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
DIED = Cause(End.BROKEN, "exited with code 1")


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def up_again(world: Driver) -> None:
    world.open(child(world), Connected())
    world.answer(world.hear("initialize"), HANDSHAKE)
    world.hear("notifications/initialized")


def frames(client: Client) -> list[dict[str, object]]:
    """What a client on a pipe was told, which it has then read."""
    assert client.pipe is not None
    found = list(client.driver.frames(client.pipe))
    client.driver.sent[client.pipe].clear()
    return found


def timers(world: Driver) -> set[str]:
    return {purpose for purpose, _ in tables(world.engine)["timers"]}


def test_each_call_that_ran_is_of_unknown_outcome_and_waited_for_no_more() -> None:
    """However many there are."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    for number in range(1, 4):
        client.request(str(number), "tools/call", "{}")
    world.end(child(world), DIED)
    told = {frame["id"]: frame["error"]["data"] for frame in frames(client)}  # type: ignore[index]
    assert told == {number: {"outcome": "unknown"} for number in range(1, 4)}
    assert timers(world) <= {"idle"}


@pytest.mark.parametrize("is_called", [False, True])
def test_every_question_of_a_lost_server_is_withdrawn(is_called: bool) -> None:
    """Whether it was asked in the course of a call or of nothing."""
    world = driver()
    client = newcomer(world, "pipe", "pipe")
    client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"sampling":{}}}')
    up_again(world)
    client.notify("notifications/initialized")
    frames(client)
    if is_called:
        client.request("1", "tools/call", "{}")
    for id in ('"p"', '"q"'):
        world.say(child(world), request(id, "roots/list"))
    asked = [frame["id"] for frame in frames(client)]
    assert len(asked) == 2
    world.end(child(world), DIED)
    told = frames(client)
    withdrawn = [frame["params"]["requestId"] for frame in told if frame.get("method") == "notifications/cancelled"]  # type: ignore[index]
    assert sorted(withdrawn, key=str) == sorted(asked, key=str)
    assert len(told) == 2 + is_called


def test_the_event_stream_of_a_session_that_is_forgotten_is_closed() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.request("1", "tools/list")
    before = len(world.log)
    world.end(world.hear("tools/list").channel, Cause(End.REFUSED, status=404))
    closes = [effect for effect in world.log[before:] if isinstance(effect, Close)]
    assert [effect.channel for effect in closes] == [stream]
    assert closes[0].reason


def test_what_a_server_wrote_is_told_of_the_start_it_wrote_it_at_alone() -> None:
    world = driver(limits=Limits(restart_backoff_s=1.0))
    client = connect(world, "http", "pipe")
    world.end(child(world), DIED)
    texts = []
    for line in (b"usage: server PATH", None):
        channel = client.request("1", "tools/list")
        world.open(child(world), Connected())
        if line is not None:
            world.say(child(world), line)
        world.end(child(world), DIED)
        texts.append(world.said(channel)["error"]["message"])
        world.wait(10)
    reason = "the server could not be started: exited with code 1"
    assert texts == [f"{reason}; it wrote what is no message: 'usage: server PATH'", reason]


def test_on_a_shared_process_who_is_to_be_greeted_and_who_has_called_both_learn_that_it_failed() -> None:
    """A client without a session has made its call already, and one with a session waits to be greeted."""
    plan = ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, sharing=Sharing.CONCURRENT)
    world = bridge(plan)
    without = modern(world, "s")
    call = without.call()
    newer = newcomer(world, "pipe", "s")
    newer.initialize()
    assert not world.messages(call)
    world.end(child(world), DIED)
    assert without.answered(call)["error"]["message"] == "the server could not be started: exited with code 1"
    (frame,) = frames(newer)
    assert frame["error"]["code"] == -31004  # type: ignore[index]


@pytest.mark.parametrize("cause", [DONE, Cause(End.BROKEN, "reset"), Cause(End.REFUSED, status=500, body=b"x" * 201)])
def test_a_post_that_failed_says_how(cause: Cause) -> None:
    """A server that answered with a failure is not one that was lost; of what it said two hundred bytes are told."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    heard = world.hear("tools/call")
    if cause is DONE:
        world.open(heard.channel, Connected())
    world.end(heard.channel, cause)
    said = world.said(channel)["error"]
    assert said["code"] == -31001
    if cause.end is End.REFUSED:
        assert said["message"].startswith("the server failed: ")
        assert said["data"] == {"outcome": "unknown", "httpStatus": 500, "body": "x" * 200}
    else:
        assert said["message"].startswith("the server was lost before it answered: ")
        assert said["data"] == {"outcome": "unknown"}
    assert said["message"].endswith(". tools/call may have run; it is not repeated")


def test_a_farewell_that_was_answered_is_waited_for_no_more() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.delete()
    (farewell,) = [dial for dial in world.dials if isinstance(dial.target, Delete)]
    assert timers(world) == {"grace"}
    world.end(farewell.channel)
    assert not timers(world)
    assert world.engine.next_timeout() is None


def test_a_farewell_is_said_in_the_session_it_ends() -> None:
    """With what its client says with everything."""
    world = driver()
    client = newcomer(world, "http", "http", headers=(("x-who", "ann"),))
    channel = client.initialize()
    world.shake_hands(session="S7")
    client.session = world.sent[channel][-1].session
    client.delete()
    (farewell,) = [dial.target for dial in world.dials if isinstance(dial.target, Delete)]
    assert (farewell.server, farewell.session, farewell.revision) == ("http", "S7", "2025-11-25")
    assert json.dumps(farewell.headers) == '[["x-who", "ann"]]'


@pytest.mark.parametrize("is_back", [False, True])
def test_a_server_of_an_older_transport_is_doubted_when_it_does_not_come_up(is_back: bool) -> None:
    """It is joined again as it was found; and where that fails it is looked for as any other."""
    world = driver(ServerPlan(id="s", kind=Kind.HTTP, may_fall_back=True, era=Era.HANDSHAKE))
    client = newcomer(world, "http", "s")
    channel = client.initialize()
    world.end(world.hear("initialize").channel, Cause(End.REFUSED, status=405))
    world.open(world.last_dial(Join).channel, Connected())
    world.answer(world.hear("initialize"), HANDSHAKE)
    world.hear("notifications/initialized")
    client.session = world.sent[channel][-1].session
    world.end(world.last_dial(Join).channel, Cause(End.BROKEN, "cut"))
    client.request("1", "tools/list")
    again = world.dials[-1]
    assert isinstance(again.target, Join)
    if is_back:
        world.open(again.channel, Connected())
        world.answer(world.hear("initialize"), HANDSHAKE)
        world.hear("notifications/initialized")
        world.end(again.channel, Cause(End.BROKEN, "cut"))
    else:
        world.end(again.channel, Cause(End.UNREACHABLE, "nobody"))
    world.wait(100)
    client.request("2", "tools/list")
    assert isinstance(world.dials[-1].target, Join if is_back else Post)
