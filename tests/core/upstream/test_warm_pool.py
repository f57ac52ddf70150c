"""Processes in reserve: who gets them, when they are filled up and what ends them."""

from __future__ import annotations

import pytest
from driving import Driver, driver, newcomer
from isthmus.core.base.effects import Cause, Close, Connected, Dial, End, Note, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.status import Command, Status

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
REASON = "it is not needed any more"


CAUSES = [(Cause(End.BROKEN, "exited with 1"), "exited with 1"), (Cause(End.GONE), "gone")]


def spawns(world: Driver, id: str | None = None) -> list[ChannelId]:
    """The processes that were started, the oldest first."""
    dials = [dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)]
    return [dial.channel for dial in dials if id in (None, dial.target.server)]


def raise_server(world: Driver, id: str) -> None:
    """A client comes, and its server with it; then the reserve is filled."""
    newcomer(world, "http", id).initialize()
    world.open(spawns(world, id)[-1], Connected())
    world.answer(world.hear("initialize"), HANDSHAKE)
    world.hear("notifications/initialized")


def status(world: Driver, id: str = "a") -> Status:
    return next(one for one in world.engine.report() if one.id == id)


def order(world: Driver, command: Command, id: str = "a") -> None:
    world._note(world.engine.receive_command(id, command, world.now))


def reserve(*counts: int, limits: Limits | None = None) -> Driver:
    """Servers "a", "b" … with so many processes in reserve, each raised once."""
    plans = [ServerPlan(id=id, kind=Kind.PIPE, spares=count) for id, count in zip("abc", counts, strict=False)]
    world = driver(*plans, limits=limits)
    for plan in plans:
        raise_server(world, plan.id)
    return world


def test_each_server_has_a_reserve_of_its_own() -> None:
    """As many as its plan says, which count as starts and as processes."""
    world = reserve(2, 0, 1)
    assert [len(spawns(world, id)) for id in "abc"] == [3, 1, 2]
    told = [(one.spares, one.processes, one.starts) for one in world.engine.report()]
    assert told == [(2, 3, 3), (0, 1, 1), (1, 2, 2)]


@pytest.mark.parametrize("command", [Command.STOP, Command.RESTART])
def test_an_order_for_one_server_ends_its_reserve_alone(command: Command) -> None:
    world = reserve(2, 1)
    spares = spawns(world, "a")[1:]
    order(world, command)
    for spare in spares:
        assert world.closed[spare] == Close(spare, reason=REASON)
    assert not set(spawns(world, "b")) & world.closed.keys()
    for spare in spares:
        world.end(spare)
    assert not any("spare" in text for text in world.notes("warning")), "it was ended, and did not fail"
    assert status(world).failures == 0
    assert [status(world, id).spares for id in "ab"] == [0 if command is Command.STOP else 2, 1]


def test_a_stop_of_all_ends_every_reserve_and_fills_none() -> None:
    world = reserve(1, 1)
    spares = [spawns(world, id)[1] for id in "ab"]
    world.stop()
    for spare in spares:
        assert world.closed[spare] == Close(spare, reason=REASON)
    assert len(spawns(world)) == 4


@pytest.mark.parametrize(("cause", "said"), CAUSES)
def test_a_process_that_dies_in_reserve_is_a_failure_of_its_server(cause: Cause, said: str) -> None:
    world = reserve(2, 1)
    spare = spawns(world, "a")[1]
    world.end(spare, cause)
    assert world.last(Note) == Note("warning", f"a spare process is gone: {said}", "a")
    assert (status(world).failures, status(world).last_error, status(world).spares) == (1, said, 1)
    assert status(world).processes == 2
    assert status(world, "b").failures == 0


def test_the_reserve_is_filled_no_further_than_the_server_fares_well() -> None:
    """Where it is left alone after failures, nothing more is started in advance."""
    world = reserve(2, limits=Limits(crash_loop_failures=2))
    first, second = spawns(world)[1:]
    newcomer(world, "http", "a").initialize()
    world.open(first, Connected())
    greeting = world.hear("initialize")
    world.end(second, Cause(End.BROKEN, "one"))
    assert status(world).spares == 0
    world.answer(greeting, HANDSHAKE)
    assert status(world).spares == 2, "one failure is none in a row"
    for spare in spawns(world)[-2:]:
        world.end(spare, Cause(End.BROKEN, "two"))
    newcomer(world, "http", "a").initialize()
    assert len(spawns(world)) == 5
    world.wait(60)
    world.heard.clear()
    raise_server(world, "a")
    assert status(world).spares == 2


def test_the_number_of_all_processes_is_bounded_and_room_is_found_again() -> None:
    """Those in reserve count, and what has ended does not."""
    world = reserve(3, limits=Limits(children_max=3))
    assert status(world).spares == 2
    for _ in range(2):
        newcomer(world, "http", "a").initialize()
    refused = newcomer(world, "http", "a").initialize()
    text = world.said(refused)["error"]["message"]
    assert "3 server processes run, the most allowed; try again later" in text
    world.end(spawns(world)[1], Cause(End.BROKEN, "exited"))
    newcomer(world, "http", "a").initialize()
    assert len(spawns(world)) == 4


def test_a_process_that_was_taken_from_the_reserve_is_no_spare_any_more() -> None:
    """Its end is that of its session's server."""
    world = reserve(1)
    spare = spawns(world)[1]
    channel = newcomer(world, "http", "a").initialize()
    world.end(spare, Cause(End.BROKEN, "exited with 1"))
    assert "exited with 1" in world.said(channel)["error"]["message"]
    assert not any("spare" in text for text in world.notes("warning"))
    assert status(world).processes == 1
