"""Requests of clients without sessions: which are taken, under which ids they are answered, what goes up of them."""

from __future__ import annotations

import json

import pytest
from driving import error, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Dial, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.endpoints.channels import PipeRole
from isthmus.core.endpoints.pipe_requests import SWEPT_MIN
from stateless_driving import (
    REVISION,
    K,
    assert_idle,
    bridge,
    emerge,
    give,
    meta,
    modern,
    rise,
    served,
)

# --- What must be there -----------------------------------------------------------------------------------------------


def test_capabilities_that_no_handshake_can_say_are_refused_and_harm_nobody() -> None:
    """A session is not begun with what cannot be read in one way, also where the server is told with each request."""
    world = bridge()
    first = modern(world, "pipe")
    first.request("server/discover")
    emerge(world)
    client = modern(world, "pipe", principal="ann")
    body = client.body("tools/list")
    channel = client.send(body.replace(b'"roots": {}', b'"roots": {}, "roots": {}'))
    assert client.answered(channel)["error"]["code"] == -32602
    assert world.engine.session_count == 1
    channel = client.request("tools/list")
    emerge(world)
    give(world, world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    assert client.answered(channel)["result"]["tools"] == []


# --- Ids --------------------------------------------------------------------------------------------------------------


def test_ids_that_are_over_are_forgotten() -> None:
    """A pipe that has asked for long keeps no more than a few of the ids it has used."""
    world, client, _ = served(down="pipe")
    assert client.pipe is not None
    client.call()
    held = world.hear("tools/call")
    for _ in range(300):
        client.request("tools/list")
        give(world, world.hear("tools/list"), '{"tools":[]}')
    role = world.engine._desk.role_of(client.pipe)
    assert isinstance(role, PipeRole)
    assert len(role.legs.open) <= 2 * SWEPT_MIN
    channel = client.send(client.body("tools/list", id_raw="1"))
    assert client.answered(channel, 1)["error"]["code"] == -32600, "one that is open is not forgotten"
    give(world, held)


integers = st.integers(-(10**40), 10**40).map(str)
ids = st.one_of(
    integers,
    st.sampled_from(["1.0", "-2.00", "-0", '"1"', '"\\u0031"', '"\\ud800"', '""']),
    st.text(max_size=8).map(json.dumps),
)


@given(id_raw=ids, down=st.sampled_from(["pipe", "http"]), is_error=st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_answer_has_the_very_id_of_its_request(id_raw: str, down: str, is_error: bool) -> None:
    """For any string or whole number, however it is written: its bytes come back, and the server never sees them."""
    world, client, _ = served(down=down)
    channel = client.call(id_raw=id_raw)
    heard = world.hear("tools/call")
    assert heard.id == 3, "numbers of our own, counted from the handshake on"
    if is_error:
        world.say(heard.channel, error(str(heard.id), '{"code":-32000,"message":"x"}'))
    else:
        give(world, heard)
    (message,) = world.messages(channel)
    assert message.startswith(b'{"jsonrpc":"2.0","id":%b,' % id_raw.encode())
    assert_idle(world)


@pytest.mark.parametrize("id_raw", ["1.5", "true", "{}", "[1]"])
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_an_id_that_is_none_is_refused(id_raw: str, down: str) -> None:
    """Servers take such requests and never answer them: none goes up."""
    world, client, _ = served(down=down)
    channel = client.send(client.body("tools/list", id_raw=id_raw), mirrored=())
    (answer,) = world.frames(channel)
    assert answer["error"]["code"] == -32600
    assert down == "pipe" or world.sent[channel][0].status == 400
    assert not world.heard


def test_requests_of_equal_ids_are_told_apart_over_http() -> None:
    """Each POST is its own: whoever chose an id, and however often, gets its own answer."""
    world, client, _ = served()
    other = modern(world, "pipe")
    channels = [client.call(id_raw="1"), other.call(id_raw="1"), client.call(id_raw='"1"'), client.call(id_raw="1.0")]
    calls = [world.hear("tools/call") for _ in channels]
    assert len({heard.id for heard in calls}) == len(calls)
    for number, heard in reversed(list(enumerate(calls))):
        give(world, heard, f'{{"content":[],"n":{number}}}')
    assert [client.answered(channel)["result"]["n"] for channel in channels] == [0, 1, 2, 3]


@pytest.mark.parametrize("again, is_twice", [("1", True), ("1.0", True), ('"1"', False), ("2", False)])
@pytest.mark.parametrize("method", ["tools/call", "subscriptions/listen"])
def test_an_id_that_is_open_on_its_pipe_is_refused(again: str, is_twice: bool, method: str) -> None:
    """By value, and by type: the second is refused under that id, the first still gets its answer; then the id is free
    again."""
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
        give(world, world.hear("tools/call"))
        assert "result" in list(world.frames(channel))[-1]
        world.sent[channel].clear()
        client.request("server/discover", id_raw="1")
        assert "result" in client.answered(channel, 1)


# --- What goes up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [K.upper() + "protocolVersion", K + "protocolVersion ", K + "clientInfos"])
def test_keys_that_are_nearly_ours_are_somebody_elses(near: str) -> None:
    """Compared byte by byte: they pass to the server."""
    world, client, _ = served()
    said = {**meta(), near: 1}
    client.send(request("1", "tools/call", json.dumps({"name": "ask", "_meta": said})))
    assert world.hear("tools/call").frame["params"] == {"name": "ask", "_meta": {near: 1}}


@given(
    rest=st.sampled_from(['{"a":1.0,"b":[1e2,-0,"\\u00e9"], "a":2}', "1e400", '{"x":{"inputResponses":1,"task":2}}'])
)
def test_a_server_with_sessions_sees_nothing_that_belongs_to_those_without(rest: str) -> None:
    """The params are what the client wrote, byte for byte, but for the envelope, answers, state and task."""
    world, client, _ = served()
    message = client.body("tools/call", name="ask", arguments="A", task={"ttl": 1}, inputResponses={})
    client.send(message.replace(b'"A"', rest.encode()))
    heard = world.hear("tools/call")
    assert heard.raw.endswith(b'"params":{"name": "ask", "arguments": %b}}' % rest.encode())
    assert b"io.modelcontextprotocol" not in heard.raw


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "initialize", "tasks/list"]
)
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_methods_that_were_taken_away_are_unknown(method: str, down: str) -> None:
    """-32601, over HTTP with 404, and the server sees nothing."""
    world, client, _ = served(down=down)
    channel = client.request(method, uri="a:b", level="debug")
    assert client.answered(channel)["error"]["code"] == -32601
    assert down == "pipe" or world.sent[channel][0].status == 404
    assert not world.heard


def test_methods_that_nobody_knows_go_up_and_come_back() -> None:
    """With the envelope taken off, and the result made whole; an error of the server stays what it is."""
    world, client, _ = served()
    channel = client.request("vendor/do", x=1.5)
    heard = world.hear("vendor/do")
    assert heard.frame["params"] == {"x": 1.5}
    give(world, heard, '{"y":1e2}')
    assert b'"y":1e2' in world.messages(channel)[0]
    assert client.answered(channel)["result"]["resultType"] == "complete"
    channel = client.request("vendor/other")
    heard = world.hear("vendor/other")
    world.say(heard.channel, error(str(heard.id), '{"code":-32601,"message":"no"}'))
    assert client.answered(channel)["error"] == {"code": -32601, "message": "no"}
    assert world.sent[channel][0].status == 404


def test_a_server_is_discovered_without_being_asked_again() -> None:
    """One handshake whatever is asked, with what the first request said of its client, and `initialized` before all
    else; the same discovery each time."""
    world = bridge()
    client = modern(world, "pipe")
    first = client.request("server/discover")
    assert [heard.frame["method"] for heard in world.heard] == []
    rise(world)
    again = [client.request("server/discover") for _ in range(3)]
    assert not world.heard
    found = client.answered(first)["result"]
    assert found["supportedVersions"] == [REVISION], "one with sessions would invite a client to name it"
    assert (found["ttlMs"], found["cacheScope"], found["resultType"]) == (0, "private", "complete")
    assert found["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    assert all(client.answered(channel)["result"] == found for channel in again)
    assert sum(isinstance(dial.target, Spawn) for dial in world.every(Dial)) == 2, "one to probe, one to use"


def test_a_bound_of_open_requests_is_told() -> None:
    """One more than a client may have is refused with 503, and those that are open stay so."""
    world, client, _ = served(limits=Limits(exchanges_per_session_max=2))
    client.call()
    client.call()
    channel = client.call()
    assert client.answered(channel)["error"]["code"] == -31007
    assert world.sent[channel][0].status == 503
    give(world, world.hear("tools/call"))
    client.call()
    assert world.hears("tools/call")


def test_a_bound_of_sessions_is_told() -> None:
    """Whoever would need one more is refused; whoever shares one that is there is not. One that is idle makes room."""
    world, client, _ = served(limits=Limits(sessions_max=1))
    other = modern(world, "pipe", principal="bob")
    channel = other.call()
    assert client.answered(channel)["error"]["code"] == -31007
    assert world.sent[channel][0].status == 503
    client.call()
    give(world, world.hear("tools/call"))
    world.wait(Limits().session_idle_ttl_s)
    other.call()
    assert world.engine.session_count == 1
