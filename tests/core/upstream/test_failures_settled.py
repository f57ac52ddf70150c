"""Tests of the loss of a server: every request, question and stream of it is settled, with an error that says what is
known."""

from __future__ import annotations

import json

import pytest
from driving import DONE, Client, Driver, connect, driver, new_client, request
from isthmus.core.base.effects import Close, Delete, Join, Listen, Post, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import bridge, modern, tables

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
DIED = Cause(End.BROKEN, "exited with code 1")


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def up_again(world: Driver) -> None:
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")


def frames(client: Client) -> list[dict[str, object]]:
    """Reads and clears what a client on a pipe was sent."""
    assert client.pipe is not None
    found = list(client.driver.frames(client.pipe))
    client.driver.sent[client.pipe].clear()
    return found


def timers(world: Driver) -> set[str]:
    return {purpose for purpose, _ in tables(world.engine)["timers"]}


def test_each_call_that_ran_gets_an_unknown_outcome_and_leaves_no_timer() -> None:
    world = driver()
    client = connect(world, "pipe", "pipe")
    for number in range(1, 4):
        client.request(str(number), "tools/call", "{}")
    world.end(child(world), DIED)
    outcomes = {frame["id"]: frame["error"]["data"] for frame in frames(client)}  # type: ignore[index]
    assert outcomes == {number: {"outcome": "unknown"} for number in range(1, 4)}
    assert timers(world) <= {"idle"}


@pytest.mark.parametrize("is_called", [False, True])
def test_every_question_of_a_lost_server_is_withdrawn(is_called: bool) -> None:
    """The client gets a cancellation for each, whether the question was asked during a call or without one."""
    world = driver()
    client = new_client(world, "pipe", "pipe")
    client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"sampling":{}}}')
    up_again(world)
    client.notify("notifications/initialized")
    frames(client)
    if is_called:
        client.request("1", "tools/call", "{}")
    for id in ('"p"', '"q"'):
        world.send(child(world), request(id, "roots/list"))
    asked = [frame["id"] for frame in frames(client)]
    assert len(asked) == 2
    world.end(child(world), DIED)
    received = frames(client)
    withdrawn = [frame["params"]["requestId"] for frame in received if frame.get("method") == "notifications/cancelled"]  # type: ignore[index]
    assert sorted(withdrawn, key=str) == sorted(asked, key=str)
    assert len(received) == 2 + is_called


def test_the_event_stream_of_a_session_that_is_forgotten_is_closed() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.request("1", "tools/list")
    before = len(world.log)
    world.end(world.take_sent("tools/list").channel, Cause(End.REFUSED, status=404))
    closes = [effect for effect in world.log[before:] if isinstance(effect, Close)]
    assert [effect.channel for effect in closes] == [stream]
    assert closes[0].reason


def test_an_error_quotes_only_the_output_of_the_start_that_failed() -> None:
    world = driver(limits=Limits(restart_backoff_s=1.0))
    client = connect(world, "http", "pipe")
    world.end(child(world), DIED)
    texts = []
    for line in (b"usage: server PATH", None):
        channel = client.request("1", "tools/list")
        world.open(child(world), Connected())
        if line is not None:
            world.send(child(world), line)
        world.end(child(world), DIED)
        texts.append(world.only_message(channel)["error"]["message"])
        world.wait(10)
    reason = "the server could not be started: exited with code 1"
    assert texts == [f"{reason}; it wrote what is no message: 'usage: server PATH'", reason]


def test_the_failure_of_a_shared_process_answers_a_waiting_initialize_and_a_waiting_call() -> None:
    """A client without a session has made its call already, and a client with a session waits for the response to
    `initialize`."""
    plan = ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, sharing=Sharing.CONCURRENT)
    world = bridge(plan)
    without = modern(world, "s")
    call = without.call()
    newer = new_client(world, "pipe", "s")
    newer.initialize()
    assert not world.messages(call)
    world.end(child(world), DIED)
    assert without.answered(call)["error"]["message"] == "the server could not be started: exited with code 1"
    (frame,) = frames(newer)
    assert frame["error"]["code"] == -31004  # type: ignore[index]


@pytest.mark.parametrize("cause", [DONE, Cause(End.BROKEN, "reset"), Cause(End.REFUSED, status=500, body=b"x" * 201)])
def test_a_post_that_failed_says_how(cause: Cause) -> None:
    """An HTTP error status is not the loss of the server. The error quotes the first two hundred bytes of its body."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    received = world.take_sent("tools/call")
    if cause is DONE:
        world.open(received.channel, Connected())
    world.end(received.channel, cause)
    error = world.only_message(channel)["error"]
    assert error["code"] == -31001
    if cause.end is End.REFUSED:
        assert error["message"].startswith("the server failed: ")
        assert error["data"] == {"outcome": "unknown", "httpStatus": 500, "body": "x" * 200}
    else:
        assert error["message"].startswith("the server was lost before it answered: ")
        assert error["data"] == {"outcome": "unknown"}
    assert error["message"].endswith(". tools/call may have run; it is not repeated")


def test_an_answered_delete_leaves_no_timer() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.delete()
    (delete,) = [dial for dial in world.dials if isinstance(dial.target, Delete)]
    assert timers(world) == {"grace"}
    world.end(delete.channel)
    assert not timers(world)
    assert world.engine.next_timeout() is None


def test_a_delete_names_the_session_that_it_ends() -> None:
    """The DELETE has the headers that come with everything from its client."""
    world = driver()
    client = new_client(world, "http", "http", headers=(("x-who", "ann"),))
    channel = client.initialize()
    world.start_server(session="S7")
    client.session = world.sent[channel][-1].session
    client.delete()
    (delete,) = [dial.target for dial in world.dials if isinstance(dial.target, Delete)]
    assert (delete.server, delete.session, delete.revision) == ("http", "S7", "2025-11-25")
    assert json.dumps(delete.headers) == '[["x-who", "ann"]]'


@pytest.mark.parametrize("is_back", [False, True])
def test_the_older_transport_is_doubted_when_the_server_does_not_come_up(is_back: bool) -> None:
    """The server is first dialled again over HTTP+SSE, as it was found. If that fails, Streamable HTTP is tried
    again."""
    world = driver(ServerPlan(id="s", kind=Kind.HTTP, may_fall_back=True, era=Era.HANDSHAKE))
    client = new_client(world, "http", "s")
    channel = client.initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.REFUSED, status=405))
    world.open(world.last_dial(Join).channel, Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")
    client.session = world.sent[channel][-1].session
    world.end(world.last_dial(Join).channel, Cause(End.BROKEN, "cut"))
    client.request("1", "tools/list")
    again = world.dials[-1]
    assert isinstance(again.target, Join)
    if is_back:
        world.open(again.channel, Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
        world.take_sent("notifications/initialized")
        world.end(again.channel, Cause(End.BROKEN, "cut"))
    else:
        world.end(again.channel, Cause(End.UNREACHABLE, "nobody"))
    world.wait(100)
    client.request("2", "tools/list")
    assert isinstance(world.dials[-1].target, Join if is_back else Post)
