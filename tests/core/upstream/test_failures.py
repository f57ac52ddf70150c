"""What is left of a server that was lost: nothing that waits for it, and every open request accounted for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from driving import Client, Driver, connect, driver, newcomer, request
from isthmus.core.base.effects import Cause, Connected, Dial, End, Listen, Note, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.status import Command, Status
from isthmus.core.upstream.failures import TIMERS
from stateless_driving import bridge, emerge, modern, rise, served, tables
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
    world.answer(world.hear("initialize"), HANDSHAKE)
    world.hear("notifications/initialized")


def status(world: Driver, id: str) -> Status:
    return next(one for one in world.engine.report() if one.id == id)


def order(world: Driver, command: Command) -> None:
    for one in world.engine.report():
        world._note(world.engine.receive_command(one.id, command, world.now))


# --- What waits -----------------------------------------------------------------------------------------------------


def timers(world: Driver) -> set[str]:
    """The purposes of all that is waited for, of links."""
    return {purpose for purpose, _ in tables(world.engine)["timers"]} & set(TIMERS)


def starting() -> Driver:
    world = driver()
    newcomer(world, "http", "pipe").initialize()
    return world


def probed() -> Driver:
    world = bridge()
    modern(world, "pipe").call()
    world.open(child(world), Connected())
    return world


def listening() -> Driver:
    world = driver()
    newcomer(world, "http", "http").initialize()
    world.answer(world.hear("initialize"), HANDSHAKE, session="S1")
    world.acknowledge(world.hear("notifications/initialized"))
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
    assert both.world.hears("tools/list")
    return both.world


def subscribing() -> Driver:
    world = bridge()
    client = modern(world, "pipe")
    client.request("server/discover")
    emerge(world)
    client.request("subscriptions/listen", notifications={"toolsListChanged": True})
    return world


def idle() -> Driver:
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, idle_stop_s=60.0))
    client = connect(world, "pipe", "pipe")
    client.request("1", "ping")
    client.request("2", "tools/list")
    world.answer(world.hear("tools/list"))
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
def test_nothing_is_waited_for_of_a_server_that_was_stopped(purpose: str) -> None:
    """Whatever it was that was waited for."""
    world = WAITING[purpose]()
    assert purpose in timers(world)
    order(world, Command.STOP)
    assert not timers(world)


# --- What is told ---------------------------------------------------------------------------------------------------


def test_a_loss_is_noted_with_its_reason_and_counted_as_what_it_is() -> None:
    """One that had worked is no failure; one that did not come up is, whosever it is."""
    world = driver()
    connect(world, "http", "pipe")
    before = len(world.log)
    world.end(child(world), DIED)
    told = [effect for effect in world.log[before:] if isinstance(effect, Note)]
    (lost,) = [note for note in told if note.text.startswith("upstream lost")]
    assert (lost.level, lost.server) == ("warning", "pipe")
    assert lost.text.endswith("exited with code 1")
    now = status(world, "pipe")
    assert now.failures == 0
    assert now.last_error.endswith("exited with code 1")
    newcomer(world, "http", "http").initialize()
    world.end(world.hear("initialize").channel, Cause(End.UNREACHABLE, "connection refused"))
    now = status(world, "http")
    assert (now.state, now.failures) == ("failed", 1)
    assert "connection refused" in now.last_error


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_what_may_have_run_is_of_unknown_outcome_even_if_it_waits_again(method: str) -> None:
    """A request that only reads is sent again; where that cannot be, it may have run all the same."""
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.request("1", method, "{}")
    fresh = None
    world.end(child(world), DIED)
    if method == "tools/list":
        assert not world.messages(channel)
        fresh = client.request("2", "tools/call", "{}")
        world.end(child(world), DIED)
    said = world.said(channel)["error"]
    assert (said["code"], said["data"]) == (-31001, {"outcome": "unknown"})
    assert said["message"].endswith(f"exited with code 1. {method} may have run; it is not repeated")
    if fresh is not None:
        said = world.said(fresh)["error"]
        assert (said["code"], said["data"]) == (-31004, {"outcome": "not_executed"})
        assert said["message"].startswith("the server could not be started: ")


def test_what_waited_to_be_sent_goes_up_when_the_server_is_back() -> None:
    """It had not been sent: it waited for the server to be told how much to log."""
    world, client, _ = served()
    channel = client.call(level="debug")
    world.hear("logging/setLevel")
    world.end(child(world), DIED)
    rise(world)
    world.answer(world.hear("logging/setLevel"))
    world.answer(world.hear("tools/call"), '{"content":[]}')
    assert client.answered(channel)["result"]["content"] == []


# --- A shared process -----------------------------------------------------------------------------------------------


def shared(sharing: Sharing, count: int) -> tuple[Driver, list[Client]]:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing))
    clients = [newcomer(world, "pipe", "s") for _ in range(count)]
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
    """The one that ran is of unknown outcome; the others run one after the other, before what came later."""
    world, clients = shared(Sharing.SERIAL, 4)
    for number, client in enumerate(clients[:3]):
        client.request("1", "tools/call", named(str(number)))
    world.hear("tools/call")
    world.end(child(world), DIED)
    assert last(world, clients[0])["error"]["data"] == {"outcome": "unknown"}  # type: ignore[index]
    clients[3].request("1", "tools/call", named("3"))
    up_again(world)
    for number in (1, 2, 3):
        call = world.hear("tools/call")
        assert not world.hears("tools/call"), "one at a time"
        assert call.frame["params"] == {"name": str(number)}
        world.answer(call)
        assert "result" in last(world, clients[number])
    assert not world.heard


def test_turns_are_taken_in_the_order_of_the_calls() -> None:
    world, clients = shared(Sharing.SERIAL, 4)
    for number, client in enumerate(clients):
        client.request("1", "tools/call", named(str(number)))
    for number in range(4):
        call = world.hear("tools/call")
        assert call.frame["params"] == {"name": str(number)}
        world.answer(call)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_call_that_was_cancelled_asks_nothing_of_another_process(is_lost: bool) -> None:
    """Of the one that had it, it may; so a question there could be anybody's."""
    world, (first, second) = shared(Sharing.CONCURRENT, 2)
    first.request("1", "tools/call", named("a"))
    world.hear("tools/call")
    first.notify("notifications/cancelled", '{"requestId":1}')
    world.hear("notifications/cancelled")
    if is_lost:
        world.end(child(world), DIED)
        second.request("0", "tools/list")
        up_again(world)
        world.answer(world.hear("tools/list"))
    second.request("1", "tools/call", named("b"))
    world.hear("tools/call")
    world.say(child(world), request('"q"', "elicitation/create", '{"message":"m","requestedSchema":{}}'))
    if is_lost:
        assert last(world, second)["method"] == "elicitation/create"
    else:
        assert "error" in world.hear("").frame


@pytest.mark.parametrize("sharing", [Sharing.NONE, Sharing.CONCURRENT])
def test_who_waits_for_a_first_start_learns_that_it_failed(sharing: Sharing) -> None:
    """Nothing is started again for that, and nobody is kept."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing))
    channels = [newcomer(world, "http", "s").initialize() for _ in range(2)]
    count = spawned(world)
    for dial in [dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)]:
        world.end(dial.channel, DIED)
    for channel in channels:
        said = world.said(channel)["error"]
        assert said["code"] == -31004
        assert said["message"] == "the server could not be started: exited with code 1"
        assert said["data"]["outcome"] == "not_executed"
    assert spawned(world) == count
    assert not timers(world) - {"linger"}


# --- Bringing it back -----------------------------------------------------------------------------------------------


def awaited(up: str) -> tuple[Driver, Client]:
    """A server that somebody waits for news of."""
    world = driver(limits=Limits(restart_backoff_s=4.0, restart_backoff_max_s=8.0))
    client = connect(world, "http", up, listens=up == "http")
    client.request("9", "resources/subscribe", '{"uri":"a:b"}')
    world.answer(world.hear("resources/subscribe"))
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


def test_who_forgets_its_sessions_again_and_again_is_not_kept_busy() -> None:
    """The first time a new one is made at once, then after a pause."""
    world, client = awaited("http")

    def greetings() -> int:
        return len([heard for heard in world.heard if heard.frame.get("method") == "initialize"])

    def forget() -> None:
        stream = world.last_dial(Listen).channel
        world.end(stream, FORGOTTEN)

    forget()
    assert greetings() == 1
    world.shake_hands(session="S2", listens=True)
    world.answer(world.hear("resources/subscribe"))
    forget()
    assert greetings() == 0
    world.wait(3.9)
    assert greetings() == 0
    world.wait(0.1)
    assert greetings() == 1
    assert client.session is not None


def test_the_report_of_a_stopped_server_holds_nothing_of_it() -> None:
    scenes: list[Callable[[], Driver]] = [*WAITING.values()]
    for scene in scenes:
        world = scene()
        order(world, Command.STOP)
        for one in world.engine.report():
            assert one.state == "stopped"
            assert one.in_flight == 0
