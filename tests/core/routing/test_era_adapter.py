"""Tests of requests that cross the eras: which log level a server gets, and which requests are refused with which
error."""

from __future__ import annotations

import itertools
import json

import pytest
from driving import GONE, Driver, SentMessage, connect, driver
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from isthmus.core.base.limits import Limits
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.base.plan import Kind
from stateless_driving import Modern, respond, served, start_legacy_server, tables
from stateless_server import LISTENING, fail, input_required_result, pair

LEVEL = "io.modelcontextprotocol/logLevel"
LOOKUP_S = Limits().lookup_s


def levelled(world: Driver) -> tuple[SentMessage, str]:
    """Takes a `logging/setLevel` that the server got. Returns it and its level."""
    received = world.take_sent("logging/setLevel")
    assert list(received.frame["params"]) == ["level"]
    return received, received.frame["params"]["level"]


def with_level(level: str = "debug") -> tuple[Driver, Modern]:
    """Returns a client without sessions that has asked for a log level, of a server with sessions."""
    world, client, _ = served()
    client.call(level=level)
    received, sent_level = levelled(world)
    assert sent_level == level
    assert not world.was_sent("tools/call"), "first things first"
    world.answer(received)
    respond(world, world.take_sent("tools/call"))
    return world, client


# --- Log levels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [*itertools.product(["debug", "info", "error", "emergency"], LEVELS)])
def test_the_log_level_of_a_server_only_gets_more_detailed(first: str, second: str) -> None:
    """The server logs all that any request has wanted, and the proxy filters for each request."""
    world, client = with_level(first)
    client.call(level=second)
    if LEVELS.index(second) < LEVELS.index(first):
        received, sent_level = levelled(world)
        assert sent_level == second
        world.answer(received)
    assert world.take_sent("tools/call")
    assert not world.unread


@pytest.mark.parametrize("capabilities", ["{}", '{"tools":{}}'])
def test_a_server_without_logging_gets_no_level(capabilities: str) -> None:
    world, client, _ = served(capabilities=capabilities)
    client.call(level="debug")
    assert world.take_sent("tools/call")


def test_a_call_without_a_level_does_not_wait() -> None:
    world, client, _ = served()
    client.call()
    assert world.take_sent("tools/call")
    client.call(level="info")
    received, _ = levelled(world)
    client.call("beside")
    assert world.take_sent("tools/call").frame["params"]["name"] == "beside"
    world.answer(received)
    assert world.take_sent("tools/call").frame["params"]["name"] == "ask"


@pytest.mark.parametrize("how", ["done", "refused", "silent"])
def test_calls_wait_until_the_server_has_their_level(how: str) -> None:
    """All waiting calls are then sent in their order, except a cancelled one. They are sent without the log if the
    server refuses the level or takes too long."""
    world, client, _ = served()
    channels = [client.call(name, level="info") for name in ("a", "b", "c")]
    received, _ = levelled(world)
    assert not world.unread
    client.cancel(channels[1])
    if how == "done":
        world.answer(received)
    elif how == "refused":
        fail(world, received, -32603)
    else:
        world.wait(LOOKUP_S - 0.1)
        assert not world.was_sent("tools/call")
        world.wait(0.1)
    names = []
    while world.was_sent("tools/call"):
        names.append(world.take_sent("tools/call").frame["params"]["name"])
    assert names == ["a", "c"]
    assert not [purpose for purpose, _ in tables(world.engine)["timers"] if purpose == "level"]
    if how == "silent":
        world.unread.clear()
        world.answer(received)
        assert not world.unread, "it is too late"
    client.call("d", level="info")
    client.call("e", level="debug")
    assert world.take_sent("tools/call").frame["params"]["name"] == "d"
    if how == "done":
        assert levelled(world)[1] == "debug"
    else:
        assert world.take_sent("tools/call").frame["params"]["name"] == "e", "nor is it tried again with each"


@pytest.mark.parametrize("again", [None, "debug", "info", "error"])
def test_the_level_is_set_again_at_a_server_that_comes_back(again: str | None) -> None:
    """The server gets the level from before it was lost, and then the one of the next call. The levels of other earlier
    requests are forgotten."""
    world, client = with_level("info")
    dead = next(channel for channel in world.children if channel not in world.over)
    world.end(dead, GONE)
    client.call(level=again)
    start_legacy_server(world)
    levels = []
    while not world.was_sent("tools/call"):
        received, level = levelled(world)
        levels.append(level)
        world.answer(received)
    assert levels == ["info", *([] if again is None else [again])]


# --- A client with a session, a server without ------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_each_request_after_set_level_has_the_level(level: str) -> None:
    both = pair(up=Kind.PIPE, capabilities=LISTENING)
    channel = both.client.request("1", "logging/setLevel", json.dumps({"level": level}))
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert not both.world.was_sent("logging/setLevel")
    _, received = both.call("2")
    assert received.frame["params"]["_meta"][LEVEL] == level


@pytest.mark.parametrize(
    ("params", "capabilities", "code", "text"),
    [
        ('{"level":"loud"}', LISTENING, INVALID_PARAMS, f"got no known log level, expected one of {', '.join(LEVELS)}"),
        ('{"level":5}', LISTENING, INVALID_PARAMS, f"got no known log level, expected one of {', '.join(LEVELS)}"),
        ("{}", LISTENING, INVALID_PARAMS, f"got no known log level, expected one of {', '.join(LEVELS)}"),
        (
            '{"level":"info","level":"debug"}',
            LISTENING,
            INVALID_PARAMS,
            f"got no known log level, expected one of {', '.join(LEVELS)}",
        ),
        ('{"level":"info"}', "{}", METHOD_NOT_FOUND, "the server does not log"),
    ],
)
def test_an_invalid_level_is_refused(params: str, capabilities: str, code: int, text: str) -> None:
    """The next request has the level of a client that has set none."""
    both = pair(up=Kind.PIPE, capabilities=capabilities)
    channel = both.client.request("1", "logging/setLevel", params)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": text}}
    _, received = both.call("2")
    assert received.frame["params"]["_meta"].get(LEVEL) == ("info" if capabilities == LISTENING else None)


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_methods_for_clients_without_sessions_are_unknown(method: str) -> None:
    both = pair(up=Kind.PIPE)
    channel = both.client.request("1", method, "{}")
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"] == {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}
    assert not both.world.unread


def test_the_task_of_a_call_is_left_out_for_the_stateless_era() -> None:
    both = pair(up=Kind.PIPE)
    _, received = both.call(params='{"name":"t","task":{"ttl":1},"x":{"task":1}}')
    params = received.frame["params"]
    assert {key: value for key, value in params.items() if key != "_meta"} == {"name": "t", "x": {"task": 1}}


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "completion/complete"])
def test_input_required_for_another_method_is_an_error(method: str) -> None:
    """Source: 2026-07-28 basic/patterns/mrtr, "Supported Requests"."""
    both = pair(up=Kind.PIPE, capabilities='{"tools":{},"prompts":{},"completions":{}}')
    channel = both.client.request("1", method, "{}")
    both.world.answer(both.world.take_sent(method), input_required_result({"r": ("roots/list", {})}, "s"))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == INTERNAL_ERROR
    allowed = "prompts/get, resources/read, tools/call"
    assert f"got input_required for {method}, expected it for {allowed} only" in answer["error"]["message"]


def test_a_header_mismatch_is_no_fault_of_the_client() -> None:
    """The error blames the proxy or the server, not the client, and has the original code beside it."""
    both = pair(up=Kind.PIPE)
    channel, received = both.call()
    fail(both.world, received, -32020)
    assert not both.world.unread
    answer = both.answer(channel)
    assert answer is not None
    text = "the server does not accept how it was asked, which is a fault of this proxy or of the server"
    assert answer["error"] == {"code": INTERNAL_ERROR, "message": text, "data": {"dev.isthmus/originalCode": -32020}}


# --- A server with sessions, a client without -------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ist1.x", "theirs", ""])
def test_a_foreign_request_state_is_refused(state: str) -> None:
    world, client, _ = served()
    answer = client.answered(client.call(requestState=state))
    assert answer["error"] == {
        "code": INVALID_PARAMS,
        "message": "Invalid or expired requestState",
        "data": {"reason": "invalid_request_state"},
    }
    assert not world.unread


def test_requests_within_one_era_are_not_changed() -> None:
    """The server itself judges a level."""
    world = driver()
    client = connect(world, "pipe", "pipe", capabilities=LISTENING)
    client.request("1", "logging/setLevel", '{"level":"loud"}')
    assert world.take_sent("logging/setLevel").frame["params"] == {"level": "loud"}
    client.request("2", "server/discover", "{}")
    assert world.take_sent("server/discover")
