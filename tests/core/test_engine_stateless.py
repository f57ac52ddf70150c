"""Requests of clients without sessions: which are taken, under which ids they are answered, what goes up of them."""

from __future__ import annotations

from isthmus.core.legs import SWEPT_MIN
from isthmus.core.roles import PipeRole
from stateless_driving import (
    bridge,
    emerge,
    give,
    modern,
    served,
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


# --- Ids --------------------------------------------------------------------------------------------------------------


def test_ids_that_are_over_are_forgotten() -> None:
    """A pipe that has asked for long keeps no more than a few of the ids it has used."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    client.call()
    held = world.hear("tools/call")
    for _ in range(300):
        client.request("tools/list")
        give(world, world.hear("tools/list"), '{"tools":[]}')
    role = world.engine._desk.role_of(client.pipe)
    assert isinstance(role, PipeRole)
    assert len(role.legs.open) <= 2 * SWEPT_MIN
    channel = client.send(client.body("tools/list", id_raw="1"))
    assert client.answered(channel, 1)["error"]["code"] == -32600, "one that is open is not forgotten"
    give(world, held)
