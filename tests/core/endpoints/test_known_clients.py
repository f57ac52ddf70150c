"""Tests of the known clients: clients without sessions are recognized by what they declare of themselves, and not
confused with others."""

from __future__ import annotations

import json

import pytest
from driving import Driver, request
from isthmus.core.base.effects import Dial, Post, Spawn
from isthmus.core.base.ids import ChannelId
from stateless_driving import Modern, bridge, meta, modern, start_legacy_server


def call(client: Modern, id: int) -> ChannelId:
    """Sends a call without optional white space, as most clients write it. Only such a request takes the fast path."""
    params = {"_meta": meta({}), "name": "t", "arguments": {}}
    return client.send(request(str(id), "tools/call", json.dumps(params, separators=(",", ":"))))


def dialled(world: Driver, server: str) -> int:
    """The number of processes started, or of handshakes made, for sessions of their own."""
    targets = [dial.target for dial in world.every(Dial)]
    if server == "pipe":
        return len([target for target in targets if isinstance(target, Spawn)])
    return len([target for target in targets if isinstance(target, Post) and b'"initialize"' in target.message])


def settled(world: Driver, client: Modern, id: int) -> None:
    """Makes a call and answers it."""
    channel = call(client, id)
    if not world.was_sent("tools/call"):
        start_legacy_server(world)
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert client.answered(channel, id)["result"]["content"] == []


@pytest.mark.parametrize("server", ["pipe", "http"])
@pytest.mark.parametrize("ways", [("pipe", "http"), ("http", "pipe"), ("pipe", "pipe"), ("http", "http")])
def test_a_client_on_a_pipe_is_not_taken_for_another_with_equal_declarations(
    server: str, ways: tuple[str, str]
) -> None:
    """Each pipe has its own server session, and all clients over HTTP with equal declarations share one."""
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
