"""A large answer on its way is the reply of its client: nothing else is said there."""

from __future__ import annotations

import pytest
from driving import connect, driver
from isthmus.core.base.limits import Limits

LARGE = 300_000


@pytest.mark.parametrize("pause_s", [0.0, 2 * Limits().stream_commit_s])
def test_an_answer_that_is_slow_to_come_makes_no_stream_of_its_reply(pause_s: float) -> None:
    """A reply that is silent for long is given an event id to come back with: this one is not silent."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    heard = world.hear("tools/call")
    message = b'{"jsonrpc":"2.0","id":%d,"result":{"x":"%b"}}' % (heard.id, b"x" * LARGE)
    world.say_part(heard.channel, message[:1000], size_bytes=len(message))
    world.wait(pause_s)
    assert channel not in world.primed
    assert world.engine.exchange_count == 1
    world.say_part(heard.channel, message[1000:], is_last=True)
    assert world.said(channel)["result"]["x"] == "x" * LARGE
    assert channel not in world.primed
    assert world.engine.exchange_count == 0
