"""Tests of the handshake: how long each step may take, which error says why it failed, and in which order requests are
sent."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Client, Driver, connect, driver, new_client
from isthmus.core.base.effects import Close, Dial, Join, Listen, Post, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import LATEST_MODERN, Era
from isthmus.core.base.setting_names import MORE_TIME
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
    """Returns a server, and a client with a session that has sent nothing."""
    limits = rest.pop("limits", LIMITS)
    world = driver(ServerPlan(id="s", kind=kind, **rest), limits=limits)
    return world, new_client(world, "http", "s")


def error_message(world: Driver, channel: int) -> str:
    text = world.only_message(channel)["error"]["message"]  # type: ignore[arg-type]
    assert isinstance(text, str)
    return text


# --- Timeouts ---------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(("plan_s", "wait_s"), [(None, 40.0), (7.5, 7.5)])
def test_the_start_timeout_is_that_of_the_plan_or_else_of_the_limits(
    kind: Kind, plan_s: float | None, wait_s: float
) -> None:
    world, client = world_of(kind, start_timeout_s=plan_s)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    world.take_sent("initialize")
    world.wait(wait_s - 0.1)
    assert not world.messages(channel)
    world.wait(0.1)
    verb = "started" if kind is Kind.PIPE else "connected to"
    reason = f"it did not answer within {wait_s:g} s of being started; {MORE_TIME}"
    assert error_message(world, channel) == f"the server could not be {verb}: {reason}"


@pytest.mark.parametrize(("kind", "wait_s"), [(Kind.PIPE, 5.0), (Kind.HTTP, 3.0), (Kind.SOCKET, 3.0)])
@pytest.mark.parametrize("era", [None, Era.STATELESS])
def test_the_probe_timeout_is_longer_if_a_process_has_to_start(kind: Kind, wait_s: float, era: Era | None) -> None:
    """After the timeout the other era is tried, or, with a forced era, the start has failed."""
    world, client = world_of(kind, era=era)
    channel = modern_call(client)
    if kind is not Kind.HTTP:
        connect_child(world)
    probe = world.take_sent("server/discover")
    world.wait(wait_s - 0.1)
    assert not world.messages(channel)
    assert probe.channel not in world.closed
    world.wait(0.1)
    if era is None:
        assert world.closed[probe.channel] == Close(probe.channel, reason="spoken to in another way")
        if kind is not Kind.HTTP:
            connect_child(world)
        assert world.was_sent("initialize")
    else:
        verb = "started" if kind is Kind.PIPE else "connected to"
        reason = f"it did not answer server/discover within {wait_s:g} s"
        assert error_message(world, channel) == f"the server could not be {verb}: {reason}"


@KINDS
@pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS])
def test_a_peer_that_echoes_is_no_server(kind: Kind, era: Era) -> None:
    """The start fails at once, and nothing more is sent that would come back as an answer."""
    world, client = world_of(kind)
    channel = client.initialize() if era is Era.HANDSHAKE else modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    initial = world.take_sent("initialize" if era is Era.HANDSHAKE else "server/discover")
    world.reply(initial, initial.raw)
    verb = "started" if kind is Kind.PIPE else "connected to"
    reason = f"it sends back what it is sent, expected an answer to {initial.frame['method']}"
    assert error_message(world, channel) == f"the server could not be {verb}: {reason}"
    assert not world.unread
    assert initial.channel in world.closed


def test_requests_wait_for_the_event_stream_up_to_a_bound() -> None:
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE, session="S1")
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/list")
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.wait(1.9)
    assert not world.was_sent("tools/list")
    world.wait(0.1)
    assert world.was_sent("tools/list")


@KINDS
def test_requests_wait_for_the_subscription_up_to_a_bound(kind: Kind) -> None:
    world = driver(modern_plan(kind), limits=LIMITS)
    client = new_client(world, "http", kind.value)
    channel = client.initialize()
    listen = discovered(world, '{"tools":{"listChanged":true}}', grants=False)
    assert listen is not None
    client.session = world.sent[channel][-1].session
    client.request("1", "resources/list")
    world.wait(1.9)
    assert not world.was_sent("resources/list")
    world.wait(0.1)
    assert world.was_sent("resources/list")


def test_a_failed_server_is_tried_again_after_a_pause_which_the_error_names() -> None:
    world = driver(limits=Limits(restart_backoff_s=4.0))
    client = connect(world, "http", "pipe")
    world.end(world.last_dial(Spawn).channel, DIED)
    first = client.request("1", "tools/list")
    world.end(world.last_dial(Spawn).channel, DIED)
    assert "could not be started" in error_message(world, first)
    world.wait(1.3)
    dials = len(world.dials)
    early = client.request("2", "tools/list")
    assert error_message(world, early).endswith("exited with code 1; it is tried again in 2.7 s at the earliest")
    assert len(world.dials) == dials
    world.wait(2.7)
    client.request("3", "tools/list")
    assert len(world.dials) == dials + 1


def timers(world: Driver) -> set[str]:
    return {purpose for purpose, _ in tables(world.engine)["timers"]}


@KINDS
@pytest.mark.parametrize("answer", ["yes", "no", "turned"])
def test_the_timer_of_an_answered_step_ends(kind: Kind, answer: str) -> None:
    """The probe timer ends when the server's era is known, and the start timer when the server is ready."""
    world, client = world_of(kind)
    modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    assert {"probe", "start"} <= timers(world)
    if answer == "yes":
        world.answer(world.take_sent("server/discover"), discovery())
        assert not {"probe", "start"} & timers(world)
        return
    fail(world, world.take_sent("server/discover"), -32601, status=404)
    if kind is Kind.PIPE:
        connect_child(world)
    assert "probe" not in timers(world)
    assert "start" in timers(world)
    if answer == "turned":
        world.answer(world.take_sent("initialize"), HANDSHAKE, session="S1")
        world.acknowledge(world.take_sent("notifications/initialized"))
        if kind is Kind.HTTP:
            assert "listening" in timers(world)
            world.end(world.last_dial(Listen).channel, refused(405))
        assert not {"probe", "start", "listening"} & timers(world)


# --- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (discovery(revisions=("2099-01-01",)), "it serves no revision without sessions that is known here"),
        (discovery(revisions=("2025-11-25",)), "it serves no revision without sessions that is known here"),
        (None, None),
    ],
)
@KINDS
def test_an_unusable_discovery_fails_with_a_reason(kind: Kind, text: str | None, reason: str | None) -> None:
    """An error of the server itself is passed on unchanged."""
    world, client = world_of(kind, era=Era.STATELESS)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    if text is None:
        fail(world, world.take_sent("server/discover"), -32099, "not today")
        assert world.only_message(channel)["error"]["code"] == -32099
        assert error_message(world, channel) == "not today"
        assert any(note.endswith("it refused server/discover") for note in world.notes("warning"))
    else:
        world.answer(world.take_sent("server/discover"), text)
        assert error_message(world, channel).endswith(f": {reason}")


@KINDS
def test_the_latest_known_revision_of_several_is_spoken(kind: Kind) -> None:
    world, client = world_of(kind, era=Era.STATELESS)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    world.answer(world.take_sent("server/discover"), discovery(revisions=("2025-11-25", LATEST_MODERN, "2099-01-01")))
    client.session = world.sent[channel][-1].session
    client.request("1", "resources/list")
    meta = world.take_sent("resources/list").frame["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == LATEST_MODERN


@KINDS
def test_a_server_that_names_its_revision_is_asked_once_in_that_revision(kind: Kind) -> None:
    """A second refusal is the answer of the server."""
    world, client = world_of(kind, era=Era.STATELESS)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    for _ in range(2):
        assert not world.messages(channel)
        fail(world, world.take_sent("server/discover"), -32022, data={"supported": [LATEST_MODERN]})
    assert world.only_message(channel)["error"]["code"] == -32022
    assert not world.unread


@KINDS
@pytest.mark.parametrize("how", ["refuses", "dies"])
def test_the_other_era_is_tried_after_a_failure_and_the_client_gets_one_error(kind: Kind, how: str) -> None:
    """The client gets one error if neither era is spoken."""
    world, client = world_of(kind)
    channel = modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    fail(world, world.take_sent("server/discover"), -32601, "who is there", status=404)
    if kind is Kind.PIPE:
        (close,) = world.every(Close)
        assert close.reason == "spoken to in another way"
        world.end(close.channel)
        connect_child(world)
    assert len([dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)]) == 2 * (kind is Kind.PIPE)
    received = world.take_sent("initialize")
    if how == "refuses":
        fail(world, received, -32602, "no, again")
    else:
        world.end(received.channel, DIED if kind is Kind.PIPE else refused(500))
        if kind is Kind.PIPE:  # it was started while the one before was ending, so it is started once more
            connect_child(world)
            world.end(world.take_sent("initialize").channel, DIED)
    assert "error" in world.only_message(channel)
    assert world.only_message(channel)["error"]["message"]
    assert not world.unread


@pytest.mark.parametrize("status", [400, 404, 405])
def test_the_error_of_an_unreachable_server_names_both_transports(status: int) -> None:
    """The error has the reason over Streamable HTTP first, then the one over HTTP+SSE."""
    world, client = world_of(Kind.HTTP, may_fall_back=True, era=Era.HANDSHAKE)
    channel = client.initialize()
    refuse(world, world.take_sent("initialize"), status)
    join = world.last_dial(Join)
    world.end(join.channel, Cause(End.UNREACHABLE, "nobody there"))
    text = error_message(world, channel)
    first, _, second = text.partition("; over HTTP+SSE ")
    assert first.startswith("the server could not be connected to: over Streamable HTTP ")
    assert str(status) in first
    assert second == "nobody there"


# --- Order ------------------------------------------------------------------------------------------------------------


def test_queued_messages_are_sent_in_the_order_in_which_they_came() -> None:
    """Requests and notifications are sent in one order, with the headers of their client."""
    world = driver()
    client = new_client(world, "http", "http", headers=(("x-who", "ann"),))
    channel = client.initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE, session="S1")
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/list")
    client.notify("vendor/a", '{"n":1}')
    client.request("2", "prompts/list")
    client.notify("vendor/b")
    world.acknowledge(world.take_sent("notifications/initialized"))
    assert not world.unread
    world.end(world.last_dial(Listen).channel, refused(405))
    assert [received.frame["method"] for received in world.unread] == [
        "tools/list",
        "vendor/a",
        "prompts/list",
        "vendor/b",
    ]
    for received in world.unread:
        assert received.post is not None
        assert ("x-who", "ann") in received.post.headers
        assert received.post.session == "S1"


def test_the_event_stream_is_opened_in_the_session_that_was_begun() -> None:
    world = driver()
    client = new_client(world, "http", "http", headers=(("x-who", "ann"),))
    client.initialize()
    initial = world.take_sent("initialize")
    world.open(initial.channel, Connected(session="S7"))
    world.send(initial.channel, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (initial.id, HANDSHAKE.encode()))
    world.end(initial.channel)
    world.acknowledge(world.take_sent("notifications/initialized"))
    target = world.last_dial(Listen).target
    assert isinstance(target, Listen)
    assert (target.server, target.session, target.revision) == ("http", "S7", "2025-11-25")
    assert (target.headers, target.last_event_id, target.cookies) == ((("x-who", "ann"),), None, ())


def test_only_the_first_request_of_the_handshake_is_sent_at_first() -> None:
    """A client without a session makes `server/discover` the first request, a client with a session `initialize`.
    Nothing else is sent before its response."""
    for down, method in (("modern", "server/discover"), ("legacy", "initialize")):
        world = bridge(ServerPlan(id="s", kind=Kind.HTTP))
        if down == "modern":
            modern(world, "s").call()
        else:
            new_client(world, "http", "s").initialize()
        (received,) = world.unread
        assert received.frame["method"] == method
        assert isinstance(received.post, Post)
        assert received.post.session is None


def test_a_shared_server_gets_a_handshake_if_any_waiting_client_has_a_session() -> None:
    """A waiting client with a session decides, though clients without one wait too."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    modern(world, "s").call()
    connect_child(world)
    refuse_discovery(world)
    connect_child(world)
    world.end(world.last_dial(Spawn).channel, DIED)
    world.wait(100)
    new_client(world, "http", "s").initialize()
    connect_child(world)
    assert world.was_sent("initialize")
    assert not world.was_sent("server/discover")


@KINDS
def test_a_server_that_comes_up_is_no_longer_failed(kind: Kind) -> None:
    """The status shows it as running, and keeps the total of failures."""
    world, client = world_of(kind)
    client.initialize()
    if kind is Kind.PIPE:
        world.end(world.last_dial(Spawn).channel, DIED)
    else:
        world.end(world.take_sent("initialize").channel, Cause(End.UNREACHABLE, "nobody there"))
    (before,) = world.engine.report()
    assert (before.state, before.failures) == ("failed", 1)
    world.wait(60)
    again = new_client(world, "http", "s", "another")
    channel = again.initialize()
    world.start_server(session="S1")
    again.session = world.sent[channel][-1].session
    (now,) = world.engine.report()
    assert (now.state, now.failures, now.starts) == ("running", 1, 2)
    again.delete()
    (after,) = world.engine.report()
    assert (after.state, after.failures) == ("idle", 1)
