"""Tests of the kept events: which streams give up their events for lack of room, in memory and in the storage, and
which events a client that resumes still gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, Client, Driver, connect, driver, notification, result
from event_storage import Store, storing
from isthmus.core.base.effects import Note
from isthmus.core.base.limits import Limits
from stateless_driving import tables
from streaming import Call, call_of, disconnected_call, last_id, tags

X = "y" * 90


def events_after_first(world: Driver, store: Store, client: Client, number: int = 1) -> list[Any]:
    """The progress numbers (and "answer") that a client gets when it resumes a stream after its first event."""
    channel = client.resume(f"{number}-1")
    store.do_all()
    received = tags(world, channel)
    world.end(channel, GONE) if channel not in world.over else None
    return ["answer" if isinstance(one, dict) else one for one in received]


def kept_bytes(world: Driver, client: Client) -> int:
    """The bytes of events in memory for a session."""
    assert client.session is not None
    return tables(world.engine)["sessions"][client.session].kept_bytes


@pytest.mark.parametrize("is_over", [True, False])
def test_a_stream_with_nothing_left_in_memory_makes_no_more_room(is_over: bool) -> None:
    """A stream whose events are all in the storage is passed over: the next stream in turn gives up its events, and no
    event of the first is lost."""
    world, store = storing(events_max_bytes=1500)
    first, second = (connect(world, "http", "pipe") for _ in range(2))
    call = disconnected_call(world, first, "1", size=1000)
    if is_over:
        call.answer()
    other = disconnected_call(world, second, "1")
    for number, size in ((1, 1000), (2, 1000), (3, 1400), (4, 1490), (5, 2000), (6, 2500), (7, 10)):
        other.log(number, size)
        store.do_all()
    assert kept_bytes(world, first) == 0
    assert events_after_first(world, store, first) == [1, *(["answer"] if is_over else [])]
    assert events_after_first(world, store, second) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_stream_that_was_emptied_takes_part_again_when_more_events_come(is_over: bool) -> None:
    """Events that come after a stream was emptied are kept like those of any other stream. There is no storage, so the
    earlier events are lost."""
    world = driver(limits=Limits(events_max_bytes=1500))
    store = Store(world)
    first, second = (connect(world, "http", "pipe") for _ in range(2))
    call = disconnected_call(world, first, "1", size=1000)
    other = disconnected_call(world, second, "1")
    other.log(1, 1400)
    assert kept_bytes(world, first) == 0
    call.log(2, 900)
    assert kept_bytes(world, second) == 0
    if is_over:
        call.answer()
    assert events_after_first(world, store, first) == [2, *(["answer"] if is_over else [])]
    other.log(2, 1400)
    assert kept_bytes(world, first) == 0
    assert events_after_first(world, store, second) == [2]


def test_finished_streams_of_a_session_give_up_events_first() -> None:
    """Events move to the storage in this order: from finished streams, from the stream that needs room, from the
    others; of each the oldest first. None is lost as long as the storage has room."""
    world, store = storing(events_per_session_max_bytes=3000)
    client = connect(world, "http", "pipe")
    going = disconnected_call(world, client, "1", size=700)
    over = disconnected_call(world, client, "2", size=700)
    over.answer()
    newest = disconnected_call(world, client, "3", size=700)
    keys: list[str] = []
    for number in range(4, 8):
        newest.log(number, 700)
        keys += [key.split("/", 2)[2] for key in store.saves()]
        store.do_all()
    newest.log(8, 2900)
    keys += [key.split("/", 2)[2] for key in store.saves()]
    store.do_all()
    assert keys == ["2/1", "2/2", "2/3", "3/1", "3/2", "3/3", "3/4", "3/5", "3/6", "1/1", "1/2"]
    assert events_after_first(world, store, client, 1) == [1]
    assert events_after_first(world, store, client, 2) == [2, "answer"]
    assert events_after_first(world, store, client, 3) == [3, 4, 5, 6, 7, 8]
    going.answer()


def test_events_that_come_at_once_are_kept_as_if_they_came_one_by_one() -> None:
    """The outcome is equal with room for all of the events, for some, and for none."""

    def after(room: int, *, is_at_once: bool, **plan: Any) -> tuple[list[Any], int]:
        limits = Limits(events_per_session_max_bytes=room, events_max_bytes=2 * room, events_max=6)
        world = driver(limits=limits, **plan)
        client = connect(world, "http", "pipe")
        call = call_of(world, client)
        messages = [
            notification(
                "notifications/progress", json.dumps({"progressToken": call.received.id, "progress": n, "x": X})
            )
            for n in range(9)
        ]
        if is_at_once:
            world._note(world.engine.receive_messages(call.received.channel, messages, world.now))
        else:
            for message in messages:
                world.send(call.received.channel, message)
        assert last_id(world, call.channel) == "1-9"
        assert tags(world, call.channel) == list(range(9))
        world.end(call.channel, GONE)
        kept = kept_bytes(world, client)
        return events_after_first(world, Store(world), client), kept

    sizes = set()
    for plan in ({}, {"stores_events": True}):
        for room in (1, 400, 800, 1000, 10_000):
            one_by_one = after(room, is_at_once=False, **plan)
            assert after(room, is_at_once=True, **plan) == one_by_one
            sizes.add(one_by_one[1])
    assert len(sizes) > 2


def test_the_retry_time_is_sent_once_to_a_client_that_can_resume() -> None:
    """The retry time comes with the priming event, or else with the first event that has an id, and with no later
    one."""
    world = driver(limits=Limits(stream_retry_s=1.5))
    client = connect(world, "http", "pipe")
    call = call_of(world, client)
    call.progress(1)
    call.progress(2)
    call.answer()
    assert [send.retry_ms for send in world.sent[call.channel]] == [1500, None, None]
    silent = call_of(world, client, "2")
    world.wait(Limits().stream_commit_s)
    assert world.primed[silent.channel].retry_ms == 1500
    silent.answer()
    assert [send.retry_ms for send in world.sent[silent.channel]] == [None]
    old = connect(world, "http", "pipe", revision="2025-06-18")
    call = call_of(world, old)
    call.progress(1)
    assert [send.retry_ms for send in world.sent[call.channel]] == [None]


def loss_notes(world: Driver) -> list[str]:
    return [note.text for note in world.every(Note) if note.text.startswith("an event kept")]


def test_events_that_the_storage_loses_are_noted_more_and_more_rarely() -> None:
    """Each of the first five lost events is noted, then every loss whose count is a power of two, with that count."""
    world, store = storing(events_max=1)
    client = connect(world, "http", "pipe")
    call = disconnected_call(world, client, "1")
    for number in range(1, 35):
        call.log(number)
        store.fail(store.look()[0])
    text = "an event kept for a client was lost: the disk is full"
    assert loss_notes(world) == [text] * 5 + [f"{text} ({count} events by now)" for count in (8, 16, 32)]
    assert {note.level for note in world.every(Note) if note.text in loss_notes(world)} == {"warning"}
    assert {note.server for note in world.every(Note) if note.text in loss_notes(world)} == {"pipe"}


def test_a_question_on_a_stream_that_nobody_reads_waits_for_another() -> None:
    """A question for a client of 2024-11-05, whose response stream went with its connection, is sent on the next stream
    that the client opens."""
    world = driver()
    client = connect(world, "http", "pipe", revision="2024-11-05")
    call: Call = call_of(world, client)
    call.ask(1)
    assert tags(world, call.channel) == [1]
    world.end(call.channel, GONE)
    call.send(notification("notifications/cancelled", '{"requestId":"q1"}'))
    stream = client.listen()
    assert tags(world, stream) == ["notifications/cancelled"], "the cancellation is not lost with the response stream"
    call.send(result("99"))
