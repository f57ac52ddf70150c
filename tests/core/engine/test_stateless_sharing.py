"""Who shares what: servers that several clients of both eras use, pipes on which both eras are spoken, affinities."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, newcomer
from isthmus.core.base.effects import Connected, Dial, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, ServerPlan, Sharing
from stateless_driving import (
    ACCEPT,
    Modern,
    ask,
    assert_empty,
    beside,
    bridge,
    collect,
    give,
    modern,
    parked,
    refuse_discovery,
    rise,
    rounds,
    served,
)

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}}}'


def shared(sharing: Sharing, *, limits: Limits | None = None) -> tuple[Driver, Modern]:
    """A server that all share, ready, and a client of it without sessions."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing), limits=limits)
    client = modern(world, "s")
    client.request("server/discover")
    rise(world)
    return world, client


def joined(world: Driver) -> Client:
    """A client with a session that joins it."""
    client = newcomer(world, "pipe", "s")
    client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    return client


# --- One log level ----------------------------------------------------------------------------------------------------


def test_a_request_makes_nobody_hear_less_of_a_shared_server() -> None:
    """A process has one log level: it is told the most that any of its clients wants, of whichever era."""
    world, client = shared(Sharing.CONCURRENT)
    old = joined(world)
    old.request("1", "logging/setLevel", '{"level":"info"}')
    world.answer(world.hear("logging/setLevel"))
    client.call(level="error")
    levelling = world.hear("logging/setLevel")
    assert levelling.frame["params"]["level"] == "info"
    world.answer(levelling)
    client.call(level="debug")
    levelling = world.hear("logging/setLevel")
    assert levelling.frame["params"]["level"] == "debug"
    world.answer(levelling)
    old.request("2", "logging/setLevel", '{"level":"error"}')
    assert not world.hears("logging/setLevel"), "a client that wants less does not make others hear less"


# --- One process ------------------------------------------------------------------------------------------------------


def test_serial_sharing_holds_other_calls_while_one_is_parked() -> None:
    """Its server is at work on it, so that what it asks would be the next caller's: others wait, and go up in order
    when it is over. Lists pass meanwhile."""
    world, client = shared(Sharing.SERIAL)
    other = joined(world)
    heard, _, state = parked(world, client)
    other.request("1", "tools/call", '{"name":"x"}')
    other.request("2", "tools/list")
    world.wait(300)
    assert not world.hears("tools/call")
    give(world, world.hear("tools/list"), '{"tools":[]}')
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert not world.hears("tools/call"), "it is still under way"
    give(world, heard)
    assert "result" in client.answered(channel)
    give(world, world.hear("tools/call"))
    assert [frame["id"] for frame in world.frames(other.pipe or channel)] == [2, 1]


def test_serial_sharing_gives_up_a_parked_call_whose_client_does_not_come_back() -> None:
    """Nobody is blocked for ever: after the time that a client has for its answers the next call's turn has come."""
    world, client = shared(Sharing.SERIAL)
    other = joined(world)
    heard, _, _ = parked(world, client)
    other.request("1", "tools/call", '{"name":"x"}')
    world.wait(Limits().park_ttl_s - 1)
    assert not world.hears("tools/call")
    world.wait(1)
    assert world.hear("").frame["result"] == {"action": "cancel"}
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == heard.id
    give(world, world.hear("tools/call"))


def test_serial_sharing_goes_on_when_the_server_ends_a_parked_call() -> None:
    """Its answer is held for its client, and the next call's turn has come at once."""
    world, client = shared(Sharing.SERIAL)
    other = modern(world, "s", principal="bob")
    heard, _, state = parked(world, client)
    waiting = other.call()
    give(world, heard)
    give(world, world.hear("tools/call"))
    assert "result" in other.answered(waiting)
    channel = client.call(requestState=state)
    assert "result" in client.answered(channel)


@pytest.mark.parametrize("how", ["cancels", "dies"])
def test_a_waiting_call_is_not_forgotten_with_the_parked_one(how: str) -> None:
    """With serial sharing: a call that waits for its turn can be cancelled, and outlives the loss of the process."""
    world, client = shared(Sharing.SERIAL)
    other = modern(world, "s", "pipe", principal="bob")
    heard, _, state = parked(world, client)
    channel = other.call()
    if how == "cancels":
        other.cancel(channel)
        assert not world.hears("notifications/cancelled"), "it had not gone up"
        assert not world.messages(channel)
    else:
        world.end(world.last_dial(Spawn).channel)
        rise(world)
        give(world, world.hear("tools/call"))
        assert "result" in other.answered(channel)
    last = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    if how == "cancels":
        give(world, heard)
    assert ("error" in client.answered(last)) is (how == "dies")


def test_a_question_that_could_be_anybodys_is_refused_for_parked_calls_too() -> None:
    """With concurrent sharing the calls of two clients are open, one of them parked: which of them is asked cannot be
    told. When one is left, it is asked."""
    world, client = shared(Sharing.CONCURRENT)
    other = modern(world, "s", principal="bob")
    heard, _, _ = parked(world, client)
    channel = other.call()
    second = world.hear("tools/call")
    ask(world, second, id_raw='"x"')
    assert world.hear("").frame["error"]["code"] == -32603
    collect(world)
    assert not world.messages(channel)
    give(world, heard)
    ask(world, second, id_raw='"y"')
    collect(world)
    rounds(other, channel)


def test_questions_go_to_their_own_clients_whatever_the_era() -> None:
    """On one process a client with a session is asked by a request, one without by the answer to its own."""
    world, client = shared(Sharing.CONCURRENT)
    old = joined(world)
    assert old.pipe is not None
    heard, _, state = parked(world, client)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    world.hear("")
    give(world, heard)
    assert "result" in client.answered(channel)
    old.request("1", "tools/call", '{"name":"x"}')
    heard = world.hear("tools/call")
    ask(world, heard)
    assert [frame["method"] for frame in world.frames(old.pipe)] == ["elicitation/create"]


# --- One pipe ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["discover first", "initialize first"])
def test_both_eras_are_spoken_on_one_pipe(order: str) -> None:
    """Discovery, handshake and requests of either kind in any order: all are served, each by its own session, under
    equal ids too; a message of the server for the session comes as such, for the other as the answer to its call."""
    world = bridge()
    client = modern(world, "pipe", "pipe")
    old = beside(client)
    pipe = client.pipe
    assert pipe is not None
    if order == "discover first":
        client.request("server/discover", id_raw='"d"')
        rise(world)
    old.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    world.shake_hands()
    old.notify("notifications/initialized")
    if order == "initialize first":
        client.request("server/discover", id_raw='"d"')
        rise(world)
    assert len({dial.channel for dial in world.every(Dial) if dial.channel not in world.over}) == 2
    world.sent[pipe].clear()
    old.request("7", "tools/call", '{"name":"old"}')
    client.call("new", id_raw="7")
    calls = [world.hear("tools/call"), world.hear("tools/call")]
    assert [heard.frame["params"]["name"] for heard in calls] == ["old", "new"]
    for heard in calls:
        ask(world, heard)
    collect(world)
    question, answer = world.frames(pipe)
    assert question["method"] == "elicitation/create"
    assert (answer["id"], answer["result"]["resultType"]) == (7, "input_required")
    old.say(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": ACCEPT}).encode())
    assert world.hear("").channel == calls[0].channel
    old.notify("notifications/cancelled", '{"requestId":7}')
    cancelled = world.hear("notifications/cancelled")
    assert cancelled.channel == calls[0].channel, "the leg of that id is over, the session's request is not"
    client.call("new", requestState=answer["result"]["requestState"], inputResponses={"r1": ACCEPT}, id_raw="8")
    assert world.hear("").channel == calls[1].channel
    give(world, calls[1])
    assert client.answered(pipe, 8)["result"]["resultType"] == "complete"
    world.end(pipe)
    world.wait(5)
    assert_empty(world)


def test_a_request_of_neither_kind_needs_a_session() -> None:
    """What names no revision belongs to a session; before there is one it is refused, and harms no other request."""
    world, client, _ = served(down="pipe")
    client.call(id_raw="1")
    beside(client).request("2", "tools/list")
    assert client.answered(client.pipe or world.dials[-1].channel, 2)["error"]["code"] == -32600
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(client.pipe or world.dials[-1].channel, 1)


# --- One session ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", list(Affinity), ids=lambda affinity: affinity.value)
def test_requests_share_a_session_if_and_only_if_all_is_equal(affinity: Affinity) -> None:
    """Server, principal, what the client can do, whatever the order and spelling of its capabilities; and the pipe, for
    those on pipes. On HTTP requests can be told to have each its own."""
    world = bridge(affinity=affinity)
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("http", "", {"sampling": {}, "roots": {}}),
        ("http", "", {"roots": {}, "sampling": {}}),
        ("http", "", {"roots": {}}),
        ("http", "ann", {"roots": {}}),
        ("pipe", "ann", {"roots": {}}),
        ("pipe", "ann", {"roots": {}}),
    ]
    for down, principal, capabilities in ways:
        modern(world, "pipe", down, principal=principal, capabilities=capabilities).call()
    assert world.engine.session_count == (5 if affinity is Affinity.SHARED else 6)


def test_a_call_runs_in_a_session_that_was_greeted_with_what_its_client_can_do() -> None:
    """Servers decide by the handshake what they ask: each set of capabilities has its own."""
    world = bridge()
    for capabilities in ({"roots": {}}, {"elicitation": {"form": {}}}, {}):
        modern(world, "pipe", capabilities=capabilities).call()
        world.open(world.dials[-1].channel, Connected())
        if world.hears("server/discover"):
            refuse_discovery(world)
            world.open(world.dials[-1].channel, Connected())
        greeting = world.hear("initialize").frame["params"]
        assert greeting["capabilities"] == capabilities
        assert greeting["clientInfo"] == {"name": "tester", "version": "1"}
