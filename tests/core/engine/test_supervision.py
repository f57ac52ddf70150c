"""Tests of supervision: processes that crash, idle or are started ahead of need, and the fallback to HTTP+SSE."""

from __future__ import annotations

import json

import pytest
from driving import Client, Driver, connect, driver, new_client
from isthmus.core.base.effects import Close, Dial, Join, Listen, Post, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, ServerPlan, Sharing
from isthmus.core.status import Command, Status

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
DIED = Cause(End.BROKEN, "exited with code 1")


def spawned(world: Driver) -> list[Spawn]:
    return [dial.target for dial in world.every(Dial) if isinstance(dial.target, Spawn)]


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


# --- Crash loops ------------------------------------------------------------------------------------------------------


def test_reconnecting_clients_do_not_restart_a_crashing_server_at_once() -> None:
    world = driver(limits=Limits(crash_loop_failures=5, crash_loop_pause_s=30.0, crash_loop_pause_max_s=100.0))
    for _ in range(50):
        channel = new_client(world, "http", "pipe").initialize()
        if child(world) not in world.over:
            world.end(child(world), DIED)
        assert "exited with code 1" in world.only_message(channel)["error"]["message"]
    assert len(spawned(world)) == 5
    for pause, count in ((30.0, 6), (60.0, 7), (100.0, 8), (100.0, 9)):
        world.wait(pause - 0.5)
        new_client(world, "http", "pipe").initialize()
        assert len(spawned(world)) == count - 1
        world.wait(0.5)
        new_client(world, "http", "pipe").initialize()
        assert len(spawned(world)) == count
        world.end(child(world), DIED)


def test_a_server_that_has_answered_is_no_crash_loop() -> None:
    world = driver(limits=Limits(crash_loop_failures=2))
    for _ in range(10):
        client = connect(world, "http", "pipe")
        client.request("1", "tools/list")
        world.answer(world.take_sent("tools/list"))
        world.end(child(world), DIED)
    assert len(spawned(world)) == 10


def test_one_server_s_crashes_do_not_stop_another() -> None:
    plans = (ServerPlan(id="bad", kind=Kind.PIPE), ServerPlan(id="good", kind=Kind.PIPE))
    world = driver(*plans, limits=Limits(crash_loop_failures=1))
    new_client(world, "http", "bad").initialize()
    world.end(child(world), DIED)
    new_client(world, "http", "bad").initialize()
    assert len(spawned(world)) == 1
    new_client(world, "http", "good").initialize()
    assert spawned(world)[-1].server == "good"


# --- Idleness ---------------------------------------------------------------------------------------------------------


def test_an_idle_process_is_stopped_and_started_again_when_it_is_needed() -> None:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, idle_stop_s=60.0))
    client = connect(world, "pipe", "pipe")
    client.request("1", "tools/list")
    call = world.take_sent("tools/list")
    world.wait(100)
    assert child(world) not in world.closed, "it is at work"
    world.answer(call)
    world.wait(61)
    assert world.last(Close) == Close(child(world), reason="idle")
    assert "stopped: idle" in world.notes("info")
    world.end(child(world))
    client.request("2", "tools/list")
    assert len(spawned(world)) == 2
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert client.pipe is not None
    assert json.loads(world.messages(client.pipe)[-1])["id"] == 2
    assert not world.notes("warning")


def test_an_idle_process_that_is_subscribed_to_goes_on() -> None:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, idle_stop_s=60.0))
    client = connect(world, "pipe", "pipe")
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    world.wait(1000)
    assert child(world) not in world.closed


# --- Spares -----------------------------------------------------------------------------------------------------------


def warm_world(**plan: object) -> tuple[Driver, Client]:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, spares=2, **plan))  # type: ignore[arg-type]
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    first = child(world)
    world.open(first, Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")
    client.session = world.sent[channel][-1].session
    return world, client


def test_the_next_sessions_find_their_processes_running() -> None:
    world, _ = warm_world()
    assert len(spawned(world)) == 3, "two in reserve as soon as the first is ready"
    spares = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)][1:]
    for channel in spares:
        world.open(channel, Connected())
    new_client(world, "http", "pipe").initialize()
    greeting = world.take_sent("initialize")
    assert greeting.channel == spares[0]
    assert len(spawned(world)) == 3, "the reserve is filled when the session is ready"
    world.answer(greeting, HANDSHAKE)
    assert len(spawned(world)) == 4


def test_a_warm_process_that_is_still_starting_is_taken() -> None:
    world, _ = warm_world()
    spare = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)][1]
    new_client(world, "http", "pipe").initialize()
    assert not world.was_sent("initialize")
    world.open(spare, Connected())
    assert world.take_sent("initialize").channel == spare


def test_a_warm_process_that_dies_is_not_replaced_at_once() -> None:
    world, _ = warm_world()
    spares = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)][1:]
    for channel in spares:
        world.end(channel, DIED)
    assert len(spawned(world)) == 3
    new_client(world, "http", "pipe").initialize()
    assert len(spawned(world)) == 4, "one for the session itself"


def test_the_folders_of_a_warm_process_become_those_of_the_session() -> None:
    world, _ = warm_world(producers=(ArtifactProducer(tools=("t",), output_path_argument="p"),))
    spare = spawned(world)[1].workspace
    client = new_client(world, "http", "pipe")
    client.initialize()
    world.open([d.channel for d in world.every(Dial) if isinstance(d.target, Spawn)][1], Connected())
    world.send(world.take_sent("initialize").channel, b'{"jsonrpc":"2.0","id":"r","method":"roots/list"}')
    roots = world.take_sent("").frame["result"]["roots"]
    assert all(spare in root["uri"] for root in roots)


def test_warm_processes_count_among_processes_and_end_with_the_engine() -> None:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, spares=5), limits=Limits(children_max=3))
    channel = new_client(world, "http", "pipe").initialize()
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    assert "result" in world.only_message(channel)
    assert len(spawned(world)) == 3
    world.stop()
    children = {dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)}
    assert children <= world.closed.keys()
    for one in children:
        world.end(one)
    assert world.engine.next_timeout() is None


# --- Which transport --------------------------------------------------------------------------------------------------


def auto() -> Driver:
    return driver(ServerPlan(id="http", kind=Kind.HTTP, may_fall_back=True))


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_server_that_refuses_streamable_http_is_tried_as_http_sse(status: int) -> None:
    world = auto()
    client = new_client(world, "pipe", "http")
    client.initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.REFUSED, status=status))
    join = world.last_dial(Join)
    world.open(join.channel, Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    assert world.take_sent("notifications/initialized").channel == join.channel
    client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert client.pipe is not None
    assert json.loads(world.messages(client.pipe)[-1]) == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}
    new_client(world, "pipe", "http").initialize()
    assert isinstance(world.every(Dial)[-1].target, Join), "once found, it is known"


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 503])
def test_other_refusals_do_not_change_the_transport(status: int) -> None:
    world = auto()
    channel = new_client(world, "http", "http").initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.REFUSED, status=status))
    assert "error" in world.only_message(channel)
    assert not any(isinstance(dial.target, Join) for dial in world.every(Dial))


def test_without_fallback_http_sse_is_not_tried() -> None:
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    new_client(world, "http", "http").initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.REFUSED, status=405))
    assert not any(isinstance(dial.target, Join) for dial in world.every(Dial))


def test_a_server_that_speaks_neither_transport_has_both_causes() -> None:
    world = auto()
    channel = new_client(world, "http", "http").initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.REFUSED, "got HTTP status 404", status=404))
    world.end(world.last_dial(Join).channel, Cause(End.REFUSED, "got HTTP status 406", status=406))
    text = world.only_message(channel)["error"]["message"]
    assert "404" in text
    assert "406" in text


def test_the_error_of_the_server_is_kept_after_the_second_attempt() -> None:
    world = auto()
    channel = new_client(world, "http", "http").initialize()
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"go away"}}'
    for method in ("initialize", "server/discover"):
        world.end(world.take_sent(method).channel, Cause(End.REFUSED, status=400, body=body))
    world.end(world.last_dial(Join).channel, Cause(End.REFUSED, status=405))
    assert world.only_message(channel)["error"] == {"code": -32050, "message": "go away"}


def test_both_transports_are_tried_again_after_a_failure() -> None:
    """The transport that was found is kept only until it fails."""
    world = auto()
    new_client(world, "pipe", "http").initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.REFUSED, status=405))
    world.open(world.last_dial(Join).channel, Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    new_client(world, "pipe", "http").initialize()
    world.end(world.last_dial(Join).channel, Cause(End.REFUSED, status=404))
    new_client(world, "pipe", "http").initialize()
    assert isinstance(world.every(Dial)[-1].target, Post)
    assert not any(isinstance(dial.target, Listen) for dial in world.every(Dial))


# --- An operator's orders ---------------------------------------------------------------------------------------------


def status(world: Driver, id: str = "pipe") -> Status:
    return next(one for one in world.engine.report() if one.id == id)


def order(world: Driver, command: Command, id: str = "pipe") -> None:
    world._note(world.engine.receive_command(id, command, world.now))


def test_the_report_follows_the_state_of_a_server() -> None:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE))
    assert status(world).state == "idle"
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    assert status(world).state == "starting"
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}')
    client.session = world.sent[channel][-1].session
    client.request("1", "tools/call", "{}")
    now = status(world)
    assert (now.state, now.sessions, now.in_flight, now.processes, now.starts) == ("running", 1, 1, 1, 1)
    assert (now.revision, now.capabilities) == ("2025-06-18", ("tools",))
    client.delete()
    assert status(world).state == "idle"
    world.end(child(world))
    assert status(world).processes == 0
    new_client(world, "http", "pipe").initialize()
    world.end(child(world), DIED)
    now = status(world)
    assert (now.state, now.failures) == ("failed", 1)
    assert "exited with code 1" in now.last_error


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_stopped_server_refuses_requests_until_it_is_started(up: str) -> None:
    world = driver()
    client = connect(world, "http", up)
    running = client.request("1", "tools/call", "{}")
    order(world, Command.STOP, up)
    if up == "http":
        world.end(world.take_sent("tools/call").channel, Cause(End.DONE))
    assert world.only_message(running)["error"]["data"]["outcome"] == "unknown"
    assert status(world, up).state == "stopped"
    late = client.request("2", "tools/list")
    assert "it is stopped; start it first" in world.only_message(late)["error"]["message"]
    fresh = new_client(world, "http", up).initialize()
    assert "it is stopped; start it first" in world.only_message(fresh)["error"]["message"]
    began = len(world.every(Dial))
    order(world, Command.START, up)
    client.request("3", "tools/list")
    assert len(world.every(Dial)) > began


def test_a_start_command_ends_the_pause_after_crashes() -> None:
    world = driver(limits=Limits(crash_loop_failures=1))
    new_client(world, "http", "pipe").initialize()
    world.end(child(world), DIED)
    new_client(world, "http", "pipe").initialize()
    assert len(spawned(world)) == 1
    order(world, Command.START)
    new_client(world, "http", "pipe").initialize()
    assert len(spawned(world)) == 2


def test_a_shared_server_can_be_started_without_clients() -> None:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, sharing=Sharing.CONCURRENT))
    order(world, Command.START)
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    assert status(world).state == "running"
    client = new_client(world, "pipe", "pipe")
    client.initialize()
    assert len(spawned(world)) == 1
    assert client.pipe is not None
    assert "result" in json.loads(world.messages(client.pipe)[-1])
    order(world, Command.RESTART)
    assert len(spawned(world)) == 2
    order(world, Command.STOP)
    assert child(world) in world.closed


def test_a_command_for_an_unknown_server_raises() -> None:
    with pytest.raises(LocalProtocolError, match="no server 'x'"):
        driver().engine.receive_command("x", Command.STOP, 0.0)
