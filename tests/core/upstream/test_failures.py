"""Tests of the loss of a server: no timer for it remains, every open request is answered, and the server is brought
back after pauses."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from driving import Client, Driver, connect, driver, new_client, request
from isthmus.core.base.effects import Dial, Listen, Note, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.status import Command, Status
from isthmus.core.upstream.failures import TIMERS
from stateless_driving import bridge, modern, served, start_legacy_server, start_stateless_server, tables
from stateless_server import pair

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{}}'
DIED = Cause(End.BROKEN, "exited with code 1")
FORGOTTEN = Cause(End.REFUSED, status=404)


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def spawned(world: Driver) -> int:
    return len([dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)])


def up_again(world: Driver) -> None:
    world.open(child(world), Connected())
    world.answer(world.take_sent("initialize"), HANDSHAKE)
    world.take_sent("notifications/initialized")


def status(world: Driver, id: str) -> Status:
    return next(one for one in world.engine.report() if one.id == id)


def order(world: Driver, command: Command) -> None:
    for one in world.engine.report():
        world._note(world.engine.receive_command(one.id, command, world.now))


# --- Timers -----------------------------------------------------------------------------------------------------------


def timers(world: Driver) -> set[str]:
    """The purposes of the timers of links that run."""
    return {purpose for purpose, _ in tables(world.engine)["timers"]} & set(TIMERS)


def starting() -> Driver:
    world = driver()
    new_client(world, "http", "pipe").initialize()
    return world


def probed() -> Driver:
    world = bridge()
    modern(world, "pipe").call()
    world.open(child(world), Connected())
    return world


def listening() -> Driver:
    world = driver()
    new_client(world, "http", "http").initialize()
    world.answer(world.take_sent("initialize"), HANDSHAKE, session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    return world


def relistening() -> Driver:
    world = driver()
    connect(world, "http", "http", listens=True)
    world.end(world.last_dial(Listen).channel, Cause(End.BROKEN))
    return world


def levelling() -> Driver:
    world, client, _ = served()
    client.call(level="debug")
    return world


def learning() -> Driver:
    both = pair()
    both.client.request("1", "tools/call", '{"name":"t"}')
    assert both.world.was_sent("tools/list")
    return both.world


def subscribing() -> Driver:
    world = bridge(ServerPlan(id="pipe", kind=Kind.PIPE, tools=NameFilter(exclude=("hidden",))))
    client = modern(world, "pipe")
    client.request("server/discover")
    start_stateless_server(world)
    client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    return world


def idle() -> Driver:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, idle_stop_s=60.0))
    client = connect(world, "pipe", "pipe")
    client.request("1", "ping")
    client.request("2", "tools/list")
    world.answer(world.take_sent("tools/list"))
    return world


WAITING = {
    "start": starting,
    "probe": probed,
    "listening": listening,
    "relisten": relistening,
    "level": levelling,
    "schemas": learning,
    "news": subscribing,
    "rest": idle,
}


@pytest.mark.parametrize("purpose", WAITING)
def test_a_stopped_server_leaves_no_timer(purpose: str) -> None:
    """The stop removes a link's timer, whichever of them was running."""
    world = WAITING[purpose]()
    assert purpose in timers(world)
    order(world, Command.STOP)
    assert not timers(world)


# --- Reports and errors -----------------------------------------------------------------------------------------------


def test_a_lost_server_is_noted_with_the_reason_and_a_failed_start_is_counted() -> None:
    """The loss of a server that had worked is not counted as a failure. One that does not come up is, whether it is a
    process or over HTTP."""
    world = driver()
    connect(world, "http", "pipe")
    before = len(world.log)
    world.end(child(world), DIED)
    notes = [effect for effect in world.log[before:] if isinstance(effect, Note)]
    (lost,) = [note for note in notes if note.text.startswith("upstream lost")]
    assert (lost.level, lost.server) == ("warning", "pipe")
    assert lost.text.endswith("exited with code 1")
    now = status(world, "pipe")
    assert now.failures == 0
    assert now.last_error.endswith("exited with code 1")
    new_client(world, "http", "http").initialize()
    world.end(world.take_sent("initialize").channel, Cause(End.UNREACHABLE, "connection refused"))
    now = status(world, "http")
    assert (now.state, now.failures) == ("failed", 1)
    assert "connection refused" in now.last_error


def test_a_handshake_without_a_login_is_no_warning() -> None:
    """The driver tells a person once, and each handshake until then ends so."""
    levels = []
    for login in (b"", b'{"command":"isthmus login http"}'):
        world = driver()
        new_client(world, "http", "http").initialize()
        refusal = Cause(End.REFUSED, "log in", 401, challenge="Bearer", login=login)
        world.end(world.take_sent("initialize").channel, refusal)
        notes = [effect for effect in world.log if isinstance(effect, Note) and "upstream lost" in effect.text]
        levels += [note.level for note in notes]
    assert levels == ["warning", "info"]


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_a_request_that_may_have_run_has_an_unknown_outcome_even_if_it_is_queued_again(method: str) -> None:
    """A request that only reads is sent again. If it cannot be, its outcome is unknown all the same, because it may
    have run."""
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", method, "{}")
    fresh = None
    world.end(child(world), DIED)
    if method == "tools/list":
        assert not world.messages(channel)
        fresh = client.request("2", "tools/call", "{}")
        world.end(child(world), DIED)
    error = world.only_message(channel)["error"]
    assert (error["code"], error["data"]) == (-31001, {"outcome": "unknown"})
    assert error["message"].endswith(f"exited with code 1. {method} may have run; it is not repeated")
    if fresh is not None:
        error = world.only_message(fresh)["error"]
        assert (error["code"], error["data"]) == (-31004, {"outcome": "not_executed"})
        assert error["message"].startswith("the server could not be started: ")


def test_a_call_that_was_not_sent_yet_is_sent_when_the_server_is_back() -> None:
    """The call had not been sent, because it waited for the server to confirm `logging/setLevel`."""
    world, client, _ = served()
    channel = client.call(level="debug")
    world.take_sent("logging/setLevel")
    world.end(child(world), DIED)
    start_legacy_server(world)
    world.answer(world.take_sent("logging/setLevel"))
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert client.answered(channel)["result"]["content"] == []


# --- A shared process -------------------------------------------------------------------------------------------------


def shared(sharing: Sharing, count: int) -> tuple[Driver, list[Client]]:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing))
    clients = [new_client(world, "pipe", "s") for _ in range(count)]
    for number, client in enumerate(clients):
        able = '{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}'
        client.initialize(able)
        if number == 0:
            up_again(world)
        client.notify("notifications/initialized")
        world.sent[client.pipe or ChannelId(0)].clear()
    return world, clients


def last(world: Driver, client: Client) -> dict[str, object]:
    frame = json.loads(world.messages(client.pipe or ChannelId(0))[-1])
    assert isinstance(frame, dict)
    return frame


def named(text: str) -> str:
    return json.dumps({"name": text})


def test_calls_that_waited_their_turn_keep_their_order_through_a_loss() -> None:
    """The call that ran has an unknown outcome. The others run one after the other, before a later one."""
    world, clients = shared(Sharing.SERIAL, 4)
    for number, client in enumerate(clients[:3]):
        client.request("1", "tools/call", named(str(number)))
    world.take_sent("tools/call")
    world.end(child(world), DIED)
    assert last(world, clients[0])["error"]["data"] == {"outcome": "unknown"}  # type: ignore[index]
    clients[3].request("1", "tools/call", named("3"))
    up_again(world)
    for number in (1, 2, 3):
        call = world.take_sent("tools/call")
        assert not world.was_sent("tools/call"), "one at a time"
        assert call.frame["params"] == {"name": str(number)}
        world.answer(call)
        assert "result" in last(world, clients[number])
    assert not world.unread


def test_turns_are_taken_in_the_order_of_the_calls() -> None:
    world, clients = shared(Sharing.SERIAL, 4)
    for number, client in enumerate(clients):
        client.request("1", "tools/call", named(str(number)))
    for number in range(4):
        call = world.take_sent("tools/call")
        assert call.frame["params"] == {"name": str(number)}
        world.answer(call)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_cancelled_call_cannot_ask_in_the_next_process(is_lost: bool) -> None:
    """A cancelled call may still ask in the process that had it, so a question there could belong to either client. In
    the next process only the open call can ask."""
    world, (first, second) = shared(Sharing.CONCURRENT, 2)
    first.request("1", "tools/call", named("a"))
    world.take_sent("tools/call")
    first.notify("notifications/cancelled", '{"requestId":1}')
    world.take_sent("notifications/cancelled")
    if is_lost:
        world.end(child(world), DIED)
        second.request("0", "tools/list")
        up_again(world)
        world.answer(world.take_sent("tools/list"))
    second.request("1", "tools/call", named("b"))
    world.take_sent("tools/call")
    world.send(child(world), request('"q"', "elicitation/create", '{"message":"m","requestedSchema":{}}'))
    if is_lost:
        assert last(world, second)["method"] == "elicitation/create"
    else:
        assert "error" in world.take_sent("").frame


@pytest.mark.parametrize("sharing", [Sharing.NONE, Sharing.CONCURRENT])
def test_each_client_that_waits_for_a_first_start_gets_its_failure(sharing: Sharing) -> None:
    """Each client gets an error, no process is started again, and no link is kept."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing))
    channels = [new_client(world, "http", "s").initialize() for _ in range(2)]
    count = spawned(world)
    for dial in [dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)]:
        world.end(dial.channel, DIED)
    for channel in channels:
        error = world.only_message(channel)["error"]
        assert error["code"] == -31004
        assert error["message"] == "the server could not be started: exited with code 1"
        assert error["data"]["outcome"] == "not_executed"
    assert spawned(world) == count
    assert not timers(world) - {"linger"}


# --- Bringing it back -------------------------------------------------------------------------------------------------


def awaited(up: str) -> tuple[Driver, Client]:
    """Returns a server that a client has a subscription with."""
    world = driver(limits=Limits(restart_backoff_s=4.0, restart_backoff_max_s=8.0))
    client = connect(world, "http", up, listens=up == "http")
    client.request("9", "resources/subscribe", '{"uri":"a:b"}')
    world.answer(world.take_sent("resources/subscribe"))
    return world, client


def test_a_process_that_does_not_come_back_is_started_after_a_pause_each_time() -> None:
    world, _ = awaited("pipe")
    world.end(child(world), DIED)
    counts = []
    for pause in (4.0, 8.0, 8.0):
        world.end(child(world), DIED)
        before = spawned(world)
        world.wait(pause - 0.1)
        counts.append(spawned(world) - before)
        world.wait(0.1)
        counts.append(spawned(world) - before)
    assert counts == [0, 1] * 3


def test_a_server_that_forgets_its_sessions_again_and_again_gets_pauses() -> None:
    """The first new session is made at once, the next one after a pause."""
    world, client = awaited("http")

    def initialize_count() -> int:
        return len([received for received in world.unread if received.frame.get("method") == "initialize"])

    def forget() -> None:
        stream = world.last_dial(Listen).channel
        world.end(stream, FORGOTTEN)

    forget()
    assert initialize_count() == 1
    world.start_server(session="S2", listens=True)
    world.answer(world.take_sent("resources/subscribe"))
    forget()
    assert initialize_count() == 0
    world.wait(3.9)
    assert initialize_count() == 0
    world.wait(0.1)
    assert initialize_count() == 1
    assert client.session is not None


def test_the_report_of_a_stopped_server_has_nothing_in_flight() -> None:
    scenes: list[Callable[[], Driver]] = [*WAITING.values()]
    for scene in scenes:
        world = scene()
        order(world, Command.STOP)
        for one in world.engine.report():
            assert one.state == "stopped"
            assert one.in_flight == 0
