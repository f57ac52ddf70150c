"""Tests of servers that are replaced by one of the other era while sessions are open.

Sessions go on, and requests that were refused only for their era are made again in the new one.
"""

from __future__ import annotations

import json

import pytest
from driving import FORGOTTEN, connect, driver, new_client
from isthmus.core.base.effects import Close, Post
from isthmus.core.base.events import Cause, End
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import LATEST_MODERN
from stateless_server import (
    DIED,
    META,
    connect_child,
    discovered,
    fail,
    failure,
    modern_call,
    pair,
    posts,
    refuse,
    refused,
)

LEGACY_ANSWER = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}'
LISTED = '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}'

LIKE_LEGACY = {
    "404 without a body": (404, b""),
    "404 with a page": (404, b"<html>"),
    "400 without a body": (400, b""),
    "TypeScript": (400, failure(-32000, "Bad Request: Server not initialized")),
    "Python": (400, failure(-32600, "Bad Request: Missing session ID", id="server-error")),
}


@pytest.mark.parametrize("case", LIKE_LEGACY)
@pytest.mark.parametrize("is_modern_client", [False, True])
def test_from_no_sessions_to_sessions_over_http(case: str, is_modern_client: bool) -> None:
    """Corner case 40: a refusal that only a server of the handshake era sends shows its era. One handshake follows, and
    the call is made again."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    client = new_client(world, "http", "http")
    if is_modern_client:
        channel = modern_call(client)
        discovered(world)
    else:
        opened = client.initialize()
        fail(world, world.take_sent("initialize"), -32601, status=404)
        discovered(world)
        client.session = world.sent[opened][-1].session
        channel = client.request("1", "tools/list")
    refuse(world, world.take_sent("tools/list"), *LIKE_LEGACY[case])
    assert not world.messages(channel)
    if is_modern_client or world.was_sent("server/discover"):
        fail(world, world.take_sent("server/discover"), -32601, status=404)
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER, session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.dials[-1].channel, refused(405))
    again = world.take_sent("tools/list")
    assert META not in again.raw.decode()
    world.answer(again, '{"tools":[]}')
    assert world.only_message(channel)["result"]["tools"] == []


def test_many_refused_at_once_begin_one_handshake() -> None:
    """Corner case 39: calls that are refused at once or late are all made again after one handshake."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    client = new_client(world, "http", "http")
    channels = [modern_call(client, str(number)) for number in range(4)]
    discovered(world)
    calls = [world.take_sent("tools/list") for _ in channels]
    for call in calls[:2]:
        refuse(world, call, 404)
    fail(world, world.take_sent("server/discover"), -32601, status=404)
    refuse(world, calls[2], 404)
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER, session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.dials[-1].channel, refused(405))
    refuse(world, calls[3], 404)
    while world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert [world.only_message(channel)["result"]["tools"] for channel in channels] == [[]] * 4
    assert not world.unread
    assert sum(b'"server/discover"' in post.message for post in posts(world)) == 2
    assert sum(b'"initialize"' in post.message for post in posts(world)) == 1


@pytest.mark.parametrize("status, code", [(404, -32601), (400, -32602), (400, -32600), (400, -32000)])
def test_an_error_about_the_request_itself_is_its_answer(status: int, code: int) -> None:
    """An error of a stateless server about the request reaches the client, and is no sign of another era."""
    both = pair("pipe", Kind.HTTP)
    channel, received = both.call()
    refuse(both.world, received, status, failure(code, "so it is", id=received.id))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["message"] == "so it is" or code == -32600
    assert not both.world.unread


def test_a_second_refusal_reaches_the_client() -> None:
    """After one handshake and one repetition the refusal is the answer."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    channel = modern_call(new_client(world, "http", "http"))
    discovered(world)
    for _ in range(2):
        refuse(world, world.take_sent("tools/list"), 404)
        if world.was_sent("server/discover"):
            discovered(world)
    assert "error" in world.only_message(channel)
    assert not world.was_sent("tools/list")


@pytest.mark.parametrize("how", ["forgotten", "-32022"])
def test_from_sessions_to_none_over_http(how: str) -> None:
    """A client keeps its session though its server has none any more."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    received = world.take_sent("tools/list")
    if how == "forgotten":
        world.end(received.channel, FORGOTTEN)
    else:
        data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
        refuse(world, received, 400, failure(-32022, data=data, id=received.id))
    data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
    refuse(world, world.take_sent("initialize"), 400, failure(-32022, data=data, id=1))
    discovered(world)
    again = world.take_sent("tools/list")
    assert again.frame["params"]["_meta"][f"{META}protocolVersion"] == LATEST_MODERN
    assert again.post is not None
    assert again.post.session is None
    world.answer(again, LISTED)
    assert world.only_message(channel)["result"] == {"tools": []}


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("sharing", list(Sharing))
@pytest.mark.parametrize("how", ["says so", "exits"])
def test_a_process_comes_back_in_the_other_era(how: str, kind: Kind, sharing: Sharing) -> None:
    """Open sessions go on when a process restarts in the stateless era, and again when it comes back."""
    world = driver(ServerPlan(id="s", kind=kind, sharing=sharing))
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    world.end(world.dials[-1].channel, DIED)
    channel = client.request("1", "tools/list")
    connect_child(world)
    fail(world, world.take_sent("initialize"), -32022, data={"supported": [LATEST_MODERN], "requested": "2025-11-25"})
    discovered(world, '{"tools":{}}')
    received = world.take_sent("tools/list")
    assert f"{META}clientCapabilities" in received.frame["params"]["_meta"]
    world.answer(received, LISTED)
    assert world.messages(channel)[-1] == b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
    for close in world.every(Close):  # the process that was spoken to in another way
        world.end(close.channel)
    world.end(received.channel, DIED)
    client.request("2", "tools/list")
    child = connect_child(world)
    if how == "says so":
        fail(world, world.take_sent("server/discover"), -32601)
    else:
        world.end(child, DIED)  # an exit has many causes, but the known era is in doubt
        world.wait(2.0)
        client.request("2", "tools/list")
    connect_child(world)
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER)
    world.take_sent("notifications/initialized")
    received = world.take_sent("tools/list")
    assert received.frame.get("params") is None
    world.answer(received, '{"tools":[{"name":"t"}]}')
    assert json.loads(world.messages(channel)[-1])["result"] == {"tools": [{"name": "t"}]}


def test_a_call_with_unknown_outcome_is_not_repeated_in_the_other_era() -> None:
    """Corner case 38: a tool call lost with its process may have run."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call()
    both.world.end(received.channel, DIED)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"
    assert not both.world.was_sent("tools/call")


def test_requests_that_only_read_are_repeated_after_a_loss() -> None:
    """Corner case 38: requests that only read are repeated."""
    both = pair("pipe", Kind.PIPE)
    channel, received = both.call(method="resources/read", params='{"uri":"a:b"}')
    both.world.end(received.channel, DIED)
    discovered(both.world)
    both.world.answer(
        both.world.take_sent("resources/read"),
        '{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"private"}',
    )
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"contents": []}}


def test_a_broken_post_is_no_sign_of_another_era() -> None:
    """After a cut connection the next call is made in the same era."""
    both = pair("http", Kind.HTTP)
    channel, received = both.call()
    both.world.end(received.channel, Cause(End.BROKEN))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"
    both.call("2")
    assert isinstance(both.world.dials[-1].target, Post)
    assert sum(b'"server/discover"' in post.message for post in posts(both.world)) == 1
