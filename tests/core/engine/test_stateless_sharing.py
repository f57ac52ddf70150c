"""Tests of sharing: servers that clients of both eras use, pipes with both eras, and affinity."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, new_client
from isthmus.core.base.effects import Dial, Spawn
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity, Kind, ServerPlan, Sharing
from stateless_driving import (
    ACCEPT,
    Modern,
    ask,
    assert_empty,
    bridge,
    collect,
    handshake_client,
    modern,
    refuse_discovery,
    respond,
    rounds,
    served,
    start_legacy_server,
    suspended,
)

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}}}'


def shared(sharing: Sharing, *, limits: Limits | None = None) -> tuple[Driver, Modern]:
    """Returns a shared server that is ready, and a stateless client of it."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing), limits=limits)
    client = modern(world, "s")
    client.request("server/discover")
    start_legacy_server(world)
    return world, client


def joined(world: Driver) -> Client:
    """Returns a client of the handshake era that joins the server."""
    client = new_client(world, "pipe", "s")
    client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    return client


# --- One log level ----------------------------------------------------------------------------------------------------


def test_a_request_does_not_raise_the_log_level_of_a_shared_server() -> None:
    """A process has one log level: the lowest of its clients of both eras."""
    world, client = shared(Sharing.CONCURRENT)
    old = joined(world)
    old.request("1", "logging/setLevel", '{"level":"info"}')
    world.answer(world.take_sent("logging/setLevel"))
    client.call(level="error")
    levelling = world.take_sent("logging/setLevel")
    assert levelling.frame["params"]["level"] == "info"
    world.answer(levelling)
    client.call(level="debug")
    levelling = world.take_sent("logging/setLevel")
    assert levelling.frame["params"]["level"] == "debug"
    world.answer(levelling)
    old.request("2", "logging/setLevel", '{"level":"error"}')
    assert not world.was_sent("logging/setLevel"), "a higher level does not take messages from others"


# --- One process ------------------------------------------------------------------------------------------------------


def test_serial_sharing_holds_other_calls_while_one_is_suspended() -> None:
    """The server works on the suspended call, so a question would belong to it. Other calls wait for its end, in order;
    lists pass."""
    world, client = shared(Sharing.SERIAL)
    other = joined(world)
    received, _, state = suspended(world, client)
    other.request("1", "tools/call", '{"name":"x"}')
    other.request("2", "tools/list")
    world.wait(300)
    assert not world.was_sent("tools/call")
    respond(world, world.take_sent("tools/list"), '{"tools":[]}')
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert not world.was_sent("tools/call"), "it is still under way"
    respond(world, received)
    assert "result" in client.answered(channel)
    respond(world, world.take_sent("tools/call"))
    assert [frame["id"] for frame in world.frames(other.pipe or channel)] == [2, 1]


def test_serial_sharing_gives_up_a_suspended_call_whose_client_does_not_come_back() -> None:
    """The next call goes on after the time limit for answers."""
    world, client = shared(Sharing.SERIAL)
    other = joined(world)
    received, _, _ = suspended(world, client)
    other.request("1", "tools/call", '{"name":"x"}')
    world.wait(Limits().suspended_call_ttl_s - 1)
    assert not world.was_sent("tools/call")
    world.wait(1)
    assert world.take_sent("").frame["result"] == {"action": "cancel"}
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id
    respond(world, world.take_sent("tools/call"))


def test_serial_sharing_goes_on_when_the_server_ends_a_suspended_call() -> None:
    """The answer is held for its client, and the next call goes on at once."""
    world, client = shared(Sharing.SERIAL)
    other = modern(world, "s", "pipe")
    received, _, state = suspended(world, client)
    waiting = other.call()
    respond(world, received)
    respond(world, world.take_sent("tools/call"))
    assert "result" in other.answered(waiting)
    channel = client.call(requestState=state)
    assert "result" in client.answered(channel)


@pytest.mark.parametrize("how", ["cancels", "dies"])
def test_a_waiting_call_is_not_forgotten_with_the_suspended_one(how: str) -> None:
    """A call that waits for its turn can be cancelled, and outlives the loss of the process."""
    world, client = shared(Sharing.SERIAL)
    other = modern(world, "s", "pipe")
    received, _, state = suspended(world, client)
    channel = other.call()
    if how == "cancels":
        other.cancel(channel)
        assert not world.was_sent("notifications/cancelled"), "it had not gone up"
        assert not world.messages(channel)
    else:
        world.end(world.last_dial(Spawn).channel)
        start_legacy_server(world)
        respond(world, world.take_sent("tools/call"))
        assert "result" in other.answered(channel)
    last = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    if how == "cancels":
        respond(world, received)
    assert ("error" in client.answered(last)) is (how == "dies")


def test_a_question_that_may_belong_to_several_calls_is_refused() -> None:
    """The calls of two clients are open, one of them suspended. When one is left, the question goes to it."""
    world, client = shared(Sharing.CONCURRENT)
    other = modern(world, "s", "pipe")
    received, _, _ = suspended(world, client)
    channel = other.call()
    second = world.take_sent("tools/call")
    ask(world, second, id_raw='"x"')
    assert world.take_sent("").frame["error"]["code"] == -32603
    collect(world)
    assert not world.messages(channel)
    respond(world, received)
    ask(world, second, id_raw='"y"')
    collect(world)
    rounds(other, channel)


def test_questions_go_to_their_own_clients_whatever_the_era() -> None:
    """A client of the handshake era gets a request, a stateless client the answer to its own."""
    world, client = shared(Sharing.CONCURRENT)
    old = joined(world)
    assert old.pipe is not None
    received, _, state = suspended(world, client)
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    world.take_sent("")
    respond(world, received)
    assert "result" in client.answered(channel)
    old.request("1", "tools/call", '{"name":"x"}')
    received = world.take_sent("tools/call")
    ask(world, received)
    assert [frame["method"] for frame in world.frames(old.pipe)] == ["elicitation/create"]


# --- One pipe ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["discover first", "initialize first"])
def test_one_pipe_carries_both_eras(order: str) -> None:
    """Discovery, handshake and requests of both eras are served in any order, each by its own session, under equal ids
    too. A question reaches the session as a request and the stateless client as an answer."""
    world = bridge()
    client = modern(world, "pipe", "pipe")
    old = handshake_client(client)
    pipe = client.pipe
    assert pipe is not None
    if order == "discover first":
        client.request("server/discover", id_raw='"d"')
        start_legacy_server(world)
    old.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    world.start_server()
    old.notify("notifications/initialized")
    if order == "initialize first":
        client.request("server/discover", id_raw='"d"')
        start_legacy_server(world)
    assert len({dial.channel for dial in world.every(Dial) if dial.channel not in world.over}) == 2
    world.sent[pipe].clear()
    old.request("7", "tools/call", '{"name":"old"}')
    client.call("new", id_raw="7")
    calls = [world.take_sent("tools/call"), world.take_sent("tools/call")]
    assert [received.frame["params"]["name"] for received in calls] == ["old", "new"]
    for received in calls:
        ask(world, received)
    collect(world)
    question, answer = world.frames(pipe)
    assert question["method"] == "elicitation/create"
    assert (answer["id"], answer["result"]["resultType"]) == (7, "input_required")
    old.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": ACCEPT}).encode())
    assert world.take_sent("").channel == calls[0].channel
    old.notify("notifications/cancelled", '{"requestId":7}')
    cancelled = world.take_sent("notifications/cancelled")
    assert cancelled.channel == calls[0].channel, "the stateless request of that id has ended, the session's has not"
    client.call("new", requestState=answer["result"]["requestState"], inputResponses={"r1": ACCEPT}, id_raw="8")
    assert world.take_sent("").channel == calls[1].channel
    respond(world, calls[1])
    assert client.answered(pipe, 8)["result"]["resultType"] == "complete"
    world.end(pipe)
    world.wait(5)
    assert_empty(world)


def test_a_request_without_a_revision_needs_a_session() -> None:
    """A request without a revision belongs to a session. Before there is one it is refused, and affects no other
    request."""
    world, client, _ = served(down="pipe")
    client.call(id_raw="1")
    handshake_client(client).request("2", "tools/list")
    assert client.answered(client.pipe or world.dials[-1].channel, 2)["error"]["code"] == -32600
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(client.pipe or world.dials[-1].channel, 1)


# --- One session ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", list(Affinity), ids=lambda affinity: affinity.value)
def test_requests_share_a_session_if_and_only_if_all_is_equal(affinity: Affinity) -> None:
    """The key is the server, the principal, the capabilities in any order and spelling, and the pipe. Over HTTP the
    plan can give each request a session of its own."""
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


def test_a_call_runs_in_a_session_with_the_capabilities_of_its_client() -> None:
    """Servers choose their questions by the handshake, so each set of capabilities has a session of its own."""
    world = bridge()
    for capabilities in ({"roots": {}}, {"elicitation": {"form": {}}}, {}):
        modern(world, "pipe", capabilities=capabilities).call()
        world.open(world.dials[-1].channel, Connected())
        if world.was_sent("server/discover"):
            refuse_discovery(world)
            world.open(world.dials[-1].channel, Connected())
        greeting = world.take_sent("initialize").frame["params"]
        assert greeting["capabilities"] == capabilities
        assert greeting["clientInfo"] == {"name": "tester", "version": "1"}
