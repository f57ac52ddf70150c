"""Tests of the isolation of stateless clients from each other, and of the bounds of what is held for them."""

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
    modern,
    respond,
    served,
    start_legacy_server,
    start_stateless_server,
    suspended,
    tables,
)

MARKED = (
    '{"tools":[{"name":"ask","inputSchema":{"type":"object","properties":{"a":'
    '{"type":"string","x-mcp-header":"%s"}}}}]}'
)


def test_the_tool_list_of_a_client_does_not_bind_another() -> None:
    """A server may list other tools for another user: headers must agree with the list of the same client."""
    world, first, _ = served()
    second = modern(world, "pipe", principal="bob")
    channel = first.request("tools/list")
    respond(world, world.take_sent("tools/list"), MARKED % "Mine")
    assert "result" in first.answered(channel, first.last_id)
    channel = second.request("tools/list")
    start_legacy_server(world)
    respond(world, world.take_sent("tools/list"), MARKED % "Theirs")
    mirrored = (("mcp-method", "tools/call"), ("mcp-name", "ask"), ("mcp-param-mine", "x"))
    channel = first.send(first.body("tools/call", name="ask", arguments={"a": "x"}), mirrored=mirrored)
    assert world.take_sent("tools/call")
    channel = second.send(second.body("tools/call", name="ask", arguments={"a": "x"}), mirrored=mirrored)
    assert second.answered(channel)["error"]["code"] == -32020


def test_an_answer_too_large_to_hold_is_lost() -> None:
    """The error says that the call has run. Many such answers would fill the memory."""
    world, client, _ = served(limits=Limits(held_answers_max_bytes=1000))
    received, _, state = suspended(world, client)
    respond(world, received, json.dumps({"content": [{"type": "text", "text": "x" * 2000}]}))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    error = client.answered(channel, client.last_id)["error"]
    assert (error["code"], error["data"]) == (-31007, {"outcome": "executed"})


def test_held_log_messages_are_bounded() -> None:
    """Log messages for an absent client are held up to a number of bytes. Later ones are dropped."""
    world, client, _ = served(limits=Limits(suspended_call_logs_max_bytes=400), capabilities='{"tools":{}}')
    received, _, state = suspended(world, client, level="debug")
    for number in range(8):
        params = json.dumps({"level": "info", "data": f"{number}" + "x" * 100})
        world.send(received.channel, notification("notifications/message", params))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT}, level="debug")
    assert [message["params"]["data"][0] for message in client.notifications(channel)] == ["0", "1"]


def test_a_call_retried_on_another_pipe_ends_with_that_pipe() -> None:
    """The call is cancelled when the pipe of its retry ends."""
    world, client, _ = served(down="pipe")
    received, _, state = suspended(world, client)
    other = modern(world, "pipe", "pipe")
    other.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert world.unread.pop().frame["result"] == ACCEPT
    assert other.pipe is not None
    world.end(other.pipe, GONE)
    (cancelled,) = world.unread
    assert cancelled.frame["method"] == "notifications/cancelled"
    assert cancelled.frame["params"]["requestId"] == received.id


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_the_outcome_of_a_call_is_unknown_when_the_pipe_of_its_session_ends(up: str, down: str) -> None:
    """The upstream session belongs to the first pipe, and the retry came on another."""
    world, client, _ = served(up, "pipe")
    _, _, state = suspended(world, client)
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


def test_answers_are_sent_with_the_headers_of_their_request() -> None:
    """Credentials may have been renewed while the client was away."""
    world, client, _ = served("http")
    client.headers = (("traceparent", "first"),)
    _, _, state = suspended(world, client)
    client.headers = (("traceparent", "second"),)
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    answer = world.unread.pop()
    assert answer.frame["result"] == ACCEPT
    assert answer.post is not None
    assert answer.post.headers == (("traceparent", "second"),)


@pytest.mark.parametrize("has_token", [True, False])
def test_a_question_while_the_client_is_away_gets_progress(has_token: bool) -> None:
    """The server gets progress for the question if it gave a token."""
    world, client, _ = served()
    received, _, _ = suspended(world, client)
    params = json.loads(QUESTIONS["elicitation/create"])
    if has_token:
        params["_meta"] = {"progressToken": 7}
    ask(world, received, id_raw='"second"', params=json.dumps(params))
    collect(world)
    world.wait(Limits().suspended_call_tick_s)
    assert [each.frame["method"] for each in world.unread] == ["notifications/progress"] * has_token


@pytest.mark.parametrize("down", ["http", "pipe"])
def test_one_process_serves_requests_before_and_after_its_era_is_known(down: str) -> None:
    """A stateless server needs one session for all requests, the first included."""
    world = bridge()
    client = modern(world, "pipe", down)
    client.request("tools/list")
    start_stateless_server(world)
    world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    dialled = len(world.dials)
    client.request("tools/list")
    client.request("tools/list", capabilities={})
    assert len(world.dials) == dialled
    assert len([received for received in world.unread if received.frame["method"] == "tools/list"]) == 2
    assert len(tables(world.engine)["by_affinity"]) == len(tables(world.engine)["sessions"]) == 1
