"""Tests of the resumption of response streams: several that were cut off at once are resumed independently, with pauses
between two connections."""

from __future__ import annotations

import json

import pytest
from driving import DONE, FORGOTTEN, Client, Driver, SentMessage, connect, driver, new_client, notification, result
from isthmus.core.base.effects import Listen
from isthmus.core.base.events import Cause, Connected, End, Primed, Queued
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.state.context import Context
from isthmus.core.upstream.resumption import Resumption

# --- Several streams --------------------------------------------------------------------------------------------------


class Call:
    """A call whose server ends the response stream, to be asked for the rest after `pause_s` seconds."""

    def __init__(self, client: Client, id: int, event_id: str, pause_s: float = 2.0) -> None:
        self.client, self.id, self.event_id = client, id, event_id
        self.world: Driver = client.driver
        self.channel: ChannelId = client.request(str(id), "tools/call", '{"name":"t"}')
        self.call: SentMessage = self.world.take_sent("tools/call")
        self.world.open(self.call.channel, Connected())
        self.world.open(self.call.channel, Primed())
        self.end(self.call.channel, event_id, pause_s)

    def end(self, channel: ChannelId, event_id: str, pause_s: float) -> None:
        self.event_id = event_id
        self.world.end(channel, Cause(End.DONE, last_event_id=event_id, retry_ms=int(pause_s * 1000)))

    def rest(self) -> ChannelId | None:
        """The channel on which the server was asked for the events after the last one, if it was."""
        found = [dial.channel for dial in self.world.dials if is_rest(dial.target, self.event_id)]
        assert len(found) <= 1
        return found[0] if found else None

    def finish(self, channel: ChannelId | None) -> None:
        """Sends the answer as the rest of the stream."""
        assert channel is not None
        self.world.open(channel, Connected())
        self.world.send(channel, result(str(self.call.id), json.dumps({"n": self.id})))
        self.world.end(channel)

    @property
    def is_answered(self) -> bool:
        found = [message for message in self.world.messages(self.channel) if b'"method"' not in message]
        assert found in ([], [result(str(self.id), json.dumps({"n": self.id}))])
        return bool(found)


def is_rest(target: object, event_id: str) -> bool:
    return isinstance(target, Listen) and target.last_event_id == event_id


def due(world: Driver, seconds: float) -> list[float]:
    """Waits for so many seconds. Returns the times, from the start of that, at which resumptions were due."""
    began, found = world.now, []
    while (deadline := world.engine.next_timeout()) is not None and deadline.at <= began + seconds:
        if "resumed" in deadline.why:
            found.append(round(deadline.at - began, 6))
        world.wait(deadline.at - world.now)
    world.wait(began + seconds - world.now)
    return found


def test_each_of_several_streams_is_resumed_from_its_last_event_at_the_time_its_server_wants() -> None:
    """Streams are resumed in the order of their due times, not in the order in which they ended."""
    world = driver()
    client = connect(world, "http", "http")
    calls = [Call(client, number, f"e{number}", pause_s) for number, pause_s in ((1, 3.0), (2, 1.0), (3, 2.0))]
    assert due(world, 1.5) == [1.0]
    assert [call.rest() is not None for call in calls] == [False, True, False]
    assert due(world, 1.5) == [0.5, 1.5]
    for call in (calls[2], calls[0], calls[1]):
        call.finish(call.rest())
    assert all(call.is_answered for call in calls)
    assert due(world, 1000.0) == []
    assert world.engine.exchange_count == 0


@pytest.mark.parametrize("how", ["answered elsewhere", "cancelled", "taken up"])
@pytest.mark.parametrize("which", range(3))
def test_the_end_of_one_resumption_does_not_affect_the_others(which: int, how: str) -> None:
    """The other streams are resumed in time, and their calls are answered."""
    world = driver()
    client = connect(world, "http", "http", listens=True)
    calls = [
        Call(client, number, f"e{number}", 1.0 if n == which else 4.0 + n / 4) for n, number in enumerate((1, 2, 3))
    ]
    one = calls.pop(which)
    if how == "answered elsewhere":
        stream = next(dial.channel for dial in world.dials if isinstance(dial.target, Listen))
        world.send(stream, result(str(one.call.id), json.dumps({"n": one.id})))
    elif how == "cancelled":
        client.notify("notifications/cancelled", json.dumps({"requestId": one.id}))
        world.acknowledge(world.take_sent("notifications/cancelled"))
    assert due(world, 2.0) == ([1.0] if how == "taken up" else [])
    if how == "taken up":
        one.finish(one.rest())
    assert how == "cancelled" or one.is_answered
    assert due(world, 4.0) == [2.0 + n / 4 for n in range(3) if n != which]
    for call in calls:
        call.finish(call.rest())
        assert call.is_answered
    assert due(world, 1000.0) == []


def test_a_stream_that_is_cut_again_waits_beside_those_that_were_cut_meanwhile() -> None:
    """Each stream is resumed from the last event that it named."""
    world = driver()
    client = connect(world, "http", "http")
    first = Call(client, 1, "e1", 1.0)
    world.wait(1.5)
    second = Call(client, 2, "e2", 4.0)
    rest = first.rest()
    assert rest is not None
    world.open(rest, Connected())
    world.send(rest, notification("notifications/message", '{"level":"info","data":1}'))
    first.end(rest, "e1b", 2.0)
    assert due(world, 5.0) == [2.0, 4.0]
    for call in (second, first):
        call.finish(call.rest())
        assert call.is_answered


def test_resumptions_of_one_session_are_not_those_of_another() -> None:
    """Sessions stay apart though their request numbers are equal."""
    world = driver()
    one, other = [connect(world, "http", "http", session=session) for session in ("S1", "S2")]
    left, kept = Call(one, 1, "e1"), Call(other, 2, "e2")
    assert left.call.id == kept.call.id
    one.notify("notifications/cancelled", '{"requestId":1}')
    world.acknowledge(world.take_sent("notifications/cancelled"))
    assert due(world, 3.0) == [2.0]
    assert left.rest() is None
    kept.finish(kept.rest())
    assert kept.is_answered


def test_a_session_that_ends_leaves_nothing_to_be_resumed() -> None:
    world = driver()
    client = connect(world, "http", "http")
    for number in (1, 2, 3):
        Call(client, number, f"e{number}", float(number))
    world.wait(1.5)
    client.delete()
    while world.unread:
        world.end(world.unread[0].channel, DONE)
    assert due(world, 1000.0) == []


# --- Pauses -----------------------------------------------------------------------------------------------------------

LONG = Limits(
    listen_retry_s=0.5,
    listen_retry_max_s=1e9,
    polling_pause_min_s=0.25,
    polling_pause_max_s=60.0,
)


def resuming(limits: Limits) -> Resumption:
    plan = Plan(servers=(ServerPlan(id="http", kind=Kind.HTTP),))
    return Resumption(Context(plan, entropy=bytes, unix_at_zero=0.0, limits=limits))


@pytest.mark.parametrize(("failures", "times"), [(0, 1), (1, 2), (2, 4), (15, 2**15), (16, 2**16), (17, 2**16)])
def test_pauses_are_doubled_with_each_failure_up_to_a_finite_factor(failures: int, times: int) -> None:
    """Each failure doubles the pause, within bounds, whether the server has named a retry time or not."""
    target = resuming(LONG)
    assert target.pause(None, failures) == 0.5 * times
    for retry_ms, asked_s in ((0, 0.25), (250, 0.25), (251, 0.251), (60_000, 60.0), (60_001, 60.0)):
        assert target.pause(retry_ms, failures) == asked_s * times


@pytest.mark.parametrize("failures", [0, 1, 5, 30])
def test_no_pause_is_longer_than_the_maximum_unless_the_server_wants_it(failures: int) -> None:
    target = resuming(Limits(listen_retry_s=1.0, listen_retry_max_s=3.0))
    assert target.pause(None, failures) == min(2.0**failures, 3.0)
    assert target.pause(2000, failures) == (2.0 if failures == 0 else 3.0)
    assert target.pause(8000, failures) == 8.0


@pytest.mark.parametrize(
    ("idle", "times"), [(0, 1), (1, 1), (2, 2), (3, 4), (16, 2**15), (17, 2**16), (18, 2**16), (99, 2**16)]
)
def test_connections_that_bring_nothing_follow_one_another_more_and_more_slowly(idle: int, times: int) -> None:
    """The spacing grows from the second connection that brings nothing on."""
    target = resuming(LONG)
    assert target.spacing(idle, 1e9) == 0.25 * times
    assert target.spacing(idle, 0.5) == min(0.25 * times, 0.5)


@pytest.mark.parametrize("grants", [True, False])
def test_a_404_for_the_event_stream_ends_the_session_only_of_a_server_that_has_streams(grants: bool) -> None:
    """A server that granted a resumption has event streams, so a 404 for the session's own stream, which had to wait
    for a place, means that the session is forgotten. A server that never granted one may just have no such streams."""
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    world.acknowledge(world.take_sent("notifications/initialized"))
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    own = world.last_dial(Listen).channel
    world.open(own, Queued())
    call = Call(client, 1, "e1")
    world.wait(3.0)
    rest = call.rest()
    assert rest is not None
    world.open(rest, Connected()) if grants else world.end(rest, Cause(End.REFUSED, status=405))
    world.end(own, FORGOTTEN)
    client.request("2", "tools/list")
    assert [received.frame["method"] for received in world.unread] == ["initialize" if grants else "tools/list"]
