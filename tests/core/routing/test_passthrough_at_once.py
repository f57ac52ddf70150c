"""A large answer whose channel is gone with it, and progress for who is away: as by the long way."""

from __future__ import annotations

import json

import pytest
from driving import DONE, connect, driver, notification
from isthmus.core.base.effects import Connected, Pass
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc.envelope import LARGE_BYTES
from stateless_driving import ACCEPT, give, parked, served


def answer_to(number: int, size_bytes: int) -> bytes:
    """A message of so many bytes."""
    text = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
    return (text % (number, "x" * (size_bytes - len(text % (number, ""))))).encode()


@pytest.mark.parametrize("size_bytes", [200, LARGE_BYTES - 1, LARGE_BYTES, Limits().outbox_low_bytes])
@pytest.mark.parametrize("is_its", [True, False])
def test_an_answer_that_is_there_at_once_is_given_at_once(size_bytes: int, is_its: bool) -> None:
    """Under the client's id, in one go, and a large one without being copied; the answer to another call, that nobody
    has made, is nothing, and this call is not answered at all."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request('"a"', "tools/call", '{"name":"t"}')
    heard = world.hear("tools/call")
    message = answer_to(heard.id if is_its else heard.id + 9, size_bytes)
    world.over.add(heard.channel)
    world._note(
        world.engine.receive_at_once(heard.channel, world.now, opening=Connected(), message=message, cause=DONE)
    )
    frame = world.said(channel)
    assert frame["id"] == "a"
    assert world.engine.exchange_count == 0
    assert not [purpose for purpose, _ in world.engine._desk.timers._live if purpose == "reply"]
    if is_its:
        assert frame["result"] == json.loads(message)["result"]
        assert bool(world.every(Pass)) is (size_bytes >= LARGE_BYTES)
    else:
        assert "error" in frame
        assert not world.every(Pass)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_progress_that_came_at_once_is_kept_for_who_is_away(up: str) -> None:
    """The latest of it is told on the next leg, under its token."""
    world, client, _ = served(up)
    heard, _, state = parked(world, client, token="t")
    steps = [
        notification("notifications/progress", f'{{"progressToken":{heard.id},"progress":{number}}}')
        for number in (1, 2, 3)
    ]
    world._note(world.engine.receive_messages(heard.channel, steps, world.now))
    channel = client.call(token="u", requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"] for frame in client.told(channel)] == [{"progressToken": "u", "progress": 3}]
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)
