"""Clients without sessions: what is kept for them, refused, or ignored, when something else has happened meanwhile."""

from __future__ import annotations

import json

import pytest
from driving import Driver, Heard, notification
from isthmus.core.base.effects import Save, Saved
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, Offer, ServerPlan, TaskRules
from stateless_driving import (
    ACCEPT,
    Modern,
    ask,
    assert_empty,
    assert_idle,
    bridge,
    collect,
    emerge,
    give,
    modern,
    parked,
    rise,
    rounds,
    served,
)
from task_clients import KNOWS_TASKS


def asking_one(up: str, limits: Limits | None = None) -> tuple[Driver, Modern, Heard, str]:
    """A call with a session of its own, whose client is away for answers."""
    world = bridge(affinity=Affinity.REQUEST, limits=limits)
    client = modern(world, up)
    channel = client.call()
    rise(world)
    heard = world.hear("tools/call")
    ask(world, heard)
    collect(world)
    _, state = rounds(client, channel)
    return world, client, heard, state


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_an_answer_is_kept_for_who_is_away_though_nothing_else_is_under_way(up: str) -> None:
    """Its session was for that call alone, and stays until it is claimed."""
    world, client, heard, state = asking_one(up)
    give(world, heard, '{"content":[],"n":1}')
    assert world.engine.session_count == 1
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["result"]["n"] == 1
    assert world.engine.session_count == 0
    if world.hears(""):
        world.acknowledge(world.hear(""))
    assert_empty(world)


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_a_state_that_is_not_ours_is_its_servers(kind: Kind) -> None:
    """A server without sessions may be such a proxy as well, with another key."""
    first, ann, _ = served(state_keys=(b"0123456789abcdef",))
    _, _, state = parked(first, ann)
    world = bridge(ServerPlan(id="s", kind=kind), state_keys=(b"fedcba9876543210",))
    client = modern(world, "s")
    client.request("server/discover")
    emerge(world)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    if world.hears("tools/list"):
        world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    heard = world.hear("tools/call")
    assert heard.frame["params"]["requestState"] == state
    assert heard.frame["params"]["inputResponses"] == {"r1": ACCEPT}
    world.answer(heard, '{"resultType":"complete","content":[]}')
    assert "result" in client.answered(channel, client.last_id)


def test_a_server_that_takes_nothing_is_sent_no_more() -> None:
    """Over HTTP its clients are told to come back; what is sent already goes its way."""
    limits = Limits(outbox_low_bytes=100, outbox_high_bytes=1000, outbox_max_bytes=5000)
    world, client, _ = served(limits=limits)
    open_calls = []
    for _ in range(60):
        channel = client.call(arguments={"x": "y" * 200})
        if world.messages(channel):
            break
        open_calls.append((channel, world.hear("tools/call")))
    said = client.answered(channel, client.last_id)["error"]
    assert said["message"] == "too much was sent that is not taken yet: wait, and try again"
    assert world.sent[channel][0].status == 503
    assert not world.hears("tools/call")
    child = open_calls[0][1].channel
    world.take(child, world.engine._desk.unsent_bytes(child))
    channel = client.call()
    assert world.hears("tools/call")
    assert not world.messages(channel)


@pytest.mark.parametrize(
    "params",
    [None, "{}", "[]", '{"requestId":99}', '{"requestId":1,"requestId":2}', '{"requestId":null}', '{"requestId":"1"}'],
)
def test_a_cancellation_of_nothing_is_ignored(params: str | None) -> None:
    world, client, _ = served(down="pipe")
    channel = client.call()
    heard = world.hear("tools/call")
    assert client.pipe is not None
    world.say(client.pipe, notification("notifications/cancelled", params))
    assert not world.hears("notifications/cancelled")
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


def test_a_cancellation_says_what_its_client_said() -> None:
    """Under the number that its server knows, and without what is between us and the client."""
    world, client, _ = served(down="pipe")
    client.call()
    number = world.hear("tools/call").id
    meta = json.loads(client.body("x"))["params"]["_meta"]
    assert client.pipe is not None
    said = {"requestId": client.last_id - 1, "reason": "enough", "_meta": meta}
    world.say(client.pipe, notification("notifications/cancelled", json.dumps(said)))
    assert world.hear("notifications/cancelled").frame["params"] == {"requestId": number, "reason": "enough"}
    assert not world.messages(client.pipe)
    assert_idle(world)


def test_the_end_of_a_pipe_ends_the_calls_that_came_on_it() -> None:
    """And nobody else's."""
    world, client, _ = served(down="http")
    pipe = modern(world, "pipe", "pipe")
    assert pipe.pipe is not None
    pipe.call()
    if not world.hears("tools/call"):
        rise(world)
    world.hear("tools/call")
    world.end(pipe.pipe)
    assert world.hears("notifications/cancelled") or world.children & set(world.closed)
    channel = client.call()
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def saved(world: Driver) -> None:
    """The storage has taken everything."""
    for order in world.every(Save):
        world.store(order.ticket, Saved())


def test_a_session_for_one_call_lasts_as_long_as_the_call_that_became_a_task() -> None:
    """Not until its client has looked at what that came to."""
    plan = ServerPlan(id="s", kind=Kind.PIPE, tasks=TaskRules(offer=Offer.ALWAYS))
    world = bridge(plan, affinity=Affinity.REQUEST)
    client = modern(world, "s", capabilities=KNOWS_TASKS)
    channel = client.call()
    rise(world)
    heard = world.hear("tools/call")
    world.wait(world.engine._desk.limits.task_after_s + 1)
    saved(world)
    said = client.answered(channel, client.last_id)["result"]
    assert said["resultType"] == "task"
    assert world.engine.session_count == 1
    give(world, heard, '{"content":[],"n":1}')
    assert world.engine.session_count == 0
    saved(world)
    (task,) = world.engine.tasks()
    assert task.status == "completed"
