"""Tests of the channels to servers: when a stream that ended is opened again, and what else follows from the end of a
channel."""

from __future__ import annotations

import pytest
from driving import DONE, Client, Driver, connect, driver, new_client, notification
from isthmus.core.base.effects import Dial, Listen, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import ArtifactProducer, Kind, ServerPlan
from isthmus.core.base.storage import Sweep
from stateless_server import discovered, failure, modern_call, refused

CHANGE = notification("notifications/tools/list_changed")


def listening() -> tuple[Driver, Client, ChannelId]:
    """Returns a client of a server over HTTP, which has a stream."""
    world = driver()
    client = connect(world, "http", "http", listens=True)
    return world, client, world.last_dial(Listen).channel


def listens(world: Driver) -> list[Listen]:
    return [dial.target for dial in world.dials if isinstance(dial.target, Listen)]


def reopened(world: Driver) -> tuple[float, str | None]:
    """Waits until the stream is opened again. Returns the seconds until then, and the id of the last event."""
    count, began = len(listens(world)), world.now
    while len(listens(world)) == count:
        due = world.engine.next_timeout()
        assert due is not None and due.at < began + 100.0, "it is not opened again"
        world.wait(due.at - world.now)
    return round(world.now - began, 3), listens(world)[-1].last_event_id


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (204, False),
        (300, True),
        (399, True),
        (400, True),
        (401, True),
        (403, True),
        (405, False),
        (410, True),
        (429, True),
        (499, True),
        (500, True),
        (503, True),
    ],
)
def test_a_declined_stream_is_not_opened_again(status: int, again: bool) -> None:
    """A server may offer no stream. After any other refusal it is asked once more."""
    world, _, stream = listening()
    count = len(listens(world))
    world.end(stream, Cause(End.REFUSED, status=status))
    world.wait(60.0)
    assert len(listens(world)) == count + again
    assert world.engine.session_count == 1


def test_a_refused_resumption_is_followed_by_a_new_stream() -> None:
    """A refused resumption is followed by a new stream: the missed events are gone, but new ones may come."""
    world, _, stream = listening()
    world.end(stream, Cause(End.BROKEN, last_event_id="e"))
    assert reopened(world) == (1.0, "e")
    for last_event_id in (None, "gone"):
        if last_event_id is None:
            world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=405))
            assert reopened(world)[1] is None
        else:
            count = len(listens(world))
            world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=405))
            world.wait(60.0)
            assert len(listens(world)) == count


@pytest.mark.parametrize(
    ("retry_ms", "is_silent", "pauses"),
    [
        (None, True, [1.0, 1.0, 1.0, 1.0, 1.6, 3.2, 6.4]),
        (None, False, [1.0, 1.0, 1.0]),
        (100, True, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (100, False, [0.1, 0.1, 0.1]),
        (10, False, [0.1, 0.1]),
        (2000, True, [2.0, 2.0, 2.0]),
        (90_000, False, [60.0, 60.0]),
    ],
)
def test_a_stream_is_opened_again_after_the_retry_time(
    retry_ms: int | None, is_silent: bool, pauses: list[float]
) -> None:
    """The server's retry time is the pause, which grows each time for a stream that brings nothing."""
    world, _, _ = listening()
    found = []
    for number in range(len(pauses)):
        stream = world.last_dial(Listen).channel
        if number:
            world.open(stream, Connected())
        if not is_silent:
            world.send(stream, CHANGE)
        world.end(stream, Cause(End.DONE, retry_ms=retry_ms, last_event_id=f"e{number}"))
        pause_s, event_id = reopened(world)
        assert event_id == f"e{number}"
        found.append(pause_s)
    assert found == pauses


def test_an_event_makes_the_pauses_short_again() -> None:
    world, _, _ = listening()
    found = []
    for is_silent in (True, True, True, False, True):
        stream = world.last_dial(Listen).channel
        world.open(stream, Connected())
        if not is_silent:
            world.send(stream, CHANGE)
        world.end(stream, Cause(End.DONE, retry_ms=100))
        found.append(reopened(world)[0])
    assert found == [0.1, 0.2, 0.4, 0.1, 0.1]


def test_after_so_many_failures_a_new_stream_is_opened() -> None:
    """The event may be the very cause of the failures. The pause grows each time, up to a bound."""
    world, _, stream = listening()
    world.end(stream, Cause(End.BROKEN, last_event_id="e"))
    found = []
    for _ in range(8):
        found.append(reopened(world))
        world.end(world.last_dial(Listen).channel, Cause(End.UNREACHABLE))
    ids = [event_id for _, event_id in found]
    assert [pause_s for pause_s, _ in found] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert ids == ["e"] * 5 + [None] * 3


def test_a_stream_on_a_stale_connection_is_opened_again_at_once_and_only_once() -> None:
    world, _, stream = listening()
    stale = Cause(End.BROKEN, stale=True)
    count = len(listens(world))
    world.end(stream, stale)
    assert len(listens(world)) == count + 1
    world.end(world.last_dial(Listen).channel, stale)
    assert len(listens(world)) == count + 1
    assert reopened(world)[0] == 1.0


def test_the_end_of_a_stream_of_a_closed_session_is_ignored() -> None:
    world, client, stream = listening()
    client.delete()
    count = len(listens(world))
    world.end(stream, Cause(End.BROKEN))
    world.wait(100.0)
    assert len(listens(world)) == count


@pytest.mark.parametrize("has_files", [False, True])
def test_the_workspace_of_a_warm_process_that_died_is_emptied(has_files: bool) -> None:
    """Only a server with files has a workspace to empty."""
    producers = (ArtifactProducer(tools=("t",), output_path_argument="p"),) if has_files else ()
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, spares=1, producers=producers))
    connect(world, "http", "s")
    dial = [dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)][1]
    assert isinstance(dial.target, Spawn)
    before = len(world.every(Sweep))
    world.end(dial.channel, Cause(End.BROKEN, "exited with code 1"))
    swept = [order.workspace for order in world.every(Sweep)[before:]]
    assert swept == ([dial.target.workspace] if has_files else [])
    assert "a spare process is gone: exited with code 1" in world.notes("warning")


def test_messages_of_a_warm_process_are_dropped() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, spares=1))
    connect(world, "http", "s")
    warm = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)][1]
    world.open(warm, Connected())
    before = len(world.log)
    world.send(warm, CHANGE)
    world.send_pieces(warm, CHANGE[:5], CHANGE[5:])
    assert world.notes("debug") == ["a spare process spoke before it was spoken to: dropped"] * 2
    assert len(world.log) == before + 2


@pytest.mark.parametrize(
    ("cause", "is_noted"), [(DONE, False), (Cause(End.BROKEN, "no"), True), (Cause(End.REFUSED, status=500), True)]
)
def test_a_notification_that_did_not_arrive_is_noted(cause: Cause, is_noted: bool) -> None:
    """The session goes on."""
    world = driver()
    client = connect(world, "http", "http")
    client.notify("notifications/roots/list_changed")
    world.end(world.take_sent("notifications/roots/list_changed").channel, cause)
    noted = [note for note in world.notes("warning") if note.startswith("a notification or answer did not arrive: ")]
    assert len(noted) == is_noted
    assert world.engine.session_count == 1


@pytest.mark.parametrize("initialize", ["{}", '{"capabilities":[]}', '{"capabilities":7}', '{"capabilities":{"x":{}}}'])
def test_a_server_with_files_is_offered_roots_whatever_its_client_declares(initialize: str) -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("t",)),)))
    client = new_client(world, "http", "s")
    client.initialize('{"protocolVersion":"2025-11-25",%s' % (initialize[1:] if len(initialize) > 2 else '"y":1}'))
    world.open(world.last_dial(Spawn).channel, Connected())
    capabilities = world.take_sent("initialize").frame["params"]["capabilities"]
    assert capabilities == ({"x": {}, "roots": {}} if "x" in initialize else {"roots": {}})


def eras(world: Driver) -> dict[str, str | None]:
    (status,) = world.engine.report()
    return status.eras


@pytest.mark.parametrize(
    ("cause", "is_replaced"),
    [
        (refused(404), True),
        (refused(400), True),
        (refused(400, failure(-32600, "Bad Request: Missing session ID", id="server-error")), True),
        (refused(500), False),
        (refused(403), False),
        (refused(400, failure(-32603, "no")), False),
        (Cause(End.BROKEN, "no"), False),
    ],
)
def test_the_known_era_holds_until_the_server_refuses_as_in_the_other(cause: Cause, is_replaced: bool) -> None:
    """A refusal in the form of the other era means that the server was replaced. Any other refusal does not."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    client = new_client(world, "http", "http")
    modern_call(client)
    discovered(world)
    assert eras(world) == {"stateless": "2026-07-28"}
    world.end(world.take_sent("tools/list").channel, cause)
    assert eras(world) == ({} if is_replaced else {"stateless": "2026-07-28"})


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_a_process_is_stopped_when_it_has_been_idle(kind: Kind) -> None:
    """The idle time of a process begins after its last call. A remote server has no such time."""
    world = driver(ServerPlan(id="s", kind=kind, idle_stop_s=60.0 if kind is Kind.PIPE else None))
    client = connect(world, "pipe", "s")
    client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    world.wait(100.0)
    world.answer(received)
    world.wait(10.0)
    running = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)]
    assert not set(running) & world.over
    world.wait(51.0)
    assert bool(running) is (kind is Kind.PIPE)
    assert set(running) <= world.over
