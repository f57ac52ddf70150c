"""Streams of calls whose clients went, or cannot come back for them, and what is kept of those that can."""

from __future__ import annotations

import pytest
from driving import GONE, connect, driver, notification, result
from isthmus.core.base.effects import Cause, Connected, End, Listen, Primed
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from streaming import call_of, last_id, tags


@pytest.mark.parametrize("is_at_once", [True, False])
def test_what_is_said_to_nobody_is_dropped(is_at_once: bool) -> None:
    """A client that cannot come back for it is gone. Its call goes on, for that is no cancellation."""
    world = driver()
    call = call_of(world, connect(world, "http", "pipe", revision="2024-11-05"))
    world.end(call.channel, GONE)
    said = [
        notification("notifications/progress", f'{{"progressToken":{call.heard.id},"progress":{n}}}') for n in (1, 2)
    ]
    if is_at_once:
        assert world.engine.receive_messages(call.heard.channel, said, world.now) == []
    else:
        assert [world.say(call.heard.channel, message) for message in said] == [[], []]
    assert world.engine.exchange_count == 1
    call.answer()
    assert world.engine.exchange_count == 0
    assert not world.sent[call.channel]


@pytest.mark.parametrize(("revision", "is_polled"), [("2025-11-25", True), ("2025-06-18", False)])
def test_only_who_knows_of_polling_is_polled(revision: str, is_polled: bool) -> None:
    """The stream of another client stays open while its server's is taken up again."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP), mirrors_polling=True)
    client = connect(world, "http", "http", revision=revision)
    call = call_of(world, client)
    world.open(call.heard.channel, Primed())
    call.progress(1)
    world.end(call.heard.channel, Cause(End.DONE, last_event_id="u-1", retry_ms=100))
    assert (call.channel in world.closed) is is_polled
    world.wait(1.0)
    again = world.last_dial(Listen)
    world.open(again.channel, Connected())
    if not is_polled:
        world.say(again.channel, result(str(call.heard.id)))
        assert tags(world, call.channel)[0] == 1
        assert world.sent[call.channel][-1].is_last


@pytest.mark.parametrize(
    "limits", [Limits(events_max_bytes=1500), Limits(events_per_session_max_bytes=1500, events_max_bytes=1500)]
)
def test_one_event_of_a_stream_always_stays(limits: Limits) -> None:
    """The last, however large, at the cost of all others."""
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


def test_what_fails_again_and_again_is_not_asked_for_again() -> None:
    """It may be the place where the stream of a server is to go on that it fails over."""
    world = driver(limits=Limits(resume_failures_max=2))
    connect(world, "http", "http", listens=True)

    def fail(event_id: str | None) -> str | None:
        """The stream breaks. Returns where the next is to go on."""
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
