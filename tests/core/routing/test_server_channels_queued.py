"""An event stream of a server that has to wait for its turn: nobody waits with it."""

from __future__ import annotations

from driving import Driver, connect, driver, greeted, request
from isthmus.core.base.effects import Cause, Connected, End, Listen, Post, Queued


def listens(world: Driver) -> int:
    return sum(isinstance(dial.target, Listen) for dial in world.dials)


def asks(world: Driver) -> bool:
    """Whether a question of the server has reached its client."""
    frames = (frame for channel in list(world.sent) for frame in world.frames(channel))
    return any(frame.get("method") == "roots/list" for frame in frames)


def test_requests_do_not_wait_for_a_stream_that_waits_itself() -> None:
    """However long it takes: nor is it dialled again meanwhile."""
    world = driver()
    client, stream = greeted(world)
    client.request("1", "tools/call", "{}")
    assert not world.heard
    world.open(stream, Queued())
    assert world.hears("tools/call")
    world.wait(100.0)
    assert listens(world) == 1
    world.open(stream, Connected())
    world.say(stream, request('"q"', "roots/list"))
    assert asks(world)


def test_a_stream_that_is_lost_while_it_waits_is_opened_again() -> None:
    world = driver()
    _, stream = greeted(world)
    world.open(stream, Queued())
    world.end(stream, Cause(End.BROKEN, "shutting down", unsent=True))
    world.wait(1.0)
    assert listens(world) == 2


def test_a_stream_of_a_session_that_is_over_does_not_speak_for_the_next() -> None:
    """Its server forgot the session; requests wait for the stream of the one after it."""
    world = driver()
    client, stream = greeted(world)
    client.request("1", "tools/call", "{}")
    world.open(stream, Queued())
    world.end(world.hear("tools/call").channel, Cause(End.REFUSED, status=404))
    world.answer(world.hear("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S2")
    world.acknowledge(world.hear("notifications/initialized"))
    assert listens(world) == 2
    assert not world.heard
    world.open(stream, Queued())
    assert not world.heard
    world.open(world.last_dial(Listen).channel, Queued())
    assert world.hears("tools/call")


def test_other_channels_have_no_turn_to_wait_for() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "tools/call", "{}")
    call = world.last_dial(Post).channel
    before = len(world.log)
    world.open(call, Queued())
    assert len(world.log) == before
