"""Tests of the warm pool: which sessions get a warm process, when the pool is filled up, and what ends its
processes."""

from __future__ import annotations

import pytest
from driving import Client, Driver, driver, new_client
from isthmus.core.base.effects import Close, Dial, Note, Spawn
from isthmus.core.base.events import Cause, Connected, End, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, ServerPlan
from isthmus.core.status import Command, Status
from isthmus.core.upstream.warm_pool import LOOK_S, REFILL_WITHIN_S, TRIAL_S

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
REASON = "it is not needed any more"
IDLE_S = Limits().spare_idle_s


CAUSES = [(Cause(End.BROKEN, "exited with 1"), "exited with 1"), (Cause(End.GONE), "gone")]


def spawns(world: Driver, id: str | None = None) -> list[ChannelId]:
    """The channels of the processes that were started, the oldest first."""
    dials = [dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)]
    return [dial.channel for dial in dials if id in (None, dial.target.server)]


def start_server(world: Driver, id: str) -> Client:
    """Starts a server for a new client, after which its pool is filled."""
    client = new_client(world, "http", id)
    channel = client.initialize()
    world.open(spawns(world, id)[-1], Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")
    client.session = world.sent[channel][-1].session
    return client


def status(world: Driver, id: str = "a") -> Status:
    return next(one for one in world.engine.report() if one.id == id)


def order(world: Driver, command: Command, id: str = "a") -> None:
    world._note(world.engine.receive_command(id, command, world.now))


def pools(*counts: int, limits: Limits | None = None) -> Driver:
    """Returns servers "a", "b" … with pools of so many warm processes, each server started once."""
    plans = [ServerPlan(id=id, kind=Kind.PIPE, spares=count) for id, count in zip("abc", counts, strict=False)]
    world = driver(*plans, limits=limits)
    for plan in plans:
        start_server(world, plan.id)
    return world


def test_each_server_has_a_pool_of_its_own() -> None:
    """A pool has as many processes as the plan says, which count as starts and as processes."""
    world = pools(2, 0, 1)
    assert [len(spawns(world, id)) for id in "abc"] == [3, 1, 2]
    reported = [(one.spares, one.processes, one.starts) for one in world.engine.report()]
    assert reported == [(2, 3, 3), (0, 1, 1), (1, 2, 2)]


@pytest.mark.parametrize("command", [Command.STOP, Command.RESTART])
def test_an_order_for_one_server_ends_the_warm_processes_of_that_server_only(command: Command) -> None:
    world = pools(2, 1)
    processes = spawns(world, "a")[1:]
    order(world, command)
    for warm in processes:
        assert world.closed[warm] == Close(warm, reason=REASON)
    assert not set(spawns(world, "b")) & world.closed.keys()
    for warm in processes:
        world.end(warm)
    assert not any("spare" in text for text in world.notes("warning")), "it was ended, and did not fail"
    assert status(world).failures == 0
    assert [status(world, id).spares for id in "ab"] == [0 if command is Command.STOP else 2, 1]


def test_a_stop_of_all_ends_every_warm_process_and_starts_none() -> None:
    world = pools(1, 1)
    processes = [spawns(world, id)[1] for id in "ab"]
    world.stop()
    for warm in processes:
        assert world.closed[warm] == Close(warm, reason=REASON)
    assert len(spawns(world)) == 4


@pytest.mark.parametrize(("cause", "text"), CAUSES)
def test_a_warm_process_that_dies_is_a_failure_of_its_server(cause: Cause, text: str) -> None:
    world = pools(2, 1)
    warm = spawns(world, "a")[1]
    world.end(warm, cause)
    assert world.last(Note) == Note("warning", f"a spare process is gone: {text}", "a")
    assert (status(world).failures, status(world).last_error, status(world).spares) == (1, text, 1)
    assert status(world).processes == 2
    assert status(world, "b").failures == 0


def test_the_pool_is_not_filled_after_failures_in_a_row() -> None:
    """No process is started in advance while the server is left alone after failures."""
    world = pools(2, limits=Limits(crash_loop_failures=2))
    first, second = spawns(world)[1:]
    new_client(world, "http", "a").initialize()
    world.open(first, Connected())
    initial = world.take_sent("initialize")
    world.end(second, Cause(End.BROKEN, "one"))
    assert status(world).spares == 0
    world.answer(initial, HANDSHAKE)
    assert status(world).spares == 2, "one failure is none in a row"
    for warm in spawns(world)[-2:]:
        world.end(warm, Cause(End.BROKEN, "two"))
    new_client(world, "http", "a").initialize()
    assert len(spawns(world)) == 5
    world.wait(60)
    world.unread.clear()
    start_server(world, "a")
    assert status(world).spares == 2


def test_the_number_of_all_processes_is_bounded() -> None:
    """Warm processes count, and ended ones do not."""
    world = pools(3, limits=Limits(children_max=3))
    assert status(world).spares == 2
    for _ in range(2):
        new_client(world, "http", "a").initialize()
    refused = new_client(world, "http", "a").initialize()
    text = world.only_message(refused)["error"]["message"]
    assert "3 server processes run, the most allowed; try again later" in text
    world.end(spawns(world)[1], Cause(End.BROKEN, "exited"))
    new_client(world, "http", "a").initialize()
    assert len(spawns(world)) == 4


def test_a_process_that_was_taken_from_the_pool_is_no_warm_process_any_more() -> None:
    """The process may have ended while it waited, so another one is started once. The end of that one is the
    server's."""
    world = pools(1)
    warm = spawns(world)[1]
    channel = new_client(world, "http", "a").initialize()
    world.end(warm, Cause(End.BROKEN, "exited with 1"))
    assert not world.sent[channel]
    world.end(spawns(world)[2], Cause(End.BROKEN, "exited with 2"))
    assert "exited with 2" in world.only_message(channel)["error"]["message"]
    assert not any("spare" in text for text in world.notes("warning"))
    assert status(world).processes == 1


# --- Spare processes on trial -----------------------------------------------------------------------------------------


def on_trial(*, limits: Limits | None = None, is_started: bool = True) -> Driver:
    """Returns a server whose spare process is on trial, started once."""
    world = driver(ServerPlan(id="a", kind=Kind.PIPE, spares=1, spares_on_trial=True), limits=limits)
    if is_started:
        start_server(world, "a")
    return world


def is_given_up(world: Driver) -> bool:
    """True if no process is kept ready any more."""
    world.wait(TRIAL_S)
    start_server(world, "a")
    return status(world).spares == 0


def test_after_a_brief_session_the_spare_process_waits_for_the_end_of_its_process() -> None:
    world = on_trial(is_started=False)
    probe = Client(world, "a", world.engine.new_channel())
    assert probe.pipe is not None
    world.open(probe.pipe, PipeOpening("a", is_own=True, is_brief=True))
    probe.initialize()
    (first,) = spawns(world)
    world.open(first, Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    assert len(spawns(world)) == 1
    world.end(probe.pipe, Cause(End.GONE))
    world.end(first, Cause(End.GONE, "stopped"))
    assert len(spawns(world)) == 2
    new_client(world, "http", "a").initialize()
    assert len(spawns(world)) == 2, "the first client gets it"


def test_a_spare_process_is_stopped_that_no_session_needs() -> None:
    world = on_trial()
    spare = spawns(world)[1]
    world.wait(IDLE_S - 1)
    assert spare not in world.closed
    world.wait(1)
    assert world.closed[spare] == Close(spare, reason=REASON)
    world.end(spare)
    assert status(world).spares == 0
    assert not is_given_up(world), "the next session starts one again"


def test_a_process_that_was_taken_is_not_stopped_as_a_spare_one() -> None:
    world = on_trial()
    spare = spawns(world)[1]
    world.open(spare, Connected())
    new_client(world, "http", "a").initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.end(spawns(world)[2])
    world.wait(IDLE_S)
    assert world.closed.get(spare) != Close(spare, reason=REASON)


@pytest.mark.parametrize("cause", [cause for cause, _ in CAUSES])
def test_none_is_kept_once_a_spare_process_has_ended_by_itself(cause: Cause) -> None:
    """The end of a process on trial is no failure of the server."""
    world = on_trial()
    world.end(spawns(world)[1], cause)
    assert (status(world).failures, status(world).spares) == (0, 0)
    assert not world.notes("warning")
    assert is_given_up(world)
    order(world, Command.RESTART)
    assert status(world).spares == 1, "an operator has started the server"


def test_a_spare_process_that_this_machine_had_no_room_for_says_nothing() -> None:
    world = on_trial()
    world.end(spawns(world)[1], Cause(End.UNREACHABLE, "no memory", is_ours=True))
    assert status(world).spares == 0
    assert not is_given_up(world)


@pytest.mark.parametrize("later_s", [0.0, TRIAL_S])
def test_none_is_kept_if_a_session_loses_its_process_when_a_spare_one_is_started(later_s: float) -> None:
    world = on_trial()
    first, spare = spawns(world)
    world.wait(later_s)
    world.end(first, Cause(End.BROKEN, "the port was taken from it"))
    assert (spare in world.closed) is (later_s == 0)
    assert is_given_up(world) is (later_s == 0)


def test_a_process_that_does_not_start_beside_a_spare_one_starts_without_it() -> None:
    """A session with files needs a process in its own folders, so it cannot take the spare one."""
    producers = (ArtifactProducer(tools=("t",), output_path_argument="p"),)
    world = driver(ServerPlan(id="a", kind=Kind.PIPE, spares=1, spares_on_trial=True, producers=producers))
    client = start_server(world, "a")
    first, spare = spawns(world)
    world.wait(TRIAL_S)
    world.end(first, Cause(End.BROKEN, "crashed"))
    client.request("5", "tools/call", '{"name":"u"}')
    third = spawns(world)[2]
    world.end(third, Cause(End.BROKEN, "the lock is taken"))
    assert world.closed[spare] == Close(spare, reason=REASON)
    world.end(spare)
    assert len(spawns(world)) == 4, "it is started again once the spare one is gone"


def test_spare_processes_on_trial_leave_half_of_the_room_to_sessions() -> None:
    world = on_trial(limits=Limits(children_max=4))
    assert status(world).spares == 1
    spare = spawns(world)[1]
    world.open(spare, Connected())
    new_client(world, "http", "a").initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    assert status(world).spares == 0, "two processes serve sessions"


def test_spare_processes_make_room_for_sessions() -> None:
    plans = [ServerPlan(id=id, kind=Kind.PIPE, spares=1, spares_on_trial=True) for id in "ab"]
    world = driver(*plans, limits=Limits(children_max=6))
    start_server(world, "a")
    spare = spawns(world, "a")[1]
    start_server(world, "b")
    assert spare in world.closed
    assert [status(world, id).spares for id in "ab"] == [0, 0]


@pytest.mark.parametrize("is_ready", [True, False])
def test_spare_processes_on_trial_wait_for_those_that_start_for_sessions(is_ready: bool) -> None:
    """The wait is bounded, because a server may start for ever."""
    plans = [ServerPlan(id=id, kind=Kind.PIPE, spares=1, spares_on_trial=True) for id in "ab"]
    world = driver(*plans)
    slow = new_client(world, "http", "b")
    slow.initialize()
    start_server(world, "a")
    world.wait(2 * LOOK_S)
    assert status(world).spares == 0
    if is_ready:
        world.open(spawns(world, "b")[0], Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
        assert status(world, "b").spares == 1, "no other process starts for a session"
        world.wait(LOOK_S)
    else:
        world.wait(REFILL_WITHIN_S - 2 * LOOK_S - 0.1)
        assert status(world).spares == 0
        world.wait(2 * LOOK_S)
    assert status(world).spares == 1


def test_a_spare_process_that_waits_is_not_started_for_a_server_that_is_stopped() -> None:
    plans = [ServerPlan(id=id, kind=Kind.PIPE, spares=1, spares_on_trial=True) for id in "ab"]
    world = driver(*plans)
    new_client(world, "http", "b").initialize()
    start_server(world, "a")
    order(world, Command.STOP)
    world.wait(2 * REFILL_WITHIN_S)
    assert status(world).spares == 0
