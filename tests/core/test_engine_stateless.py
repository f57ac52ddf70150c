"""Requests of clients without sessions: which are taken, under which ids they are answered, what goes up of them."""

from __future__ import annotations

from stateless_driving import (
    bridge,
    emerge,
    give,
    modern,
)

# --- What must be there -----------------------------------------------------------------------------------------------


def test_capabilities_that_no_handshake_can_say_are_refused_and_harm_nobody() -> None:
    """A session is not begun with what cannot be read in one way, also where the server is told with each request."""
    world = bridge()
    first = modern(world, "pipe")
    first.request("server/discover")
    emerge(world)
    client = modern(world, "pipe", principal="ann")
    body = client.body("tools/list")
    channel = client.send(body.replace(b'"roots": {}', b'"roots": {}, "roots": {}'))
    assert client.answered(channel)["error"]["code"] == -32602
    assert world.engine.session_count == 1
    channel = client.request("tools/list")
    emerge(world)
    give(world, world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    assert client.answered(channel)["result"]["tools"] == []
