"""Tests of the handshake: what a server tells of itself is shown as far as it can be read, and its era is found out
only once."""

from __future__ import annotations

import json

import pytest
from driving import Client, Driver, connect, driver, new_client
from isthmus.core.base.effects import Note, Spawn
from isthmus.core.base.events import Connected
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
    """The purposes of requests that servers have not answered yet."""
    return [entry.purpose for entry in tables(world.engine)["pending"]]


# --- Self-descriptions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest", ['"serverInfo":{"name":"a","name":"b"}', '"_meta":{"a":1,"a":1}'], ids=["info", "meta"]
)
def test_an_initialize_result_that_cannot_be_translated_is_noted_and_the_server_used(rest: str) -> None:
    """Clients without sessions get a discovery without capabilities in its place."""
    world = world_of(Kind.PIPE, Era.HANDSHAKE)
    client = modern(world, "s")
    channel = client.request("server/discover")
    connect_child(world)
    world.answer(world.take_sent("initialize"), f"{HANDSHAKE},{rest}}}")
    (note,) = world.every(Note)
    assert (note.level, note.server) == ("warning", "s")
    assert note.text.startswith("what it says of itself cannot be shown to clients without sessions: got the member ")
    discovered = client.answered(channel)["result"]
    assert (discovered["supportedVersions"], discovered["capabilities"]) == ([LATEST_MODERN], {})


@KINDS
@pytest.mark.parametrize("bad", ["[]", "7", '{"a":1,"a":2}'])
def test_an_unreadable_discovery_is_a_failed_start(kind: Kind, bad: str) -> None:
    """The server is lost, for a client of either era."""
    for down in ("modern", "legacy"):
        world = world_of(kind, Era.STATELESS)
        if down == "modern":
            channel = modern(world, "s").request("server/discover")
        else:
            channel = new_client(world, "http", "s").initialize()
        if kind is Kind.PIPE:
            connect_child(world)
        world.answer(world.take_sent("server/discover"), discovery(bad))
        error = world.only_message(channel)["error"]
        assert error["code"] == -31004
        assert "got" in error["message"]
        assert not pending(world)


# --- Era --------------------------------------------------------------------------------------------------------------


@KINDS
def test_the_probe_is_given_up_when_the_other_era_is_tried(kind: Kind) -> None:
    """The probe is no longer pending after that."""
    world = world_of(kind, limits=Limits(probe_timeout_s=3.0, probe_start_timeout_s=3.0))
    modern(world, "s").call()
    if kind is Kind.PIPE:
        connect_child(world)
    assert world.engine.next_timeout() == Deadline(world.now + 3.0, "server/discover")
    assert pending(world) == ["discover"]
    probe = world.take_sent("server/discover")
    world.wait(3.0)
    if kind is Kind.PIPE:
        assert pending(world) == []
        connect_child(world)
    assert pending(world) == ["initialize"]
    assert probe.channel in world.closed
    assert world.take_sent("initialize").channel not in world.closed


def test_the_client_gets_both_refusals_if_both_eras_are_refused() -> None:
    world = world_of(Kind.HTTP)
    channel = new_client(world, "http", "s").initialize()
    data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
    fail(world, world.take_sent("initialize"), -32022, "first", data=data, status=400)
    fail(world, world.take_sent("server/discover"), -32602, "second")
    assert world.only_message(channel)["error"] == {
        "code": -32022,
        "message": "first; asked with server/discover: second",
        "data": data,
    }
    assert not world.unread


# --- Restarts ---------------------------------------------------------------------------------------------------------


def awaited(limits: Limits) -> tuple[Driver, Client]:
    """Returns a process that a client has a subscription with."""
    world = driver(limits=limits)
    client = connect(world, "http", "pipe")
    client.request("9", "resources/subscribe", '{"uri":"a:b"}')
    world.answer(world.take_sent("resources/subscribe"))
    return world, client


def spawned(world: Driver) -> int:
    return len([dial for dial in world.dials if isinstance(dial.target, Spawn)])


def test_a_server_that_is_left_alone_is_tried_again_after_the_longer_pause() -> None:
    """The pause of the link counts, or that of all processes of the server, whichever ends later."""
    limits = Limits(restart_backoff_s=1.0, restart_backoff_max_s=1.0, crash_loop_failures=2, crash_loop_pause_s=30.0)
    world, client = awaited(limits)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.wait(1.0)
    assert spawned(world) == 3
    world.end(world.last_dial(Spawn).channel, DIED)
    world.wait(29.0)
    assert spawned(world) == 3
    early = client.request("1", "tools/list")
    assert "it failed 2 times in a row, and is left alone for 1 s" in world.only_message(early)["error"]["message"]
    world.wait(1.0)
    assert spawned(world) == 4
    connect_child(world)
    world.answer(world.take_sent("initialize"), HANDSHAKE + "}")
    assert world.take_sent("resources/subscribe").frame["params"] == {"uri": "a:b"}


def test_settings_are_repeated_before_anything_else_even_if_they_are_refused() -> None:
    world, client = awaited(Limits())
    for number in range(2):
        client.request(str(number), "resources/subscribe", json.dumps({"uri": f"c:{number}"}))
        world.answer(world.take_sent("resources/subscribe"))
    world.end(world.last_dial(Spawn).channel, DIED)
    client.request("5", "tools/list")
    connect_child(world)
    world.answer(world.take_sent("initialize"), HANDSHAKE + "}")
    replayed = [world.take_sent("resources/subscribe") for _ in range(3)]
    assert pending(world) == ["replay"] * 3
    for received in reversed(replayed):
        assert not world.was_sent("tools/list")
        fail(world, received, -32602)
    assert world.was_sent("tools/list")


@KINDS
def test_a_server_without_sessions_is_ready_with_its_discovery(kind: Kind) -> None:
    """No subscription is waited for, and later silence changes nothing."""
    world = driver(modern_plan(kind))
    client = modern(world, kind.value)
    channel = client.request("prompts/list")
    if kind is Kind.PIPE:
        connect_child(world)
    probe = world.take_sent("server/discover")
    world.answer(probe, discovery())
    received = world.take_sent("prompts/list")
    world.wait(100)
    assert not world.unread
    if received.post is not None:
        world.open(received.channel, Connected())
    world.answer(received, '{"resultType":"complete","prompts":[],"ttlMs":0,"cacheScope":"private"}')
    assert client.answered(channel)["result"]["prompts"] == []
