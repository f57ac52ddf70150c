"""What a server says of itself is shown as far as it can be, and what is found out of its era is found out once."""

from __future__ import annotations

import json

import pytest
from driving import Client, Driver, connect, driver, newcomer
from isthmus.core.base.effects import Connected, Note, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import LATEST_MODERN, Era
from isthmus.core.base.timers import Deadline
from stateless_driving import modern, tables
from stateless_server import DIED, connect_child, discovery, fail, modern_plan

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}'
KINDS = pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])


def world_of(kind: Kind, era: Era | None = None, limits: Limits | None = None) -> Driver:
    return driver(ServerPlan(id="s", kind=kind, era=era), limits=limits)


def pending(world: Driver) -> list[str]:
    """What is asked of servers and not answered yet."""
    return [entry.purpose for entry in tables(world.engine)["pending"]]


# --- What it says of itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest", ['"serverInfo":{"name":"a","name":"b"}', '"_meta":{"a":1,"a":1}'], ids=["info", "meta"]
)
def test_a_greeting_that_cannot_be_shown_to_all_is_noted_and_the_server_used(rest: str) -> None:
    """Clients without sessions are shown one that says nothing."""
    world = world_of(Kind.PIPE, Era.HANDSHAKE)
    client = modern(world, "s")
    channel = client.request("server/discover")
    connect_child(world)
    world.answer(world.hear("initialize"), f"{HANDSHAKE},{rest}}}")
    (note,) = world.every(Note)
    assert (note.level, note.server) == ("warning", "s")
    assert note.text.startswith("what it says of itself cannot be shown to clients without sessions: got the member ")
    said = client.answered(channel)["result"]
    assert (said["supportedVersions"], said["capabilities"]) == ([LATEST_MODERN], {})


@KINDS
@pytest.mark.parametrize("bad", ["[]", "7", '{"a":1,"a":2}'])
def test_a_discovery_that_cannot_be_read_is_none(kind: Kind, bad: str) -> None:
    """Its server is lost, whoever asked."""
    for down in ("modern", "legacy"):
        world = world_of(kind, Era.STATELESS)
        if down == "modern":
            channel = modern(world, "s").request("server/discover")
        else:
            channel = newcomer(world, "http", "s").initialize()
        if kind is Kind.PIPE:
            connect_child(world)
        world.answer(world.hear("server/discover"), discovery(bad))
        said = world.said(channel)["error"]
        assert said["code"] == -31004
        assert "got" in said["message"]
        assert not pending(world)


# --- Which era ------------------------------------------------------------------------------------------------------


@KINDS
def test_the_probe_is_due_by_name_and_given_up_when_another_way_is_tried(kind: Kind) -> None:
    """Nothing of it is waited for then."""
    world = world_of(kind, limits=Limits(probe_timeout_s=3.0, probe_start_timeout_s=3.0))
    modern(world, "s").call()
    if kind is Kind.PIPE:
        connect_child(world)
    assert world.engine.next_timeout() == Deadline(world.now + 3.0, "server/discover")
    assert pending(world) == ["discover"]
    probe = world.hear("server/discover")
    world.wait(3.0)
    if kind is Kind.PIPE:
        assert pending(world) == []
        connect_child(world)
    assert pending(world) == ["initialize"]
    assert probe.channel in world.closed
    assert world.hear("initialize").channel not in world.closed


def test_the_first_refusal_is_what_is_told_where_both_eras_are_refused() -> None:
    world = world_of(Kind.HTTP)
    channel = newcomer(world, "http", "s").initialize()
    data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
    fail(world, world.hear("initialize"), -32022, "first", data=data, status=400)
    fail(world, world.hear("server/discover"), -32602, "second")
    assert world.said(channel)["error"] == {"code": -32022, "message": "first", "data": data}
    assert not world.heard


# --- Again ----------------------------------------------------------------------------------------------------------


def awaited(limits: Limits) -> tuple[Driver, Client]:
    """A process that somebody waits for news of."""
    world = driver(limits=limits)
    client = connect(world, "http", "pipe")
    client.request("9", "resources/subscribe", '{"uri":"a:b"}')
    world.answer(world.hear("resources/subscribe"))
    return world, client


def spawned(world: Driver) -> int:
    return len([dial for dial in world.dials if isinstance(dial.target, Spawn)])


def test_a_server_that_is_left_alone_is_tried_again_after_the_longer_pause() -> None:
    """Its own, or that of all processes of its server, whichever ends later."""
    limits = Limits(restart_backoff_s=1.0, restart_backoff_max_s=1.0, crash_loop_failures=2, crash_loop_pause_s=30.0)
    world, client = awaited(limits)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.wait(1.0)
    assert spawned(world) == 3
    world.end(world.last_dial(Spawn).channel, DIED)
    world.wait(29.0)
    assert spawned(world) == 3
    told = client.request("1", "tools/list")
    assert "it failed 2 times in a row, and is left alone for 1 s" in world.said(told)["error"]["message"]
    world.wait(1.0)
    assert spawned(world) == 4
    connect_child(world)
    world.answer(world.hear("initialize"), HANDSHAKE + "}")
    assert world.hear("resources/subscribe").frame["params"] == {"uri": "a:b"}


def test_settings_are_made_again_one_by_one_before_anything_else_and_whatever_comes_of_them() -> None:
    world, client = awaited(Limits())
    for number in range(2):
        client.request(str(number), "resources/subscribe", json.dumps({"uri": f"c:{number}"}))
        world.answer(world.hear("resources/subscribe"))
    world.end(world.last_dial(Spawn).channel, DIED)
    client.request("5", "tools/list")
    connect_child(world)
    world.answer(world.hear("initialize"), HANDSHAKE + "}")
    replayed = [world.hear("resources/subscribe") for _ in range(3)]
    assert pending(world) == ["replay"] * 3
    for heard in reversed(replayed):
        assert not world.hears("tools/list")
        fail(world, heard, -32602)
    assert world.hears("tools/list")


@KINDS
def test_a_server_without_sessions_is_ready_with_its_answer(kind: Kind) -> None:
    """Where nothing is to be subscribed; and what it answers once it is ready changes nothing."""
    world = driver(modern_plan(kind))
    client = modern(world, kind.value)
    channel = client.request("prompts/list")
    if kind is Kind.PIPE:
        connect_child(world)
    probe = world.hear("server/discover")
    world.answer(probe, discovery())
    heard = world.hear("prompts/list")
    world.wait(100)
    assert not world.heard
    if heard.post is not None:
        world.open(heard.channel, Connected())
    world.answer(heard, '{"resultType":"complete","prompts":[],"ttlMs":0,"cacheScope":"private"}')
    assert client.answered(channel)["result"]["prompts"] == []
