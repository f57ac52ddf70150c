"""Requests on their way between the eras: what a server is told to log, and what is refused in which words."""

from __future__ import annotations

import itertools
import json

import pytest
from driving import GONE, Driver, Heard, connect, driver
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from isthmus.core.base.limits import Limits
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.base.plan import Kind
from stateless_driving import Modern, give, rise, served
from stateless_server import LISTENING, asking, fail, pair

LEVEL = "io.modelcontextprotocol/logLevel"
LOOKUP_S = Limits().lookup_s


def levelled(world: Driver) -> tuple[Heard, str]:
    """What the server is told to log."""
    heard = world.hear("logging/setLevel")
    assert list(heard.frame["params"]) == ["level"]
    return heard, heard.frame["params"]["level"]


def talking(level: str = "debug") -> tuple[Driver, Modern]:
    """A client without sessions that has wanted this much of the log, of a server that has them."""
    world, client, _ = served()
    client.call(level=level)
    heard, said = levelled(world)
    assert said == level
    assert not world.hears("tools/call"), "first things first"
    world.answer(heard)
    give(world, world.hear("tools/call"))
    return world, client


# --- What is logged ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [*itertools.product(["debug", "info", "error", "emergency"], LEVELS)])
def test_a_server_is_told_to_log_more_but_never_less(first: str, second: str) -> None:
    """Each request has what it wants sorted out here; the server says all that any has wanted."""
    world, client = talking(first)
    client.call(level=second)
    if LEVELS.index(second) < LEVELS.index(first):
        heard, said = levelled(world)
        assert said == second
        world.answer(heard)
    assert world.hear("tools/call")
    assert not world.heard


@pytest.mark.parametrize("capabilities", ["{}", '{"tools":{}}'])
def test_a_server_that_does_not_log_is_not_told_to(capabilities: str) -> None:
    world, client, _ = served(capabilities=capabilities)
    client.call(level="debug")
    assert world.hear("tools/call")


def test_who_wants_no_log_waits_for_nothing() -> None:
    world, client, _ = served()
    client.call()
    assert world.hear("tools/call")
    client.call(level="info")
    heard, _ = levelled(world)
    client.call("beside")
    assert world.hear("tools/call").frame["params"]["name"] == "beside"
    world.answer(heard)
    assert world.hear("tools/call").frame["params"]["name"] == "ask"


@pytest.mark.parametrize("how", ["done", "refused", "silent"])
def test_calls_wait_until_the_server_knows_what_to_log(how: str) -> None:
    """All that came meanwhile go up then, in their order, but for one that was cancelled; and also where it refuses, or
    takes too long: without the log rather than without an answer."""
    world, client, _ = served()
    channels = [client.call(name, level="info") for name in ("a", "b", "c")]
    heard, _ = levelled(world)
    assert not world.heard
    client.cancel(channels[1])
    if how == "done":
        world.answer(heard)
    elif how == "refused":
        fail(world, heard, -32603)
    else:
        world.wait(LOOKUP_S - 0.1)
        assert not world.hears("tools/call")
        world.wait(0.1)
    names = []
    while world.hears("tools/call"):
        names.append(world.hear("tools/call").frame["params"]["name"])
    assert names == ["a", "c"]
    assert not [purpose for purpose, _ in world.engine._desk.timers._live if purpose == "level"]
    if how == "silent":
        world.heard.clear()
        world.answer(heard)
        assert not world.heard, "it is too late"
    client.call("d", level="info")
    client.call("e", level="debug")
    assert world.hear("tools/call").frame["params"]["name"] == "d"
    if how == "done":
        assert levelled(world)[1] == "debug"
    else:
        assert world.hear("tools/call").frame["params"]["name"] == "e", "nor is it tried again with each"


@pytest.mark.parametrize("again", [None, "debug", "info", "error"])
def test_a_server_that_comes_back_is_told_again_what_to_log(again: str | None) -> None:
    """As it was told before it was lost, and then what the next call wants: of what others wanted nobody is left."""
    world, client = talking("info")
    dead = next(channel for channel in world.children if channel not in world.over)
    world.end(dead, GONE)
    client.call(level=again)
    rise(world)
    told = []
    while not world.hears("tools/call"):
        heard, level = levelled(world)
        told.append(level)
        world.answer(heard)
    assert told == ["info", *([] if again is None else [again])]


# --- A client with a session, a server without ------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_from_now_on_each_request_says_the_level(level: str) -> None:
    both = pair(up=Kind.PIPE, capabilities=LISTENING)
    channel = both.client.request("1", "logging/setLevel", json.dumps({"level": level}))
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert not both.world.hears("logging/setLevel")
    _, heard = both.call("2")
    assert heard.frame["params"]["_meta"][LEVEL] == level


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
def test_a_level_that_is_none_is_refused(params: str, capabilities: str, code: int, text: str) -> None:
    """And nothing is said with the next request."""
    both = pair(up=Kind.PIPE, capabilities=capabilities)
    channel = both.client.request("1", "logging/setLevel", params)
    assert both.answer(channel) == {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": text}}
    _, heard = both.call("2")
    assert LEVEL not in heard.frame["params"]["_meta"]


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_what_only_clients_without_sessions_may_ask_is_unknown(method: str) -> None:
    both = pair(up=Kind.PIPE)
    channel = both.client.request("1", method, "{}")
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"] == {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}
    assert not both.world.heard


def test_a_call_is_no_task_for_who_has_another_word_for_it() -> None:
    both = pair(up=Kind.PIPE)
    _, heard = both.call(params='{"name":"t","task":{"ttl":1},"x":{"task":1}}')
    params = heard.frame["params"]
    assert {key: value for key, value in params.items() if key != "_meta"} == {"name": "t", "x": {"task": 1}}


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "completion/complete"])
def test_a_request_that_may_not_ask_fails_if_it_does(method: str) -> None:
    """2026-07-28 basic/patterns/mrtr, "Supported Requests"."""
    both = pair(up=Kind.PIPE, capabilities='{"tools":{},"prompts":{},"completions":{}}')
    channel = both.client.request("1", method, "{}")
    both.world.answer(both.world.hear(method), asking({"r": ("roots/list", {})}, "s"))
    answer = both.answer(channel)
    assert answer is not None
    assert answer["error"]["code"] == INTERNAL_ERROR
    allowed = "prompts/get, resources/read, tools/call"
    assert f"got input_required for {method}, expected it for {allowed} only" in answer["error"]["message"]


def test_a_server_that_does_not_accept_how_it_is_asked_is_said_to_be_at_fault() -> None:
    """Or this proxy is: its client is not. The code it gave is told beside it."""
    both = pair(up=Kind.PIPE)
    channel, heard = both.call()
    fail(both.world, heard, -32020)
    assert not both.world.heard
    answer = both.answer(channel)
    assert answer is not None
    text = "the server does not accept how it was asked, which is a fault of this proxy or of the server"
    assert answer["error"] == {"code": INTERNAL_ERROR, "message": text, "data": {"dev.isthmus/originalCode": -32020}}


# --- A server with sessions, a client without -------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ist1.x", "theirs", ""])
def test_a_state_that_nobody_here_gave_is_refused(state: str) -> None:
    world, client, _ = served()
    answer = client.answered(client.call(requestState=state))
    assert answer["error"] == {
        "code": INVALID_PARAMS,
        "message": "Invalid or expired requestState",
        "data": {"reason": "invalid_request_state"},
    }
    assert not world.heard


def test_between_two_of_one_era_nothing_is_changed() -> None:
    """A level is its server's to judge."""
    world = driver()
    client = connect(world, "pipe", "pipe", capabilities=LISTENING)
    client.request("1", "logging/setLevel", '{"level":"loud"}')
    assert world.hear("logging/setLevel").frame["params"] == {"level": "loud"}
    client.request("2", "server/discover", "{}")
    assert world.hear("server/discover")
