"""Tests of stateless clients in rare sequences of events: held answers, foreign states, cancellations and tasks."""

from __future__ import annotations

import json

import pytest
from driving import Driver, SentMessage, notification
from inside import Inside
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, Offer, ServerPlan, TaskRules
from isthmus.core.base.storage import Save, Saved
from stateless_driving import (
    ACCEPT,
    Modern,
    ask,
    assert_empty,
    assert_idle,
    bridge,
    collect,
    modern,
    respond,
    rounds,
    served,
    start_legacy_server,
    start_stateless_server,
    suspended,
)
from task_clients import KNOWS_TASKS


def suspended_in_own_session(up: str, limits: Limits | None = None) -> tuple[Driver, Modern, SentMessage, str]:
    """Returns a suspended call that has a session of its own."""
    world = bridge(affinity=Affinity.REQUEST, limits=limits)
    client = modern(world, up)
    channel = client.call()
    start_legacy_server(world)
    received = world.take_sent("tools/call")
    ask(world, received)
    collect(world)
    _, state = rounds(client, channel)
    return world, client, received, state


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_an_answer_is_held_though_its_session_has_nothing_else(up: str) -> None:
    """The session was for this call alone, and stays until the answer is claimed."""
    world, client, received, state = suspended_in_own_session(up)
    respond(world, received, '{"content":[],"n":1}')
    assert world.engine.session_count == 1
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["result"]["n"] == 1
    world.wait(Limits().unclaimed_session_ttl_s)
    assert world.engine.session_count == 0
    if world.was_sent(""):
        world.acknowledge(world.take_sent(""))
    assert_empty(world)


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_a_foreign_state_is_passed_to_the_server(kind: Kind) -> None:
    """A stateless server may be such a proxy as well, with another key."""
    first, ann, _ = served(state_keys=(b"0123456789abcdef",))
    _, _, state = suspended(first, ann)
    world = bridge(ServerPlan(id="s", kind=kind), state_keys=(b"fedcba9876543210",))
    client = modern(world, "s")
    client.request("server/discover")
    start_stateless_server(world)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    if world.was_sent("tools/list"):
        world.answer(
            world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}'
        )
    received = world.take_sent("tools/call")
    assert received.frame["params"]["requestState"] == state
    assert received.frame["params"]["inputResponses"] == {"r1": ACCEPT}
    world.answer(received, '{"resultType":"complete","content":[]}')
    assert "result" in client.answered(channel, client.last_id)


def test_a_full_outbox_of_a_server_refuses_requests() -> None:
    """Clients over HTTP get 503. Messages in the outbox are sent."""
    limits = Limits(outbox_low_bytes=100, outbox_high_bytes=1000, outbox_max_bytes=5000)
    world, client, _ = served(limits=limits)
    open_calls = []
    for _ in range(60):
        channel = client.call(arguments={"x": "y" * 200})
        if world.messages(channel):
            break
        open_calls.append((channel, world.take_sent("tools/call")))
    refusal = client.answered(channel, client.last_id)["error"]
    assert refusal["message"] == "too much was sent that is not taken yet: wait, and try again"
    assert world.sent[channel][0].status == 503
    assert not world.was_sent("tools/call")
    child = open_calls[0][1].channel
    world.take(child, Inside(world.engine).context.unsent_bytes(child))
    channel = client.call()
    assert world.was_sent("tools/call")
    assert not world.messages(channel)


@pytest.mark.parametrize(
    "params",
    [None, "{}", "[]", '{"requestId":99}', '{"requestId":1,"requestId":2}', '{"requestId":null}', '{"requestId":"1"}'],
)
def test_a_cancellation_of_no_request_is_ignored(params: str | None) -> None:
    world, client, _ = served(down="pipe")
    channel = client.call()
    received = world.take_sent("tools/call")
    assert client.pipe is not None
    world.send(client.pipe, notification("notifications/cancelled", params))
    assert not world.was_sent("notifications/cancelled")
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)
    assert_idle(world)


def test_a_cancellation_keeps_its_params() -> None:
    """The server gets the reason under its own id, without the client's `_meta` members."""
    world, client, _ = served(down="pipe")
    client.call()
    number = world.take_sent("tools/call").id
    meta = json.loads(client.body("x"))["params"]["_meta"]
    assert client.pipe is not None
    params = {"requestId": client.last_id - 1, "reason": "enough", "_meta": meta}
    world.send(client.pipe, notification("notifications/cancelled", json.dumps(params)))
    assert world.take_sent("notifications/cancelled").frame["params"] == {"requestId": number, "reason": "enough"}
    assert not world.messages(client.pipe)
    assert_idle(world)


def test_the_end_of_a_pipe_ends_the_calls_that_came_on_it() -> None:
    """Calls of other clients go on."""
    world, client, _ = served(down="http")
    pipe = modern(world, "pipe", "pipe")
    assert pipe.pipe is not None
    pipe.call()
    if not world.was_sent("tools/call"):
        start_legacy_server(world)
    world.take_sent("tools/call")
    world.end(pipe.pipe)
    assert world.was_sent("notifications/cancelled") or world.children & set(world.closed)
    channel = client.call()
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def saved(world: Driver) -> None:
    """Confirms all records to the engine."""
    for order in world.every(Save):
        world.store(order.ticket, Saved())


def test_a_session_for_one_call_lasts_as_long_as_its_task() -> None:
    """The session ends only after the client has fetched the outcome."""
    plan = ServerPlan(id="s", kind=Kind.PIPE, tasks=TaskRules(offer=Offer.ALWAYS))
    world = bridge(plan, affinity=Affinity.REQUEST)
    client = modern(world, "s", capabilities=KNOWS_TASKS)
    channel = client.call()
    start_legacy_server(world)
    received = world.take_sent("tools/call")
    world.wait(Limits().task_after_s + 1)
    saved(world)
    task = client.answered(channel, client.last_id)["result"]
    assert task["resultType"] == "task"
    assert world.engine.session_count == 1
    respond(world, received, '{"content":[],"n":1}')
    assert world.engine.session_count == 0
    saved(world)
    (task,) = world.engine.tasks()
    assert task.status == "completed"
