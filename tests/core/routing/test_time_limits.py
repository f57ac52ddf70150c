"""Tests of time limits for calls of certain tools: which calls have one, and how a call ends that takes too long."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from driving import Driver, connect, driver
from isthmus.core.base.errors import TIMED_OUT
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan, Sharing
from isthmus.core.routing.time_limits import ToolTimeLimits
from isthmus.core.state.context import Context
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.stream import Stream
from parts import NoRouter, lone_session
from stateless_driving import bridge, modern, start_legacy_server, tables

LIMITS = (("slow_*", 5.0), ("*_report", 60.0))
KINDS = {"pipe": Kind.PIPE, "http": Kind.HTTP}


def limited(up: str, **more: Any) -> ServerPlan:
    return ServerPlan(id=up, kind=KINDS[up], tool_time_limits=LIMITS, **more)


def errors(world: Driver, channel: Any) -> list[dict[str, Any]]:
    return [frame["error"] for frame in map(json.loads, world.messages(channel)) if "error" in frame]


def has_timer(world: Driver) -> bool:
    return any(purpose == "limit" for purpose, _ in tables(world.engine)["timers"])


@pytest.mark.parametrize("up", KINDS)
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_call_ends_when_its_time_is_over(down: str, up: str) -> None:
    """Progress does not put it off. The server is told that nobody waits any more."""
    world = driver(limited(up))
    client = connect(world, down, up)
    channel = client.request("7", "tools/call", '{"name":"slow_report","_meta":{"progressToken":1}}')
    received = world.take_sent("tools/call")
    world.wait(4.9)
    world.send(
        received.channel,
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}' % received.id,
    )
    assert not errors(world, channel)
    world.wait(0.2)
    (error,) = errors(world, channel)
    assert (error["code"], error["data"]) == (TIMED_OUT, {"outcome": "unknown"})
    assert error["message"] == "slow_report took longer than the 5 s that it may take: given up; it may have run"
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id


@pytest.mark.parametrize("tool", ["fast", "slow_count"])
def test_no_timer_is_left_of_a_call_that_was_in_time(tool: str) -> None:
    world = driver(limited("pipe"))
    client = connect(world, "pipe", "pipe")
    client.request("7", "tools/call", f'{{"name":"{tool}"}}')
    received = world.take_sent("tools/call")
    assert has_timer(world) is (tool == "slow_count")
    world.answer(received, '{"content":[]}')
    assert not has_timer(world)


def test_time_that_a_call_waits_for_its_server_counts() -> None:
    world = driver(limited("pipe", sharing=Sharing.SERIAL))
    client = connect(world, "http", "pipe")
    client.request("7", "tools/call", '{"name":"fast"}')
    channel = client.request("8", "tools/call", '{"name":"slow_count"}')
    world.wait(5.1)
    (error,) = errors(world, channel)
    assert error["data"] == {"outcome": "not_executed"}
    assert "it did not run" in error["message"]


def test_a_client_without_a_session_is_told_too() -> None:
    world = bridge(limited("pipe"))
    client = modern(world, "pipe")
    channel = client.request("server/discover")
    start_legacy_server(world)
    channel = client.call("slow_count")
    received = world.take_sent("tools/call")
    world.wait(5.1)
    assert client.answered(channel)["error"]["code"] == TIMED_OUT
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id


def test_a_call_that_is_over_or_has_become_a_task_is_left_alone() -> None:
    """A task has a time of its own."""
    plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE, tool_time_limits=LIMITS),))
    responder: Any = NoRouter()
    limits = ToolTimeLimits(Context(plan, entropy=bytes, unix_at_zero=0.0, limits=Limits()), responder)
    session, key, task = lone_session(), ExchangeKey(ChannelId(1), 0), SimpleNamespace(id="t")
    limits.handle_limit(session, key)
    reply = Reply(Stream(ChannelId(1)), ends_channel=True, can_stream=True)
    call = Exchange(key, reply, sid="s", id_raw=b"1", id_key=("n", 1), method="tools/call", params=b'{"name":"slow_a"}')
    session.add(call)
    call.become_task(cast(Any, task), cast(Any, None))
    limits.handle_limit(session, key)
    assert session.exchanges == {key: call}
