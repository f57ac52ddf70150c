"""Tests of a large answer under way: until it is complete, nothing else is sent in the client's response."""

from __future__ import annotations

import pytest
from driving import connect, driver
from isthmus.core.base.limits import Limits

LARGE = 300_000


@pytest.mark.parametrize("pause_s", [0.0, 2 * Limits().stream_commit_s])
def test_a_slow_large_answer_does_not_turn_its_response_into_a_stream(pause_s: float) -> None:
    """A silent response is given an event id to resume from. A response in the middle of a large answer is not silent,
    and gets none."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    message = b'{"jsonrpc":"2.0","id":%d,"result":{"x":"%b"}}' % (received.id, b"x" * LARGE)
    world.send_part(received.channel, message[:1000], size_bytes=len(message))
    world.wait(pause_s)
    assert channel not in world.primed
    assert world.engine.exchange_count == 1
    world.send_part(received.channel, message[1000:], is_last=True)
    assert world.only_message(channel)["result"]["x"] == "x" * LARGE
    assert channel not in world.primed
    assert world.engine.exchange_count == 0
