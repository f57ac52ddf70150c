"""What belongs to one client without sessions is kept from the others, and within bounds."""

from __future__ import annotations

import json

import pytest
from driving import GONE, notification
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ACCEPT,
    QUESTIONS,
    ask,
    bridge,
    collect,
    emerge,
    give,
    modern,
    parked,
    rise,
    served,
    tables,
)

MARKED = (
    '{"tools":[{"name":"ask","inputSchema":{"type":"object","properties":{"a":'
    '{"type":"string","x-mcp-header":"%s"}}}}]}'
)


def test_what_one_is_shown_of_a_tool_does_not_bind_another() -> None:
    """A server may list other tools for another user: headers must agree with the list that their client was shown."""
    world, first, _ = served()
    second = modern(world, "pipe", principal="bob")
    channel = first.request("tools/list")
    give(world, world.hear("tools/list"), MARKED % "Mine")
    assert "result" in first.answered(channel, first.last_id)
    channel = second.request("tools/list")
    rise(world)
    give(world, world.hear("tools/list"), MARKED % "Theirs")
    mirrored = (("mcp-method", "tools/call"), ("mcp-name", "ask"), ("mcp-param-mine", "x"))
    channel = first.send(first.body("tools/call", name="ask", arguments={"a": "x"}), mirrored=mirrored)
    assert world.hear("tools/call")
    channel = second.send(second.body("tools/call", name="ask", arguments={"a": "x"}), mirrored=mirrored)
    assert second.answered(channel)["error"]["code"] == -32020


def test_an_answer_that_is_too_large_to_be_kept_is_said_to_be_lost() -> None:
    """The client is away, and many such answers would fill the memory: it hears that its call has run."""
    world, client, _ = served(limits=Limits(parks_held_max_bytes=1000))
    heard, _, state = parked(world, client)
    give(world, heard, json.dumps({"content": [{"type": "text", "text": "x" * 2000}]}))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    error = client.answered(channel, client.last_id)["error"]
    assert (error["code"], error["data"]) == (-31007, {"outcome": "executed"})


def test_what_is_told_meanwhile_is_kept_within_bounds() -> None:
    """Of log messages for a client that is away, so many bytes; the later ones are left out."""
    world, client, _ = served(limits=Limits(park_logs_max_bytes=400), capabilities='{"tools":{}}')
    heard, _, state = parked(world, client, level="debug")
    for number in range(8):
        params = json.dumps({"level": "info", "data": f"{number}" + "x" * 100})
        world.say(heard.channel, notification("notifications/message", params))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT}, level="debug")
    assert [message["params"]["data"][0] for message in client.told(channel)] == ["0", "1"]


def test_a_call_that_went_on_elsewhere_is_cancelled_where_its_client_hangs_up() -> None:
    """A retry may come on another pipe than the call; when that one is gone, nobody wants the answer."""
    world, client, _ = served(down="pipe")
    heard, _, state = parked(world, client)
    other = modern(world, "pipe", "pipe")
    other.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert world.heard.pop().frame["result"] == ACCEPT
    assert other.pipe is not None
    world.end(other.pipe, GONE)
    (told,) = world.heard
    assert told.frame["method"] == "notifications/cancelled"
    assert told.frame["params"]["requestId"] == heard.id


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_who_goes_on_elsewhere_with_a_call_hears_that_it_may_have_run_when_its_pipe_is_gone(up: str, down: str) -> None:
    """Its session with the server ends with that pipe. Nothing was wrong with the request."""
    world, client, _ = served(up, "pipe")
    _, _, state = parked(world, client)
    other = modern(world, up, down)
    channel = other.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.pipe is not None
    world.end(client.pipe, GONE)
    why = "the connection that the call began on is gone"
    assert other.answered(channel)["error"] == {
        "code": OUTCOME_UNKNOWN,
        "message": f"{why}: given up before the server answered; tools/call may have run",
        "data": {"outcome": "unknown"},
    }
    assert world.sent[channel][-1].status == 200


def test_answers_go_up_with_the_headers_that_came_with_them() -> None:
    """Credentials may have been renewed while the client was away."""
    world, client, _ = served("http")
    client.headers = (("traceparent", "first"),)
    _, _, state = parked(world, client)
    client.headers = (("traceparent", "second"),)
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    answer = world.heard.pop()
    assert answer.frame["result"] == ACCEPT
    assert answer.post is not None
    assert answer.post.headers == (("traceparent", "second"),)


@pytest.mark.parametrize("wants", [True, False])
def test_a_question_that_comes_while_the_client_is_away_keeps_its_server_waiting_too(wants: bool) -> None:
    """It hears that somebody is at it, if it wants to."""
    world, client, _ = served()
    heard, _, _ = parked(world, client)
    params = json.loads(QUESTIONS["elicitation/create"])
    if wants:
        params["_meta"] = {"progressToken": 7}
    ask(world, heard, id_raw='"second"', params=json.dumps(params))
    collect(world)
    world.wait(world.engine._desk.limits.park_tick_s)
    assert [told.frame["method"] for told in world.heard] == ["notifications/progress"] * wants


@pytest.mark.parametrize("down", ["http", "pipe"])
def test_one_process_serves_what_comes_before_and_after_its_era_is_known(down: str) -> None:
    """A server that is told abilities with each request needs one session for all of them, the first included."""
    world = bridge()
    client = modern(world, "pipe", down)
    client.request("tools/list")
    emerge(world)
    world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    dialled = len(world.dials)
    client.request("tools/list")
    client.request("tools/list", capabilities={})
    assert len(world.dials) == dialled
    assert len([heard for heard in world.heard if heard.frame["method"] == "tools/list"]) == 2
    assert len(tables(world.engine)["by_affinity"]) == len(tables(world.engine)["sessions"]) == 1
