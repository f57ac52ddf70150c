"""Retries of clients without sessions: what they must be, which are refused, and that a refused one changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Driver, error, request
from isthmus.core.ids import ChannelId
from stateless_driving import (
    ANSWERS,
    Modern,
    assert_idle,
    give,
    rounds,
    served,
)


def refusal(client: Modern, channel: ChannelId) -> dict[str, Any]:
    """The error on a channel, which is of a requestState that is worth nothing."""
    found = client.answered(channel, client.last_id)["error"]
    assert found["code"] == -32602
    assert found["message"] == "Invalid or expired requestState"
    assert found["data"] == {"reason": "invalid_request_state"}, "why it is refused is not told"
    return dict(found)


def deferred(world: Driver, client: Modern) -> str:
    """A call that is answered with a question that had waited for one. Returns the state to bring back."""
    child = world.dials[-1].channel
    world.say(child, request('"q"', "roots/list"))
    channel = client.call()
    questions, state = rounds(client, channel, client.last_id)
    assert questions == {"r1": {"method": "roots/list"}}
    assert not world.hears("tools/call")
    return state


VISIT = (
    '{"code":-32042,"message":"visit","data":{"elicitations":'
    '[{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}]}}'
)


def visited(world: Driver, client: Modern) -> str:
    """A call that is refused until a page is visited. Returns the state to bring back."""
    channel = client.call()
    heard = world.hear("tools/call")
    world.say(heard.channel, error(str(heard.id), VISIT))
    questions, state = rounds(client, channel, client.last_id)
    assert questions["r1"]["params"]["mode"] == "url"
    return state


# --- Refused ones change nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("kind", ["deferred", "visited"])
def test_a_retry_whose_answers_cannot_be_read_leaves_nothing(down: str, kind: str) -> None:
    """A request that is refused is not open: what it would have begun is not there."""
    world, client, _ = served(down=down)
    state = deferred(world, client) if kind == "deferred" else visited(world, client)
    body = client.body("tools/call", name="ask", arguments={}, requestState=state, inputResponses={"r1": "X"})
    unreadable = b'{"roots":5}' if kind == "deferred" else b'{"action":"accept","action":"decline"}'
    channel = client.send(body.replace(b'"X"', unreadable))
    assert client.answered(channel, client.last_id)["error"]["code"] in (-32600, -32602)
    assert not world.engine.exchange_count
    assert not world.hears("tools/call")
    world.wait(60)
    assert_idle(world)


@pytest.mark.parametrize("kind", ["deferred", "visited"])
def test_such_a_retry_can_be_made_again(kind: str) -> None:
    """What is refused has claimed nothing: the same state is good for another try."""
    world, client, _ = served()
    state = deferred(world, client) if kind == "deferred" else visited(world, client)
    client.call(requestState=state, inputResponses={"r1": 5})
    method = "roots/list" if kind == "deferred" else "elicitation/create"
    channel = client.call(requestState=state, inputResponses={"r1": ANSWERS[method]})
    give(world, world.hear("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
