"""Tests of the reply timeout: how long a server may be silent about a request, counted from its last message and not
while it waits for the client."""

from __future__ import annotations

import json

import pytest
from driving import connect, driver, notification
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from stateless_driving import ACCEPT, ask, respond, rounds, send_during, served
from streaming import call_of

LIMITS = Limits(reply_timeout_s=20.0, suspended_call_ttl_s=600.0)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_server_that_waits_for_its_client_may_be_silent_and_may_speak(up: str) -> None:
    """A message during that wait does not start the timeout. The client's answer does."""
    world, client, _ = served(up, limits=LIMITS)
    channel = client.call(token="t")
    received = world.take_sent("tools/call")
    token = received.frame["params"]["_meta"]["progressToken"]
    world.wait(15.0)
    ask(world, received)
    world.wait(LIMITS.collect_s)
    questions, state = rounds(client, channel, client.last_id)
    world.wait(15.0)
    world.send(
        received.channel, notification("notifications/progress", json.dumps({"progressToken": token, "progress": 1}))
    )
    world.wait(100.0)
    (key,) = questions
    again = client.call(requestState=state, inputResponses={key: ACCEPT})
    assert world.take_sent("").frame["result"] == ACCEPT
    world.wait(19.75)
    assert not [frame for frame in world.frames(again) if "id" in frame]
    world.wait(0.25)
    answer = client.answered(again, client.last_id)
    assert "said nothing for 20 s" in json.dumps(answer)


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("own_s", [None, 8.0])
def test_a_request_is_given_up_after_silence(up: str, own_s: float | None) -> None:
    """Each message about the request begins the timeout anew, and a server may have a limit of its own."""
    plan = ServerPlan(id=up, kind=Kind.PIPE if up == "pipe" else Kind.HTTP, reply_timeout_s=own_s)
    world = driver(plan, limits=LIMITS)
    client = connect(world, "http", up)
    call = call_of(world, client)
    limit_s = own_s or 20.0
    for _ in range(3):
        world.wait(limit_s - 0.25)
        call.progress()
    world.wait(limit_s - 0.25)
    assert not [frame for frame in world.frames(call.channel) if "id" in frame]
    world.wait(0.25)
    (answer,) = [frame for frame in world.frames(call.channel) if "id" in frame]
    assert answer["error"]["data"] == {"outcome": "unknown"}
    assert f"said nothing for {limit_s:g} s" in answer["error"]["message"]
    assert world.engine.exchange_count == 0


def test_an_answer_in_time_leaves_no_timer() -> None:
    world, client, _ = served(limits=LIMITS)
    channel = client.call()
    received = world.take_sent("tools/call")
    send_during(world, received, notification("own/thing"))
    world.wait(19.0)
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)
    reasons = set()
    while (deadline := world.engine.next_timeout()) is not None and deadline.at < 1000.0:
        reasons.add(deadline.why)
        world.wait(deadline.at - world.now)
    assert "upstream reply" not in reasons
