"""Tests of the status report of servers, at every stage."""

from __future__ import annotations

from driving import Driver, connect, driver, new_client
from isthmus.core.base.effects import Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.status import Command, Status

DIED = Cause(End.BROKEN, "exited with code 1")


def idle(**but: object) -> Status:
    """Returns the status of a server of which nothing is known but `but`."""
    known: dict[str, object] = {
        "id": "s",
        "kind": "pipe",
        "state": "idle",
        "sessions": 0,
        "in_flight": 0,
        "processes": 0,
        "spares": 0,
        "starts": 0,
        "failures": 0,
        "noise": 0,
        "last_error": "",
        "eras": {},
        "era": None,
        "revision": None,
        "capabilities": (),
        "ready_at": None,
    }
    return Status(**{**known, **but})  # type: ignore[arg-type]


def status(world: Driver) -> Status:
    (found,) = world.engine.report()
    return found


def command(world: Driver, command: Command) -> None:
    world._note(world.engine.receive_command("s", command, world.now))


def test_commands_have_their_names_as_values() -> None:
    assert [command.value for command in Command] == ["start", "stop", "restart"]


def test_the_status_of_a_server_at_every_stage() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    assert status(world) == idle()
    client = new_client(world, "http", "s")
    channel = client.initialize()
    child = world.last_dial(Spawn).channel
    assert status(world) == idle(state="starting", sessions=1, processes=1, starts=1)
    world.open(child, Connected())
    greeting = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}}}'
    world.wait(2.0)
    world.answer(world.take_sent("initialize"), greeting)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    ready_at = world.now
    spoken = {"eras": {"handshake": "2025-11-25"}, "era": "handshake", "revision": "2025-11-25"}
    known = {**spoken, "capabilities": ("logging", "tools"), "sessions": 1, "processes": 1, "starts": 1}
    assert status(world) == idle(**known, state="running", ready_at=ready_at)
    client.request("1", "tools/call", '{"name":"t"}')
    client.request("2", "tools/list")
    world.wait(1.0)
    assert status(world) == idle(**known, state="running", ready_at=ready_at, in_flight=2)
    world.end(child, DIED)
    fallen = status(world)
    assert (fallen.last_error, fallen.era, fallen.ready_at) == ("exited with code 1", None, None)
    command(world, Command.STOP)
    assert (status(world).state, status(world).processes) == ("stopped", 1), "it is ending"


def test_a_server_that_does_not_start_has_failed() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    new_client(world, "http", "s").initialize()
    world.end(world.last_dial(Spawn).channel, DIED)
    found = status(world)
    assert found == idle(state="failed", sessions=found.sessions, starts=1, failures=1, last_error="exited with code 1")


def test_warm_processes_count_among_all() -> None:
    """A server with an idle warm process is running."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, spares=2))
    client = connect(world, "http", "s")
    found = status(world)
    assert (found.state, found.processes, found.spares) == ("running", 3, 2)
    client.delete()
    world.end(world.dials[0].channel)
    found = status(world)
    assert (found.state, found.sessions, found.processes, found.spares, found.ready_at) == ("running", 0, 2, 2, None)


def test_the_report_follows_the_order_of_the_plan() -> None:
    plans = [ServerPlan(id=id, kind=Kind.HTTP) for id in "cab"]
    world = driver(*plans)
    connect(world, "http", "a")
    assert [(found.id, found.sessions, found.kind) for found in world.engine.report()] == [
        ("c", 0, "http"),
        ("a", 1, "http"),
        ("b", 0, "http"),
    ]


def test_ready_at_is_the_earliest_of_all_sessions() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.HTTP))
    connect(world, "http", "s")
    first = world.now
    world.wait(5.0)
    connect(world, "http", "s", session="S2")
    found = status(world)
    assert (found.ready_at, found.sessions, found.processes) == (first, 2, 0)
