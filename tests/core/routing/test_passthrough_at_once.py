"""Tests of large answers that arrive together with the end of their channel, and of progress for a suspended call: the
effects are those of the slow path."""

from __future__ import annotations

import json

import pytest
from driving import DONE, connect, driver, notification
from isthmus.core.base.effects import Pass
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc.envelope import LARGE_BYTES
from stateless_driving import ACCEPT, respond, served, suspended, tables


def answer_to(number: int, size_bytes: int) -> bytes:
    """A response of so many bytes."""
    text = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
    return (text % (number, "x" * (size_bytes - len(text % (number, ""))))).encode()


@pytest.mark.parametrize("size_bytes", [200, LARGE_BYTES - 1, LARGE_BYTES, Limits().outbox_low_bytes])
@pytest.mark.parametrize("is_its", [True, False])
def test_an_answer_that_is_there_at_once_is_given_at_once(size_bytes: int, is_its: bool) -> None:
    """The answer has the client's id, and a large one is passed on without a copy. An answer to another id is dropped,
    and the call fails."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request('"a"', "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    message = answer_to(received.id if is_its else received.id + 9, size_bytes)
    world.over.add(received.channel)
    world._note(
        world.engine.receive_at_once(received.channel, world.now, opening=Connected(), message=message, cause=DONE)
    )
    frame = world.only_message(channel)
    assert frame["id"] == "a"
    assert world.engine.exchange_count == 0
    assert not [purpose for purpose, _ in tables(world.engine)["timers"] if purpose == "reply"]
    if is_its:
        assert frame["result"] == json.loads(message)["result"]
        assert bool(world.every(Pass)) is (size_bytes >= LARGE_BYTES)
    else:
        assert "error" in frame
        assert not world.every(Pass)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_progress_of_a_suspended_call_is_kept(up: str) -> None:
    """The latest progress is sent with the next request of the call, under the token of that request."""
    world, client, _ = served(up)
    received, _, state = suspended(world, client, token="t")
    steps = [
        notification("notifications/progress", f'{{"progressToken":{received.id},"progress":{number}}}')
        for number in (1, 2, 3)
    ]
    world._note(world.engine.receive_messages(received.channel, steps, world.now))
    channel = client.call(token="u", requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"] for frame in client.notifications(channel)] == [{"progressToken": "u", "progress": 3}]
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)
