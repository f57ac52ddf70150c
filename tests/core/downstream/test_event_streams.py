"""Whose events make room for another, in memory and in the storage: in which order, and what of them is still told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, Client, Driver, connect, driver, notification, result
from isthmus.core.base.effects import Note
from isthmus.core.base.limits import Limits
from streaming import Call, away, call_of, last_id, tags

from tests.core.engine.test_event_store import Store, storing

X = "y" * 90


def told(world: Driver, store: Store, client: Client, number: int = 1) -> list[Any]:
    """All that a client is told of a stream after its first event."""
    channel = client.resume(f"{number}-1")
    store.do_all()
    said = tags(world, channel)
    world.end(channel, GONE) if channel not in world.over else None
    return ["answer" if isinstance(one, dict) else one for one in said]


def kept_of(world: Driver, client: Client) -> int:
    """Bytes that are in memory for a session."""
    assert client.session is not None
    return world.engine._clients.sessions[client.session].kept_bytes


@pytest.mark.parametrize("is_over", [True, False])
def test_a_stream_with_nothing_left_in_memory_makes_no_more_room(is_over: bool) -> None:
    """All of it is in the storage: then the next in turn gives, and nothing of the first is lost."""
    world, store = storing(events_max_bytes=1500)
    first, second = (connect(world, "http", "pipe") for _ in range(2))
    call = away(world, first, "1", size=1000)
    if is_over:
        call.answer()
    other = away(world, second, "1")
    for number, size in ((1, 1000), (2, 1000), (3, 1400), (4, 1490), (5, 2000), (6, 2500), (7, 10)):
        other.log(number, size)
        store.do_all()
    assert kept_of(world, first) == 0
    assert told(world, store, first) == [1, *(["answer"] if is_over else [])]
    assert told(world, store, second) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("is_over", [True, False])
def test_a_stream_that_was_emptied_takes_part_again_when_it_says_more(is_over: bool) -> None:
    """Without a storage its events go; what it says later is kept like any other's."""
    world = driver(limits=Limits(events_max_bytes=1500))
    store = Store(world)
    first, second = (connect(world, "http", "pipe") for _ in range(2))
    call = away(world, first, "1", size=1000)
    other = away(world, second, "1")
    other.log(1, 1400)
    assert kept_of(world, first) == 0
    call.log(2, 900)
    assert kept_of(world, second) == 0
    if is_over:
        call.answer()
    assert told(world, store, first) == [2, *(["answer"] if is_over else [])]
    other.log(2, 1400)
    assert kept_of(world, first) == 0
    assert told(world, store, second) == [2]


def test_in_a_session_what_is_over_gives_first_then_itself_then_the_others() -> None:
    """To the storage, in that order, each its oldest: nothing is lost as long as there is room there."""
    world, store = storing(events_per_session_max_bytes=3000)
    client = connect(world, "http", "pipe")
    going = away(world, client, "1", size=700)
    over = away(world, client, "2", size=700)
    over.answer()
    newest = away(world, client, "3", size=700)
    keys: list[str] = []
    for number in range(4, 8):
        newest.log(number, 700)
        keys += [key.split("/", 2)[2] for key in store.saves()]
        store.do_all()
    newest.log(8, 2900)
    keys += [key.split("/", 2)[2] for key in store.saves()]
    store.do_all()
    assert keys == ["2/1", "2/2", "2/3", "3/1", "3/2", "3/3", "3/4", "3/5", "3/6", "1/1", "1/2"]
    assert told(world, store, client, 1) == [1]
    assert told(world, store, client, 2) == [2, "answer"]
    assert told(world, store, client, 3) == [3, 4, 5, 6, 7, 8]
    going.answer()


def test_events_that_come_at_once_are_kept_as_if_they_came_one_by_one() -> None:
    """With room for all of them, for some, and for none."""

    def after(room: int, *, is_at_once: bool, **plan: Any) -> tuple[list[Any], int]:
        limits = Limits(events_per_session_max_bytes=room, events_max_bytes=2 * room, events_max=6)
        world = driver(limits=limits, **plan)
        client = connect(world, "http", "pipe")
        call = call_of(world, client)
        said = [
            notification("notifications/progress", json.dumps({"progressToken": call.heard.id, "progress": n, "x": X}))
            for n in range(9)
        ]
        if is_at_once:
            world._note(world.engine.receive_messages(call.heard.channel, said, world.now))
        else:
            for message in said:
                world.say(call.heard.channel, message)
        assert last_id(world, call.channel) == "1-9"
        assert tags(world, call.channel) == list(range(9))
        world.end(call.channel, GONE)
        kept = kept_of(world, client)
        return told(world, Store(world), client), kept

    sizes = set()
    for plan in ({}, {"stores_events": True}):
        for room in (1, 400, 800, 1000, 10_000):
            one_by_one = after(room, is_at_once=False, **plan)
            assert after(room, is_at_once=True, **plan) == one_by_one
            sizes.add(one_by_one[1])
    assert len(sizes) > 2


def test_a_client_that_is_primed_is_told_when_to_come_back_once() -> None:
    """With the event that primes it, or with the first that has an id: not with each."""
    world = driver(limits=Limits(stream_retry_s=1.5))
    client = connect(world, "http", "pipe")
    call = call_of(world, client)
    call.progress(1)
    call.progress(2)
    call.answer()
    assert [send.retry_ms for send in world.sent[call.channel]] == [1500, None, None]
    silent = call_of(world, client, "2")
    world.wait(world.engine._desk.limits.stream_commit_s)
    assert world.primed[silent.channel].retry_ms == 1500
    silent.answer()
    assert [send.retry_ms for send in world.sent[silent.channel]] == [None]
    old = connect(world, "http", "pipe", revision="2025-06-18")
    call = call_of(world, old)
    call.progress(1)
    assert [send.retry_ms for send in world.sent[call.channel]] == [None]


def lost(world: Driver) -> list[str]:
    return [note.text for note in world.every(Note) if note.text.startswith("an event kept")]


def test_a_storage_that_loses_events_is_told_of_more_and_more_rarely() -> None:
    """Of the first five each, then at each power of two, with the number of them."""
    world, store = storing(events_max=1)
    client = connect(world, "http", "pipe")
    call = away(world, client, "1")
    for number in range(1, 35):
        call.log(number)
        store.fail(store.look()[0])
    text = "an event kept for a client was lost: the disk is full"
    assert lost(world) == [text] * 5 + [f"{text} ({count} events by now)" for count in (8, 16, 32)]
    assert {note.level for note in world.every(Note) if note.text in lost(world)} == {"warning"}
    assert {note.server for note in world.every(Note) if note.text in lost(world)} == {"pipe"}


def test_a_question_on_a_stream_that_nobody_reads_waits_for_another() -> None:
    """One of an old client, whose reply went with its connection: when it opens a stream, it is asked there."""
    world = driver()
    client = connect(world, "http", "pipe", revision="2024-11-05")
    call: Call = call_of(world, client)
    call.ask(1)
    assert tags(world, call.channel) == [1]
    world.end(call.channel, GONE)
    call.say(notification("notifications/cancelled", '{"requestId":"q1"}'))
    stream = client.listen()
    assert tags(world, stream) == ["notifications/cancelled"], "what is said of it is not lost with the reply"
    call.say(result("99"))
