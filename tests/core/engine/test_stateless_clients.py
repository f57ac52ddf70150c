"""Tests of requests of stateless clients: which are accepted, the ids of their answers, and what reaches the server."""

from __future__ import annotations

import json

import pytest
from driving import error, request
from hypothesis import given, settings
from hypothesis import strategies as st
from inside import Inside
from isthmus.core.base.effects import Dial, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.endpoints.channels import PipeRole
from isthmus.core.endpoints.pipe_requests import SWEPT_MIN
from stateless_driving import (
    REVISION,
    K,
    assert_idle,
    bridge,
    meta,
    modern,
    respond,
    served,
    start_legacy_server,
    start_stateless_server,
)

# --- Required members -------------------------------------------------------------------------------------------------


def test_ambiguous_capabilities_are_refused() -> None:
    """A request with a duplicate member in its capabilities is refused before a session begins, for servers of either
    era."""
    world = bridge()
    first = modern(world, "pipe")
    first.request("server/discover")
    start_stateless_server(world)
    client = modern(world, "pipe", principal="ann")
    body = client.body("tools/list")
    channel = client.send(body.replace(b'"roots": {}', b'"roots": {}, "roots": {}'))
    assert client.answered(channel)["error"]["code"] == -32602
    assert world.engine.session_count == 1
    channel = client.request("tools/list")
    start_stateless_server(world)
    respond(
        world, world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}'
    )
    assert client.answered(channel)["result"]["tools"] == []


# --- Ids --------------------------------------------------------------------------------------------------------------


def test_ids_of_ended_requests_are_forgotten() -> None:
    """A long-lived pipe keeps only a few of its used ids."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    client.call()
    held = world.take_sent("tools/call")
    for _ in range(300):
        client.request("tools/list")
        respond(world, world.take_sent("tools/list"), '{"tools":[]}')
    role = Inside(world.engine).context.role_of(client.pipe)
    assert isinstance(role, PipeRole)
    assert len(role.pipe_requests.open) <= 2 * SWEPT_MIN
    channel = client.send(client.body("tools/list", id_raw="1"))
    assert client.answered(channel, 1)["error"]["code"] == -32600, "one that is open is not forgotten"
    respond(world, held)


integers = st.integers(-(10**40), 10**40).map(str)
ids = st.one_of(
    integers,
    st.sampled_from(["1.0", "-2.00", "-0", '"1"', '"\\u0031"', '"\\ud800"', '""']),
    st.text(max_size=8).map(json.dumps),
)


@given(id_raw=ids, down=st.sampled_from(["pipe", "http"]), is_error=st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_answer_has_the_exact_id_of_its_request(id_raw: str, down: str, is_error: bool) -> None:
    """Any string or whole number comes back byte for byte, and never reaches the server."""
    world, client, _ = served(down=down)
    channel = client.call(id_raw=id_raw)
    received = world.take_sent("tools/call")
    assert received.id == 3, "numbers of our own, counted from the handshake on"
    if is_error:
        world.send(received.channel, error(str(received.id), '{"code":-32000,"message":"x"}'))
    else:
        respond(world, received)
    (message,) = world.messages(channel)
    assert message.startswith(b'{"jsonrpc":"2.0","id":%b,' % id_raw.encode())
    assert_idle(world)


@pytest.mark.parametrize("id_raw", ["1.5", "true", "{}", "[1]"])
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_an_invalid_id_is_refused(id_raw: str, down: str) -> None:
    """Servers never answer such requests, so none is sent to them."""
    world, client, _ = served(down=down)
    channel = client.send(client.body("tools/list", id_raw=id_raw), mirrored=())
    (answer,) = world.frames(channel)
    assert answer["error"]["code"] == -32600
    assert down == "pipe" or world.sent[channel][0].status == 400
    assert not world.unread


def test_requests_of_equal_ids_are_distinct_over_http() -> None:
    """Each POST gets its own answer, whatever ids other POSTs have."""
    world, client, _ = served()
    other = modern(world, "pipe")
    channels = [client.call(id_raw="1"), other.call(id_raw="1"), client.call(id_raw='"1"'), client.call(id_raw="1.0")]
    calls = [world.take_sent("tools/call") for _ in channels]
    assert len({received.id for received in calls}) == len(calls)
    for number, received in reversed(list(enumerate(calls))):
        respond(world, received, f'{{"content":[],"n":{number}}}')
    assert [client.answered(channel)["result"]["n"] for channel in channels] == [0, 1, 2, 3]


@pytest.mark.parametrize("again, is_twice", [("1", True), ("1.0", True), ('"1"', False), ("2", False)])
@pytest.mark.parametrize("method", ["tools/call", "subscriptions/listen"])
def test_an_id_that_is_open_on_its_pipe_is_refused(again: str, is_twice: bool, method: str) -> None:
    """Ids are compared by value and type. The second request is refused under the id, the first is answered, and the id
    is free again then."""
    world, client, _ = served(down="pipe")
    if method == "tools/call":
        client.call(id_raw="1")
    else:
        client.request(method, id_raw="1", notifications={"toolsListChanged": True})
    channel = client.send(client.body("server/discover", id_raw=again))
    answer = list(world.frames(channel))[-1]
    assert ("error" in answer) is is_twice
    if is_twice:
        assert (answer["id"], answer["error"]["code"]) == (json.loads(again), -32600)
    if method == "tools/call":
        respond(world, world.take_sent("tools/call"))
        assert "result" in list(world.frames(channel))[-1]
        world.sent[channel].clear()
        client.request("server/discover", id_raw="1")
        assert "result" in client.answered(channel, 1)


# --- Requests to the server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [K.upper() + "protocolVersion", K + "protocolVersion ", K + "clientInfos"])
def test_similar_keys_of_meta_reach_the_server(near: str) -> None:
    """Keys are compared byte by byte."""
    world, client, _ = served()
    members = {**meta(), near: 1}
    client.send(request("1", "tools/call", json.dumps({"name": "ask", "_meta": members})))
    assert world.take_sent("tools/call").frame["params"] == {"name": "ask", "_meta": {near: 1}}


@given(
    rest=st.sampled_from(['{"a":1.0,"b":[1e2,-0,"\\u00e9"], "a":2}', "1e400", '{"x":{"inputResponses":1,"task":2}}'])
)
def test_a_server_with_sessions_gets_no_stateless_members(rest: str) -> None:
    """The server gets the params byte for byte, without the client's `_meta` members, answers, state and task."""
    world, client, _ = served()
    message = client.body("tools/call", name="ask", arguments="A", task={"ttl": 1}, inputResponses={})
    client.send(message.replace(b'"A"', rest.encode()))
    received = world.take_sent("tools/call")
    assert received.raw.endswith(b'"params":{"name": "ask", "arguments": %b}}' % rest.encode())
    assert b"io.modelcontextprotocol" not in received.raw


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "initialize", "tasks/list"]
)
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_removed_methods_are_unknown(method: str, down: str) -> None:
    """The answer is -32601, over HTTP with 404, and the server gets nothing."""
    world, client, _ = served(down=down)
    channel = client.request(method, uri="a:b", level="debug")
    assert client.answered(channel)["error"]["code"] == -32601
    assert down == "pipe" or world.sent[channel][0].status == 404
    assert not world.unread


def test_unknown_methods_reach_the_server() -> None:
    """The server gets the request without the client's `_meta` members. The result is completed; an error comes back
    unchanged."""
    world, client, _ = served()
    channel = client.request("vendor/do", x=1.5)
    received = world.take_sent("vendor/do")
    assert received.frame["params"] == {"x": 1.5}
    respond(world, received, '{"y":1e2}')
    assert b'"y":1e2' in world.messages(channel)[0]
    assert client.answered(channel)["result"]["resultType"] == "complete"
    channel = client.request("vendor/other")
    received = world.take_sent("vendor/other")
    world.send(received.channel, error(str(received.id), '{"code":-32601,"message":"no"}'))
    assert client.answered(channel)["error"] == {"code": -32601, "message": "no"}
    assert world.sent[channel][0].status == 404


def test_discovery_is_answered_from_one_handshake() -> None:
    """One handshake, with the client info of the first request and `initialized` before all else, serves every request.
    The discovery is the same each time."""
    world = bridge()
    client = modern(world, "pipe")
    first = client.request("server/discover")
    assert [received.frame["method"] for received in world.unread] == []
    start_legacy_server(world)
    again = [client.request("server/discover") for _ in range(3)]
    assert not world.unread
    found = client.answered(first)["result"]
    assert found["supportedVersions"] == [REVISION], "one with sessions would invite a client to name it"
    assert (found["ttlMs"], found["cacheScope"], found["resultType"]) == (0, "private", "complete")
    assert found["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    assert all(client.answered(channel)["result"] == found for channel in again)
    assert sum(isinstance(dial.target, Spawn) for dial in world.every(Dial)) == 2, "one to probe, one to use"


def test_open_requests_are_bounded() -> None:
    """One request over the limit is refused with 503. The open requests go on."""
    world, client, _ = served(limits=Limits(exchanges_per_session_max=2))
    client.call()
    client.call()
    channel = client.call()
    assert client.answered(channel)["error"]["code"] == -31007
    assert world.sent[channel][0].status == 503
    respond(world, world.take_sent("tools/call"))
    client.call()
    assert world.was_sent("tools/call")


def test_sessions_are_bounded() -> None:
    """A request that needs one more session is refused. A request that shares a session is not, and an idle session
    makes room."""
    world, client, _ = served(limits=Limits(sessions_max=1))
    other = modern(world, "pipe", principal="bob")
    channel = other.call()
    assert client.answered(channel)["error"]["code"] == -31007
    assert world.sent[channel][0].status == 503
    client.call()
    respond(world, world.take_sent("tools/call"))
    world.wait(Limits().session_idle_ttl_s)
    other.call()
    assert world.engine.session_count == 1
