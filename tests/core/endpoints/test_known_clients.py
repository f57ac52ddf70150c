"""Clients without sessions that are recognized by what they say of themselves, and for whom they are not taken."""

from __future__ import annotations

import json

import pytest
from driving import Driver, request
from isthmus.core.base.effects import Dial, Post, Spawn
from isthmus.core.base.ids import ChannelId
from stateless_driving import Modern, bridge, meta, modern, rise


def call(client: Modern, id: int) -> ChannelId:
    """As most clients write it, without a space that means nothing: only such a request takes the short way."""
    said = {"_meta": meta({}), "name": "t", "arguments": {}}
    return client.send(request(str(id), "tools/call", json.dumps(said, separators=(",", ":"))))


def dialled(world: Driver, server: str) -> int:
    """How often something was begun for a session of its own: a process, or a handshake."""
    targets = [dial.target for dial in world.every(Dial)]
    if server == "pipe":
        return len([target for target in targets if isinstance(target, Spawn)])
    return len([target for target in targets if isinstance(target, Post) and b'"initialize"' in target.message])


def settled(world: Driver, client: Modern, id: int) -> None:
    """A call, and its answer."""
    channel = call(client, id)
    if not world.hears("tools/call"):
        rise(world)
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert client.answered(channel, id)["result"]["content"] == []


@pytest.mark.parametrize("server", ["pipe", "http"])
@pytest.mark.parametrize("ways", [("pipe", "http"), ("http", "pipe"), ("pipe", "pipe"), ("http", "http")])
def test_who_speaks_on_a_pipe_is_not_taken_for_another_that_says_the_same_of_itself(
    server: str, ways: tuple[str, str]
) -> None:
    """Nor the other way round: each pipe has its own server, and all who say the same over HTTP have one together."""
    world = bridge()
    first, second = [modern(world, server, way) for way in ways]
    for id in (1, 2):
        settled(world, first, id)
    before, sessions = dialled(world, server), world.engine.session_count
    settled(world, second, 3)
    is_same = ways == ("http", "http")
    assert dialled(world, server) == before + (not is_same)
    assert world.engine.session_count == sessions + (not is_same)
    settled(world, second, 4)
    assert dialled(world, server) == before + (not is_same)
