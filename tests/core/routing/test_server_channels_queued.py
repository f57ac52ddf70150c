"""Tests of a server's event stream that is queued by the dialer: requests do not wait for it."""

from __future__ import annotations

from driving import Driver, connect, driver, initialized_client, request
from isthmus.core.base.effects import Listen, Post
from isthmus.core.base.events import Cause, Connected, End, Queued


def listens(world: Driver) -> int:
    return sum(isinstance(dial.target, Listen) for dial in world.dials)


def was_asked(world: Driver) -> bool:
    """True if a question of the server has reached its client."""
    frames = (frame for channel in list(world.sent) for frame in world.frames(channel))
    return any(frame.get("method") == "roots/list" for frame in frames)


def test_requests_do_not_wait_for_a_queued_stream() -> None:
    """The stream is not dialled again meanwhile, however long it takes."""
    world = driver()
    client, stream = initialized_client(world)
    client.request("1", "tools/call", "{}")
    assert not world.unread
    world.open(stream, Queued())
    assert world.was_sent("tools/call")
    world.wait(100.0)
    assert listens(world) == 1
    world.open(stream, Connected())
    world.send(stream, request('"q"', "roots/list"))
    assert was_asked(world)


def test_a_stream_that_is_lost_while_it_is_queued_is_opened_again() -> None:
    world = driver()
    _, stream = initialized_client(world)
    world.open(stream, Queued())
    world.end(stream, Cause(End.BROKEN, "shutting down", unsent=True))
    world.wait(1.0)
    assert listens(world) == 2


def test_a_queued_stream_of_an_ended_session_does_not_count_for_the_next() -> None:
    """The server has forgotten the session. Requests wait for the stream of the session after it."""
    world = driver()
    client, stream = initialized_client(world)
    client.request("1", "tools/call", "{}")
    world.open(stream, Queued())
    world.end(world.take_sent("tools/call").channel, Cause(End.REFUSED, status=404))
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S2")
    world.acknowledge(world.take_sent("notifications/initialized"))
    assert listens(world) == 2
    assert not world.unread
    world.open(stream, Queued())
    assert not world.unread
    world.open(world.last_dial(Listen).channel, Queued())
    assert world.was_sent("tools/call")


def test_a_queued_post_has_no_effect() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "tools/call", "{}")
    call = world.last_dial(Post).channel
    before = len(world.log)
    world.open(call, Queued())
    assert len(world.log) == before
