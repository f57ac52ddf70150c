"""A server is replaced by one of the other era while sessions are open: they go on, and requests that it refused for
that alone are made again, in its own way."""

from __future__ import annotations

import json

import pytest
from driving import FORGOTTEN, connect, driver, newcomer
from isthmus.core.base.effects import Cause, End, Post
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
    """Corner case 40: a refusal as only a server with sessions writes it is no answer to the call, but news: the
    server was replaced. It is spoken to anew, once, and the call made again."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    client = newcomer(world, "http", "http")
    if is_modern_client:
        channel = modern_call(client)
        discovered(world)
    else:
        opened = client.initialize()
        fail(world, world.hear("initialize"), -32601, status=404)
        discovered(world)
        client.session = world.sent[opened][-1].session
        channel = client.request("1", "tools/list")
    refuse(world, world.hear("tools/list"), *LIKE_LEGACY[case])
    assert not world.messages(channel)
    if is_modern_client or world.hears("server/discover"):
        fail(world, world.hear("server/discover"), -32601, status=404)
    world.answer(world.hear("initialize"), LEGACY_ANSWER, session="S1")
    world.acknowledge(world.hear("notifications/initialized"))
    world.end(world.dials[-1].channel, refused(405))
    again = world.hear("tools/list")
    assert META not in again.raw.decode()
    world.answer(again, '{"tools":[]}')
    assert world.said(channel)["result"]["tools"] == []


def test_many_refused_at_once_begin_one_handshake() -> None:
    """Corner case 39: calls that are refused at the same time, or late, are all made again after one new beginning."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    client = newcomer(world, "http", "http")
    channels = [modern_call(client, str(number)) for number in range(4)]
    discovered(world)
    calls = [world.hear("tools/list") for _ in channels]
    for call in calls[:2]:
        refuse(world, call, 404)
    fail(world, world.hear("server/discover"), -32601, status=404)
    refuse(world, calls[2], 404)
    world.answer(world.hear("initialize"), LEGACY_ANSWER, session="S1")
    world.acknowledge(world.hear("notifications/initialized"))
    world.end(world.dials[-1].channel, refused(405))
    refuse(world, calls[3], 404)
    while world.hears("tools/list"):
        world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert [world.said(channel)["result"]["tools"] for channel in channels] == [[]] * 4
    assert not world.heard
    assert sum(b'"server/discover"' in post.message for post in posts(world)) == 2
    assert sum(b'"initialize"' in post.message for post in posts(world)) == 1


@pytest.mark.parametrize("status, code", [(404, -32601), (400, -32602), (400, -32600), (400, -32000)])
def test_an_error_about_the_request_itself_is_its_answer(status: int, code: int) -> None:
    """A modern server's own refusal names the request: it is the client's to see, and no sign of anything."""
    both = pair("pipe", Kind.HTTP)
    channel, heard = both.call()
    refuse(both.world, heard, status, failure(code, "so it is", id=heard.id))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["message"] == "so it is" or code == -32600
    assert not both.world.heard


def test_who_refuses_so_again_is_told_to_the_client() -> None:
    """One new beginning, one repetition: then the refusal is the answer."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    channel = modern_call(newcomer(world, "http", "http"))
    discovered(world)
    for _ in range(2):
        refuse(world, world.hear("tools/list"), 404)
        if world.hears("server/discover"):
            discovered(world)
    assert "error" in world.said(channel)
    assert not world.hears("tools/list")


@pytest.mark.parametrize("how", ["forgotten", "-32022"])
def test_from_sessions_to_none_over_http(how: str) -> None:
    """A client with a session goes on with it, though its server has none any more."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    heard = world.hear("tools/list")
    if how == "forgotten":
        world.end(heard.channel, FORGOTTEN)
    else:
        data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
        refuse(world, heard, 400, failure(-32022, data=data, id=heard.id))
    data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
    refuse(world, world.hear("initialize"), 400, failure(-32022, data=data, id=1))
    discovered(world)
    again = world.hear("tools/list")
    assert again.frame["params"]["_meta"][f"{META}protocolVersion"] == LATEST_MODERN
    assert again.post is not None
    assert again.post.session is None
    world.answer(again, LISTED)
    assert world.said(channel)["result"] == {"tools": []}


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("sharing", list(Sharing))
@pytest.mark.parametrize("how", ["says so", "exits"])
def test_a_process_comes_back_in_the_other_era(how: str, kind: Kind, sharing: Sharing) -> None:
    """An update that loses its sessions, and one that takes it back, restart the process: open sessions go on."""
    world = driver(ServerPlan(id="s", kind=kind, sharing=sharing))
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    world.end(world.dials[-1].channel, DIED)
    channel = client.request("1", "tools/list")
    connect_child(world)
    fail(world, world.hear("initialize"), -32022, data={"supported": [LATEST_MODERN], "requested": "2025-11-25"})
    discovered(world, '{"tools":{}}')
    heard = world.hear("tools/list")
    assert f"{META}clientCapabilities" in heard.frame["params"]["_meta"]
    world.answer(heard, LISTED)
    assert world.messages(channel)[-1] == b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
    world.end(heard.channel, DIED)
    client.request("2", "tools/list")
    child = connect_child(world)
    if how == "says so":
        fail(world, world.hear("server/discover"), -32601)
    else:
        world.end(child, DIED)  # which might have any cause, but leaves in doubt what was known
        world.wait(2.0)
        client.request("2", "tools/list")
    connect_child(world)
    world.answer(world.hear("initialize"), LEGACY_ANSWER)
    world.hear("notifications/initialized")
    heard = world.hear("tools/list")
    assert heard.frame.get("params") is None
    world.answer(heard, '{"tools":[{"name":"t"}]}')
    assert json.loads(world.messages(channel)[-1])["result"] == {"tools": [{"name": "t"}]}


def test_a_call_whose_fate_is_unknown_is_not_repeated_in_the_other_era() -> None:
    """Corner case 38: a tool call lost with its process may have run."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call()
    both.world.end(heard.channel, DIED)
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"
    assert not both.world.hears("tools/call")


def test_what_only_reads_is_repeated_after_a_loss() -> None:
    """Corner case 38: reading twice is reading."""
    both = pair("pipe", Kind.PIPE)
    channel, heard = both.call(method="resources/read", params='{"uri":"a:b"}')
    both.world.end(heard.channel, DIED)
    discovered(both.world)
    both.world.answer(
        both.world.hear("resources/read"), '{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"private"}'
    )
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {"contents": []}}


def test_a_broken_post_is_no_sign_of_another_era() -> None:
    """A cut connection says nothing: the next call goes the same way."""
    both = pair("http", Kind.HTTP)
    channel, heard = both.call()
    both.world.end(heard.channel, Cause(End.BROKEN))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["data"]["outcome"] == "unknown"
    both.call("2")
    assert isinstance(both.world.dials[-1].target, Post)
    assert sum(b'"server/discover"' in post.message for post in posts(both.world)) == 1
