"""Tests of event streams whose clients are gone or cannot resume them, and of what is kept of the others."""

from __future__ import annotations

import pytest
from driving import GONE, connect, driver, notification, result
from isthmus.core.base.effects import Listen
from isthmus.core.base.events import Cause, Connected, End, Primed
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from streaming import call_of, last_id, tags


@pytest.mark.parametrize("is_at_once", [True, False])
def test_messages_for_a_client_that_cannot_resume_are_dropped(is_at_once: bool) -> None:
    """A client that cannot resume its stream is gone. Its call goes on, as a lost connection is no cancellation."""
    world = driver()
    call = call_of(world, connect(world, "http", "pipe", revision="2024-11-05"))
    world.end(call.channel, GONE)
    messages = [
        notification("notifications/progress", f'{{"progressToken":{call.received.id},"progress":{n}}}') for n in (1, 2)
    ]
    if is_at_once:
        assert world.engine.receive_messages(call.received.channel, messages, world.now) == []
    else:
        assert [world.send(call.received.channel, message) for message in messages] == [[], []]
    assert world.engine.exchange_count == 1
    call.answer()
    assert world.engine.exchange_count == 0
    assert not world.sent[call.channel]


@pytest.mark.parametrize(("revision", "is_polled"), [("2025-11-25", True), ("2025-06-18", False)])
def test_only_a_client_that_knows_polling_is_polled(revision: str, is_polled: bool) -> None:
    """The stream of an older client stays open while its server's is resumed."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP), mirrors_polling=True)
    client = connect(world, "http", "http", revision=revision)
    call = call_of(world, client)
    world.open(call.received.channel, Primed())
    call.progress(1)
    world.end(call.received.channel, Cause(End.DONE, last_event_id="u-1", retry_ms=100))
    assert (call.channel in world.closed) is is_polled
    world.wait(1.0)
    again = world.last_dial(Listen)
    world.open(again.channel, Connected())
    if not is_polled:
        world.send(again.channel, result(str(call.received.id)))
        assert tags(world, call.channel)[0] == 1
        assert world.sent[call.channel][-1].is_last


@pytest.mark.parametrize(
    "limits", [Limits(events_max_bytes=1500), Limits(events_per_session_max_bytes=1500, events_max_bytes=1500)]
)
def test_one_event_of_a_stream_always_stays(limits: Limits) -> None:
    """The last event is kept, however large, at the cost of all others."""
    world = driver(limits=limits)
    client = connect(world, "http", "http")
    first, second = call_of(world, client, "1"), call_of(world, client, "2")
    first.progress(1)
    second.progress(1)
    first.log(2, size=4000)
    first.log(3, size=5000)
    for call, expected in ((second, []), (first, [3])):
        seen = last_id(world, call.channel)
        world.end(call.channel, GONE)
        assert seen is not None
        number = seen.partition("-")[0]
        assert tags(world, client.resume(f"{number}-1")) == expected


def test_an_event_id_that_fails_repeatedly_is_given_up() -> None:
    """The event id of a stream that breaks repeatedly is given up: the server may fail over that very place."""
    world = driver(limits=Limits(resume_failures_max=2))
    connect(world, "http", "http", listens=True)

    def fail(event_id: str | None) -> str | None:
        """Breaks the stream. Returns the event id that the next one resumes after."""
        before = world.last_dial(Listen)
        world.end(before.channel, Cause(End.BROKEN, last_event_id=event_id))
        while world.last_dial(Listen) is before:
            deadline = world.engine.next_timeout()
            assert deadline is not None
            world.wait(deadline.at - world.now)
        target = world.last_dial(Listen).target
        assert isinstance(target, Listen)
        return target.last_event_id

    assert [fail(event_id) for event_id in ("u-1", None, None, None)] == ["u-1", "u-1", None, None]
    world.open(world.last_dial(Listen).channel, Connected())
    assert [fail(event_id) for event_id in ("u-2", None, None)] == ["u-2", "u-2", None]
