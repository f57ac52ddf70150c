"""Each step of a handshake is waited for exactly so long, says why it failed, and is taken in its turn."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Client, Driver, connect, driver, newcomer
from isthmus.core.base.effects import Cause, Close, Connected, Dial, End, Join, Listen, Post, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import LATEST_MODERN, Era
from stateless_driving import bridge, modern, refuse_discovery, tables
from stateless_server import (
    DIED,
    connect_child,
    discovered,
    discovery,
    fail,
    modern_call,
    modern_plan,
    refuse,
    refused,
)

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
KINDS = pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
LIMITS = Limits(probe_timeout_s=3.0, probe_start_timeout_s=5.0, start_timeout_s=40.0, listen_wait_s=2.0)


def world_of(kind: Kind, **rest: Any) -> tuple[Driver, Client]:
    """A server, and a client with a session that has said nothing."""
    limits = rest.pop("limits", LIMITS)
    world = driver(ServerPlan(id="s", kind=kind, **rest), limits=limits)
    return world, newcomer(world, "http", "s")


def message(world: Driver, channel: int) -> str:
    said = world.said(channel)["error"]["message"]  # type: ignore[arg-type]
    assert isinstance(said, str)
    return said


# --- How long -------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(("plan_s", "wait_s"), [(None, 40.0), (7.5, 7.5)])
def test_a_start_is_waited_for_as_its_plan_says_or_else_the_limits(
    kind: Kind, plan_s: float | None, wait_s: float
) -> None:
    world, client = world_of(kind, start_timeout_s=plan_s)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    world.hear("initialize")
    world.wait(wait_s - 0.1)
    assert not world.messages(channel)
    world.wait(0.1)
    verb = "started" if kind is Kind.PIPE else "connected to"
    reason = f"it did not answer within {wait_s:g} s of being started"
    assert message(world, channel) == f"the server could not be {verb}: {reason}"


@pytest.mark.parametrize(("kind", "wait_s"), [(Kind.PIPE, 5.0), (Kind.HTTP, 3.0), (Kind.SOCKET, 3.0)])
@pytest.mark.parametrize("era", [None, Era.STATELESS])
def test_a_probe_is_waited_for_longer_where_a_process_has_to_start(kind: Kind, wait_s: float, era: Era | None) -> None:
    """Then the other era is tried, where it may be; else that is its end."""
    world, client = world_of(kind, era=era)
    channel = modern_call(client)
    if kind is not Kind.HTTP:
        connect_child(world)
    probe = world.hear("server/discover")
    world.wait(wait_s - 0.1)
    assert not world.messages(channel)
    assert probe.channel not in world.closed
    world.wait(0.1)
    if era is None:
        assert world.closed[probe.channel] == Close(probe.channel, reason="spoken to in another way")
        if kind is not Kind.HTTP:
            connect_child(world)
        assert world.hears("initialize")
    else:
        verb = "started" if kind is Kind.PIPE else "connected to"
        reason = f"it did not answer server/discover within {wait_s:g} s"
        assert message(world, channel) == f"the server could not be {verb}: {reason}"


@KINDS
@pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS])
def test_what_sends_our_greeting_back_is_no_server(kind: Kind, era: Era) -> None:
    """At once, and with nothing said to it that it would send back as its answer."""
    world, client = world_of(kind)
    channel = client.initialize() if era is Era.HANDSHAKE else modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    greeting = world.hear("initialize" if era is Era.HANDSHAKE else "server/discover")
    world.reply(greeting, greeting.raw)
    verb = "started" if kind is Kind.PIPE else "connected to"
    reason = f"it sends back what it is sent, expected an answer to {greeting.frame['method']}"
    assert message(world, channel) == f"the server could not be {verb}: {reason}"
    assert not world.heard
    assert greeting.channel in world.closed


def test_requests_wait_for_the_event_stream_so_long_and_no_longer() -> None:
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    world.answer(world.hear("initialize"), HANDSHAKE, session="S1")
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/list")
    world.acknowledge(world.hear("notifications/initialized"))
    world.wait(1.9)
    assert not world.hears("tools/list")
    world.wait(0.1)
    assert world.hears("tools/list")


@KINDS
def test_requests_wait_for_what_is_subscribed_so_long_and_no_longer(kind: Kind) -> None:
    world = driver(modern_plan(kind), limits=LIMITS)
    client = newcomer(world, "http", kind.value)
    channel = client.initialize()
    listen = discovered(world, '{"tools":{"listChanged":true}}', grants=False)
    assert listen is not None
    client.session = world.sent[channel][-1].session
    client.request("1", "resources/list")
    world.wait(1.9)
    assert not world.hears("resources/list")
    world.wait(0.1)
    assert world.hears("resources/list")


def test_a_server_that_failed_is_tried_again_after_its_pause_and_who_asks_before_is_told_when() -> None:
    world = driver(limits=Limits(restart_backoff_s=4.0))
    client = connect(world, "http", "pipe")
    world.end(world.last_dial(Spawn).channel, DIED)
    first = client.request("1", "tools/list")
    world.end(world.last_dial(Spawn).channel, DIED)
    assert "could not be started" in message(world, first)
    world.wait(1.3)
    dials = len(world.dials)
    early = client.request("2", "tools/list")
    assert message(world, early).endswith("exited with code 1; it is tried again in 2.7 s at the earliest")
    assert len(world.dials) == dials
    world.wait(2.7)
    client.request("3", "tools/list")
    assert len(world.dials) == dials + 1


def timers(world: Driver) -> set[str]:
    return {purpose for purpose, _ in tables(world.engine)["timers"]}


@KINDS
@pytest.mark.parametrize("answer", ["yes", "no", "turned"])
def test_what_was_answered_is_waited_for_no_more(kind: Kind, answer: str) -> None:
    """Neither the probe, when the server has said which era it speaks, nor the start, when it is ready."""
    world, client = world_of(kind)
    modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    assert {"probe", "start"} <= timers(world)
    if answer == "yes":
        world.answer(world.hear("server/discover"), discovery())
        assert not {"probe", "start"} & timers(world)
        return
    fail(world, world.hear("server/discover"), -32601, status=404)
    if kind is Kind.PIPE:
        connect_child(world)
    assert "probe" not in timers(world)
    assert "start" in timers(world)
    if answer == "turned":
        world.answer(world.hear("initialize"), HANDSHAKE, session="S1")
        world.acknowledge(world.hear("notifications/initialized"))
        if kind is Kind.HTTP:
            assert "listening" in timers(world)
            world.end(world.last_dial(Listen).channel, refused(405))
        assert not {"probe", "start", "listening"} & timers(world)


# --- Why not --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (discovery(revisions=("2099-01-01",)), "it serves no revision without sessions that is known here"),
        (discovery(revisions=("2025-11-25",)), "it serves no revision without sessions that is known here"),
        (None, None),
    ],
)
@KINDS
def test_a_discovery_that_is_of_no_use_says_why(kind: Kind, text: str | None, reason: str | None) -> None:
    """An error of the server's own is passed as it is."""
    world, client = world_of(kind, era=Era.STATELESS)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    if text is None:
        fail(world, world.hear("server/discover"), -32099, "not today")
        assert world.said(channel)["error"]["code"] == -32099
        assert message(world, channel) == "not today"
        assert any(note.endswith("it refused server/discover") for note in world.notes("warning"))
    else:
        world.answer(world.hear("server/discover"), text)
        assert message(world, channel).endswith(f": {reason}")


@KINDS
def test_of_several_revisions_the_latest_that_is_known_is_spoken(kind: Kind) -> None:
    world, client = world_of(kind, era=Era.STATELESS)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    world.answer(world.hear("server/discover"), discovery(revisions=("2025-11-25", LATEST_MODERN, "2099-01-01")))
    client.session = world.sent[channel][-1].session
    client.request("1", "resources/list")
    meta = world.hear("resources/list").frame["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == LATEST_MODERN


@KINDS
def test_a_server_that_names_its_revision_is_asked_in_that_once(kind: Kind) -> None:
    """The second refusal is its answer."""
    world, client = world_of(kind, era=Era.STATELESS)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    for _ in range(2):
        assert not world.messages(channel)
        fail(world, world.hear("server/discover"), -32022, data={"supported": [LATEST_MODERN]})
    assert world.said(channel)["error"]["code"] == -32022
    assert not world.heard


@KINDS
@pytest.mark.parametrize("how", ["refuses", "dies"])
def test_one_era_that_fails_gives_way_to_the_other_and_the_first_error_is_told(kind: Kind, how: str) -> None:
    """When neither is spoken."""
    world, client = world_of(kind)
    channel = modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    fail(world, world.hear("server/discover"), -32601, "who is there", status=404)
    if kind is Kind.PIPE:
        assert [effect.reason for effect in world.every(Close)] == ["spoken to in another way"]
        connect_child(world)
    assert len([dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)]) == 2 * (kind is Kind.PIPE)
    heard = world.hear("initialize")
    if how == "refuses":
        fail(world, heard, -32602, "no, again")
    else:
        world.end(heard.channel, DIED if kind is Kind.PIPE else refused(500))
    assert "error" in world.said(channel)
    assert world.said(channel)["error"]["message"]
    assert not world.heard


@pytest.mark.parametrize("status", [400, 404, 405])
def test_who_is_reached_in_neither_way_is_described_with_both(status: int) -> None:
    """Streamable HTTP first, then HTTP+SSE."""
    world, client = world_of(Kind.HTTP, may_fall_back=True, era=Era.HANDSHAKE)
    channel = client.initialize()
    refuse(world, world.hear("initialize"), status)
    join = world.last_dial(Join)
    world.end(join.channel, Cause(End.UNREACHABLE, "nobody there"))
    said = message(world, channel)
    first, _, second = said.partition("; over HTTP+SSE ")
    assert first.startswith("the server could not be connected to: over Streamable HTTP ")
    assert str(status) in first
    assert second == "nobody there"


# --- In turn --------------------------------------------------------------------------------------------------------


def test_what_waits_for_a_server_goes_up_in_its_order_whatever_it_is() -> None:
    """Requests and notifications, with the headers of their client."""
    world = driver()
    client = newcomer(world, "http", "http", headers=(("x-who", "ann"),))
    channel = client.initialize()
    world.answer(world.hear("initialize"), HANDSHAKE, session="S1")
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/list")
    client.notify("vendor/a", '{"n":1}')
    client.request("2", "prompts/list")
    client.notify("vendor/b")
    world.acknowledge(world.hear("notifications/initialized"))
    assert not world.heard
    world.end(world.last_dial(Listen).channel, refused(405))
    assert [heard.frame["method"] for heard in world.heard] == ["tools/list", "vendor/a", "prompts/list", "vendor/b"]
    for heard in world.heard:
        assert heard.post is not None
        assert ("x-who", "ann") in heard.post.headers
        assert heard.post.session == "S1"


def test_the_event_stream_is_asked_for_in_the_session_that_was_begun() -> None:
    world = driver()
    client = newcomer(world, "http", "http", headers=(("x-who", "ann"),))
    client.initialize()
    greeting = world.hear("initialize")
    world.open(greeting.channel, Connected(session="S7"))
    world.say(greeting.channel, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (greeting.id, HANDSHAKE.encode()))
    world.end(greeting.channel)
    world.acknowledge(world.hear("notifications/initialized"))
    target = world.last_dial(Listen).target
    assert isinstance(target, Listen)
    assert (target.server, target.session, target.revision) == ("http", "S7", "2025-11-25")
    assert (target.headers, target.last_event_id, target.cookies) == ((("x-who", "ann"),), None, ())


def test_only_what_is_to_be_greeted_with_is_sent_before_the_greeting() -> None:
    """A client without sessions alone makes the first question one of discovery; one with a session does not."""
    for down, method in (("modern", "server/discover"), ("legacy", "initialize")):
        world = bridge(ServerPlan(id="s", kind=Kind.HTTP))
        if down == "modern":
            modern(world, "s").call()
        else:
            newcomer(world, "http", "s").initialize()
        (heard,) = world.heard
        assert heard.frame["method"] == method
        assert isinstance(heard.post, Post)
        assert heard.post.session is None


def test_a_shared_server_that_one_with_a_session_waits_for_is_greeted_with_one() -> None:
    """Though others wait that have none."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    modern(world, "s").call()
    connect_child(world)
    refuse_discovery(world)
    connect_child(world)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.wait(100)
    newcomer(world, "http", "s").initialize()
    connect_child(world)
    assert world.hears("initialize")
    assert not world.hears("server/discover")


@KINDS
def test_a_server_that_comes_up_fails_no_more(kind: Kind) -> None:
    """What is reported of it follows, but for what is counted in all."""
    world, client = world_of(kind)
    client.initialize()
    if kind is Kind.PIPE:
        world.end(world.last_dial(Spawn).channel, DIED)
    else:
        world.end(world.hear("initialize").channel, Cause(End.UNREACHABLE, "nobody there"))
    (before,) = world.engine.report()
    assert (before.state, before.failures) == ("failed", 1)
    world.wait(60)
    again = newcomer(world, "http", "s", "another")
    channel = again.initialize()
    world.shake_hands(session="S1")
    again.session = world.sent[channel][-1].session
    (now,) = world.engine.report()
    assert (now.state, now.failures, now.starts) == ("running", 1, 2)
    again.delete()
    (after,) = world.engine.report()
    assert (after.state, after.failures) == ("idle", 1)
