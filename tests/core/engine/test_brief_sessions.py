"""Tests of brief sessions, with which the driver itself learns who a server is."""

from __future__ import annotations

import pytest
from driving import Client, Driver, driver, new_client
from isthmus.core.base.effects import Delete, Join, Listen, Spawn
from isthmus.core.base.events import Connected, PipeOpening
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_server import LISTENING, discovered, discovery, modern_call, refuse, refused

TASKS = '{"extensions":{"io.modelcontextprotocol/tasks":{}}}'


def begin(world: Driver, server: str, *, is_brief: bool = True) -> Client:
    """A session of the driver's own that has sent `initialize`."""
    client = Client(world, server, world.engine.new_channel())
    assert client.pipe is not None
    world.open(client.pipe, PipeOpening(server, is_own=True, is_brief=is_brief))
    client.initialize()
    if isinstance(world.dials[-1].target, Spawn | Join):
        world.open(world.dials[-1].channel, Connected())
    return client


def leave(client: Client) -> None:
    assert client.pipe is not None
    client.driver.end(client.pipe)


@pytest.mark.parametrize("era", [None, *Era], ids=str)
@pytest.mark.parametrize("kind", list(Kind))
def test_a_server_is_asked_in_an_era_that_its_transport_can_deny_soon(kind: Kind, era: Era | None) -> None:
    """An era that the plan names is the only one."""
    world = driver(ServerPlan(id="s", kind=kind, era=era))
    begin(world, "s")
    is_stateless = era is Era.STATELESS or (era is None and kind is Kind.HTTP)
    assert [sent.frame["method"] for sent in world.unread] == ["server/discover" if is_stateless else "initialize"]


@pytest.mark.parametrize("status", [400, 404, 500, 501, 503])
def test_a_server_that_refuses_to_discover_gets_initialize_and_no_get(status: int) -> None:
    """A server that fails at an unknown method denies nothing, but may be one with sessions."""
    world = driver(ServerPlan(id="s", kind=Kind.HTTP))
    client = begin(world, "s")
    refuse(world, world.take_sent("server/discover"), status)
    hello = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}'
    world.answer(world.take_sent("initialize"), hello, session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    assert client.pipe is not None and world.only_message(client.pipe)["result"]
    assert world.engine.report()[0].state == "running"
    leave(client)
    assert not world.unread
    assert not [dial for dial in world.dials if isinstance(dial.target, Listen)]
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Delete)] == ["S1"]
    modern_call(new_client(world, "http", "s"))
    assert world.was_sent("server/discover") is (status >= 500)


@pytest.mark.parametrize("status", [401, 403, 408, 429])
def test_a_refusal_that_says_nothing_of_the_era_ends_it(status: int) -> None:
    world = driver(ServerPlan(id="s", kind=Kind.HTTP))
    client = begin(world, "s")
    refuse(world, world.take_sent("server/discover"), status)
    assert client.pipe is not None and "error" in world.only_message(client.pipe)
    assert not world.unread


def test_a_server_that_fails_in_both_eras_is_asked_once_in_each() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.HTTP))
    client = begin(world, "s")
    world.end(world.take_sent("server/discover").channel, refused(500))
    world.end(world.take_sent("initialize").channel, refused(500))
    assert client.pipe is not None and "500" in world.only_message(client.pipe)["error"]["message"]
    assert not world.unread


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("is_brief", [True, False])
def test_only_a_session_that_is_not_brief_subscribes(kind: Kind, is_brief: bool) -> None:
    world = driver(ServerPlan(id="s", kind=kind, era=Era.STATELESS))
    client = begin(world, "s", is_brief=is_brief)
    world.answer(world.take_sent("server/discover"), discovery(LISTENING))
    assert client.pipe is not None and world.only_message(client.pipe)["result"]
    assert world.was_sent("subscriptions/listen") is not is_brief


@pytest.mark.parametrize("before", ["brief", "stateless", "handshake"])
def test_a_session_that_joins_a_shared_server_has_it_subscribed(before: str) -> None:
    """The sessions before it may have wanted nothing. A subscription that covers it is not made again."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS, sharing=Sharing.CONCURRENT))
    if before == "brief":
        first = begin(world, "s")
        discovered(world, LISTENING)
        leave(first)
    elif before == "stateless":
        modern_call(new_client(world, "pipe", "s"))
        discovered(world, LISTENING)
        world.answer(
            world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}'
        )
    else:
        new_client(world, "pipe", "s").initialize()
        assert discovered(world, LISTENING) is not None
    assert not world.unread
    second = new_client(world, "pipe", "s")
    second.initialize()
    assert second.pipe is not None and world.only_message(second.pipe)["result"]
    world.wait(1.0)
    assert world.was_sent("subscriptions/listen") is (before != "handshake")


@pytest.mark.parametrize("capabilities", ["{}", TASKS])
def test_a_session_of_ours_sees_whether_a_stateless_server_has_tasks(capabilities: str) -> None:
    world = driver(ServerPlan(id="s", kind=Kind.HTTP))
    client = begin(world, "s")
    discovered(world, capabilities)
    assert client.pipe is not None
    shown = world.only_message(client.pipe)["result"]["capabilities"]
    assert ("tasks" in shown) is (capabilities == TASKS)
