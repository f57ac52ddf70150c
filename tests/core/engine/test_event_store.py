"""Tests of the event store: events go into the storage for lack of room in memory, and are read back.

The rule is that of streams: a client that was cut off and names the last event that it saw gets exactly the rest, in
order, wherever the rest is kept. An event that the storage cannot keep is lost as if there had been no room, and no
other is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from driving import GONE, Client, Driver, connect, driver, notification, result
from event_storage import Store, storing
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Effect, Send
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import MIB, Limits
from isthmus.core.base.storage import Forget, ForgetAll, Save
from streaming import LOG, Call, call_of, can_resume, child_of, disconnected_call, is_refused, last_id, tags

ANSWER = json.loads(result("1"))


def cut_off(world: Driver, client: Client, id_raw: str = "1") -> Call:
    """A call whose stream was cut off after its first event, which was progress 0."""
    call = call_of(world, client, id_raw)
    call.progress()
    world.end(call.channel, GONE)
    return call


def missing(**limits: Any) -> tuple[Driver, Store, Client, Call]:
    """A client that was cut off after the first event of its call."""
    world, store = storing(**limits)
    client = connect(world, "http", "pipe")
    return world, store, client, cut_off(world, client)


# --- Nothing is lost --------------------------------------------------------------------------------------------------


def test_events_beyond_memory_come_back_in_order() -> None:
    world, store, client, call = missing(events_max=2)
    for number in range(1, 9):
        call.progress(number)
    call.answer()
    assert [key.rpartition("/")[2] for key in store.saves()] == [str(n) for n in range(1, 9)], "the oldest first"
    store.do_all()
    again = client.resume("1-1")
    assert tags(world, again) == []
    store.do_all()
    assert tags(world, again) == [*range(1, 9), ANSWER]
    assert world.event_ids(again) == [f"1-{n}" for n in range(2, 11)]
    assert world.sent[again][-1].is_last


def test_an_event_that_is_being_saved_is_not_read_back() -> None:
    world, store, client, call = missing(events_max=1)
    call.progress(1)
    call.progress(2)
    assert len(store.saves()) == 2
    assert tags(world, client.resume("1-1")) == [1, 2]
    assert not store.loads()


def test_one_record_is_read_at_a_time() -> None:
    """Records of a long replay are in memory one at a time."""
    world, store, client, call = missing(events_max=1)
    for number in range(1, 6):
        call.progress(number)
    store.do_all()
    again = client.resume("1-1")
    for number in range(1, 5):
        (load,) = store.loads()
        assert load.key.endswith(f"/{number + 1}")
        store.do(load)
    assert not store.look()
    assert tags(world, again) == [1, 2, 3, 4, 5]


def test_an_event_during_a_replay_waits_for_its_turn() -> None:
    world, store, client, call = missing(events_max=1)
    call.progress(1)
    call.progress(2)
    store.do_all()
    again = client.resume("1-1")
    call.progress(3)
    call.answer()
    assert tags(world, again) == []
    store.do_all()
    assert tags(world, again) == [1, 2, 3, ANSWER]
    assert world.sent[again][-1].is_last


def test_an_event_after_a_replay_is_sent_at_once() -> None:
    world, store, client, call = missing(events_max=1)
    call.progress(1)
    call.progress(2)
    store.do_all()
    again = client.resume("1-1")
    store.do_all()
    call.progress(3)
    assert tags(world, again) == [1, 2, 3]


def test_a_client_is_sent_as_many_records_as_it_takes() -> None:
    """Records are read when there is room for them in the client's outbox."""
    world, store, client, call = missing(outbox_high_bytes=3000, outbox_low_bytes=1000, events_max=1)
    for number in range(1, 9):
        call.log(number, 1000)
    store.do_all()
    again = client.resume("1-1")
    store.do_all()
    assert tags(world, again) == [1, 2, 3]
    size_bytes = sum(map(len, world.messages(again)))
    world.engine.receive_sent(again, size_bytes - 1001, world.now)
    assert not store.look(), "too much is still to be sent"
    world.take(again, 1)
    store.do_all()
    assert tags(world, again) == [1, 2, 3, 4, 5]


def test_a_client_is_sent_as_many_events_in_memory_as_it_takes() -> None:
    world, _ = storing(outbox_high_bytes=3000, outbox_low_bytes=1000)
    client = connect(world, "http", "pipe")
    call = cut_off(world, client)
    for number in range(1, 9):
        call.log(number, 1000)
    again = client.resume("1-1")
    assert tags(world, again) == [1, 2, 3]
    world.take(again, sum(map(len, world.messages(again))))
    assert tags(world, again) == [1, 2, 3, 4, 5, 6]


def test_a_client_that_is_cut_off_while_it_catches_up_goes_on_from_there() -> None:
    world, store, client, call = missing(events_max=1)
    for number in range(1, 6):
        call.progress(number)
    store.do_all()
    first = client.resume("1-1")
    store.do(store.loads()[0])
    (late,) = store.loads()
    world.end(first, GONE)
    again = client.resume("1-2")
    store.do(late)
    store.do_all()
    assert tags(world, first) == [1]
    assert tags(world, again) == [2, 3, 4, 5]


def test_the_newer_of_two_connections_gets_the_events() -> None:
    world, store, client, call = missing(events_max=1)
    for number in range(1, 4):
        call.progress(number)
    store.do_all()
    first, again = client.resume("1-1"), client.resume("1-1")
    assert first in world.closed
    store.do_all()
    assert tags(world, first) == []
    assert tags(world, again) == [1, 2, 3]


@given(
    events_max=st.integers(1, 3),
    steps=st.lists(st.sampled_from(["say", "say", "ask", "store", "late", "cut", "resume", "rewind"]), max_size=40),
)
def test_nothing_is_missed_in_any_order_of_storage_answers(events_max: int, steps: list[str]) -> None:
    """A client that resumes gets what followed, once and in order, and in the end everything, in any order of messages,
    connections and storage answers."""
    world, store, client, call = missing(events_max=events_max)
    sent: list[Any] = [0]
    known: list[tuple[str, Any]] = [("1-1", 0)]
    channel: ChannelId | None = None

    def read() -> None:
        """The events on the connection are the next ones, without a gap."""
        nonlocal known
        if channel is not None:
            since = known[: [name for name, _ in known].index(seen) + 1]
            come = zip(world.event_ids(channel), tags(world, channel), strict=True)
            now = since + [(name, what) for name, what in come if name is not None]
            assert [what for _, what in now] == sent[: len(now)]
            known = max(known, now, key=len)

    seen = "1-1"
    for number, step in enumerate([*steps, "cut", "resume"], 1):
        if step == "say":
            call.progress(number)
            sent.append(number)
        elif step == "ask":
            call.ask(number)
            sent.append(number)
        elif step in ("store", "late") and store.look():
            store.do(store.waiting[0 if step == "store" else -1])
        elif step == "cut" and channel is not None:
            read()
            world.end(channel, GONE)
            channel = None
        elif step in ("resume", "rewind"):
            read()
            seen = known[0 if step == "rewind" else -1][0]
            channel = client.resume(seen)
        read()
    call.answer()
    store.do_all()
    sent.append(ANSWER)
    read()
    assert [what for _, what in known] == sent
    assert sum(len(send.message) for send in world.every(Send)) > 0
    client.delete()
    store.do_all()
    assert not store.records


# --- Lost events ------------------------------------------------------------------------------------------------------


def test_nothing_is_stored_unless_the_plan_says_so() -> None:
    world = driver(limits=Limits(events_max=2))
    client = connect(world, "http", "pipe")
    call = cut_off(world, client)
    for number in range(1, 9):
        call.progress(number)
    assert not world.every(Save)
    assert tags(world, client.resume("1-1")) == [7, 8]


def lost(world: Driver) -> list[str]:
    return [text for text in world.notes("warning") if "was lost" in text]


def test_an_event_that_could_not_be_saved_is_left_out() -> None:
    world, store, client, call = missing(events_max=1)
    for number in range(1, 5):
        call.progress(number)
    store.fail(store.look()[1])
    store.do_all()
    again = client.resume("1-1")
    store.do_all()
    assert tags(world, again) == [2, 3, 4]
    assert lost(world) == ["an event kept for a client was lost: the disk is full"]
    assert [order.key.rpartition("/")[2] for order in world.every(Forget)] == ["2"], (
        "the record may be there all the same"
    )


def test_a_storage_that_loses_every_event_does_not_fill_the_log() -> None:
    world, store = storing(events_max=1)
    call = cut_off(world, connect(world, "http", "pipe"))
    for number in range(100):
        call.log(number)
        for order in list(store.look()):
            store.fail(order)
    endings = [note.rpartition("full")[2] for note in world.notes("warning")]
    assert endings == ["", "", "", "", "", " (8 events by now)", *(f" ({2**n} events by now)" for n in range(4, 7))]


@pytest.mark.parametrize("how", ["save", "load", "gone"])
def test_a_question_that_was_lost_is_refused(how: str) -> None:
    """The server does not wait for an answer to a question that no client saw; later events are sent."""
    world, store, client, call = missing(events_max=1)
    call.ask(1)
    call.ask(2)
    call.progress(3)
    orders = store.look()
    first, second, third = orders  # progress 0 and the questions
    store.do(first)
    if how == "save":
        store.fail(second)
    else:
        store.do(second)
    store.do(third)
    if how == "gone":
        store.records.clear()
    again = client.resume("1-1")
    if how == "load":
        store.fail(store.loads()[0])
    if how == "gone":
        store.records[third.key] = third.value if isinstance(third, Save) else b""
    store.do_all()
    assert tags(world, again) == [2, 3]
    refused = [received.frame for received in world.unread if "error" in received.frame]
    assert [frame["id"] for frame in refused] == ["q1"]
    assert "the question was lost" in refused[0]["error"]["message"]
    assert len(lost(world)) == 1


def test_a_stream_whose_end_was_lost_ends() -> None:
    world, store = storing(events_per_session_max_bytes=100)
    client = connect(world, "http", "pipe")
    over = cut_off(world, client)
    over.answer()
    cut_off(world, client, "2").log(1, 200)
    store.do_all()
    store.records.clear()
    again = client.resume("1-1")
    store.do_all()
    assert tags(world, again) == []
    assert again in world.closed


def test_a_save_that_takes_too_long_is_undone_when_it_comes() -> None:
    world, store, _, call = missing(events_max=1, storage_timeout_s=5.0)
    call.progress(1)
    (save,) = store.look()
    world.wait(5.0)
    assert lost(world)
    store.do(save)
    store.look()
    assert not store.records


def test_a_save_that_comes_after_its_session_is_undone() -> None:
    world, store, client, call = missing(events_max=1)
    call.progress(1)
    call.progress(2)
    first, second = store.look()
    store.do(first)
    client.delete()
    store.do(second)
    store.look()
    assert not store.records
    assert not lost(world)


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_events_stored_max_drops_as_memory_does() -> None:
    world, store, client, call = missing(events_max=1, events_stored_max=3)
    call.ask(1)
    for number in range(2, 9):
        call.progress(number)
        store.do_all()
    assert len(store.records) == 3
    again = client.resume("1-1")
    store.do_all()
    assert tags(world, again) == [1, 6, 7, 8]


def filled(world: Driver, store: Store, client: Client, id_raw: str, *, is_over: bool, size: int = 1000) -> Call:
    """A stream with one event of that size in the storage, and a small one in memory."""
    call = disconnected_call(world, client, id_raw, size=size)
    if is_over:
        call.answer()
    else:
        call.progress(9)
    store.do_all()
    return call


def test_events_stored_per_session_max_bytes_forgets_finished_streams_first() -> None:
    world, store = storing(events_max=1, events_stored_per_session_max_bytes=2500)
    client = connect(world, "http", "pipe")
    filled(world, store, client, "1", is_over=False)
    filled(world, store, client, "2", is_over=True)
    filled(world, store, client, "3", is_over=True)
    assert can_resume(world, client, 1) and can_resume(world, client, 3)
    assert is_refused(world, client.resume("2-1"), 400)


def test_events_stored_per_session_max_bytes_then_drops_from_open_streams() -> None:
    world, store = storing(events_max=1, events_stored_per_session_max_bytes=2500)
    client = connect(world, "http", "pipe")
    for number in range(1, 4):
        filled(world, store, client, str(number), is_over=False)
    again = client.resume("3-1")
    store.do_all()
    assert tags(world, again) == [9]
    again = client.resume("1-1")
    store.do_all()
    assert tags(world, again) == [1, 9]


def test_events_stored_max_bytes_forgets_the_oldest_that_is_over_in_any_session() -> None:
    world, store = storing(events_max=1, events_stored_max_bytes=4000)
    clients = [connect(world, "http", "pipe") for _ in range(4)]
    calls = [disconnected_call(world, client, "1", size=1000) for client in clients[:3]]
    for n in (1, 0, 2):
        calls[n].answer()
        store.do_all()
    filled(world, store, clients[3], "1", is_over=False)
    assert [can_resume(world, client, 1) for client in clients] == [True, False, True, True]


def test_a_finished_stream_that_was_forgotten_in_vain_is_gone_from_memory_too() -> None:
    """A finished stream that was forgotten in vain, to make room in the storage, is gone from memory as well."""
    world, store = storing(events_per_session_max_bytes=1000, events_stored_per_session_max_bytes=1000)
    client = connect(world, "http", "pipe")
    going = disconnected_call(world, client, "1")
    going.log(1, 500)
    over = disconnected_call(world, client, "2")
    over.log(2, 400)
    over.answer()
    store.do_all()
    going.log(3, 300)
    store.do_all()
    assert can_resume(world, client, 2)
    going.log(4, 300)
    assert not can_resume(world, client, 2)
    again = client.resume("1-1")
    store.do_all()
    assert tags(world, again) == [1, 3, 4]


def test_events_saving_max_bounds_how_many_wait_for_a_slow_storage() -> None:
    world, store, client, call = missing(events_max=1, events_saving_max=2)
    for number in range(1, 6):
        call.log(number)
    assert len(store.saves()) == 2
    assert tags(world, client.resume("1-1")) == [1, 5]
    store.do_all()
    call.log(6)
    assert len(store.saves()) == 1


def test_events_saving_max_bytes_bounds_what_waits_for_a_slow_storage() -> None:
    world, store, client, call = missing(events_max=1, events_saving_max_bytes=2500)
    for number in range(1, 9):
        call.log(number, 1000)
    assert sum(len(order.value) for order in store.look() if isinstance(order, Save)) <= 2500
    again = client.resume("1-1")
    assert tags(world, again) == [1, 2, 8]
    call.log(9, 9000)
    store.do_all()
    call.log(10, 10)
    assert len(store.saves()) == 1, "a single larger event goes alone"


def keys_of(effects: Iterator[Effect]) -> list[str]:
    return [effect.prefix for effect in effects if isinstance(effect, ForgetAll)]


@pytest.mark.parametrize("how", ["deleted", "in time"])
def test_stored_events_go_with_their_stream(how: str) -> None:
    world, store, client, call = missing(events_max=1, stream_ttl_s=10.0)
    call.progress(1)
    call.answer()
    store.do_all()
    assert len(store.records) == 2
    if how == "deleted":
        client.delete()
    else:
        world.wait(10.1)
    store.look()
    assert not store.records
    assert len(keys_of(iter(world.log))) == 1


def test_stored_events_of_a_get_stream_expire() -> None:
    """Records expire one by one: the stream may go on, and store more."""
    world, store = storing(events_max=1, stream_ttl_s=10.0)
    client = connect(world, "http", "pipe")
    stream = client.listen()
    for number in range(4):
        world.send(child_of(world), notification(LOG, f'{{"data":{number}}}'))
    store.do_all()
    assert len(store.records) == 3
    seen = last_id(world, stream)
    world.end(stream, GONE)
    world.wait(10.1)
    store.look()
    assert not store.records
    stream = client.resume(seen)
    for number in range(4, 8):
        world.send(child_of(world), notification(LOG, f'{{"data":{number}}}'))
    store.do_all()
    assert tags(world, stream) == [4, 5, 6, 7]
    assert len(store.records) == 3


def test_the_room_of_forgotten_events_is_free_again() -> None:
    world, store = storing(events_max=1, events_stored_max_bytes=2500)
    for _ in range(20):
        client = connect(world, "http", "pipe")
        filled(world, store, client, "1", is_over=False)
        filled(world, store, client, "2", is_over=True)
        assert len(store.records) == 4
        client.delete()
        store.look()
        assert not store.records
        world.unread.clear()


def test_a_stream_that_is_over_is_kept_while_its_client_catches_up() -> None:
    world, store, client, call = missing(events_max=1, stream_ttl_s=10.0)
    call.progress(1)
    call.answer()
    store.do_all()
    world.wait(9.0)
    again = client.resume("1-1")
    world.wait(5.0)
    store.do_all()
    assert tags(world, again) == [1, ANSWER]
    world.end(again)
    world.wait(10.1)
    assert is_refused(world, client.resume("1-1"), 400)


def test_a_client_whose_stream_is_forgotten_while_it_catches_up_is_cut_off() -> None:
    """The connection is closed, so that its client does not take silence for the end."""
    world, store, client, call = missing(events_max=1, resumable_per_session_max=1)
    call.progress(1)
    call.answer()
    store.do_all()
    again = client.resume("1-1")
    cut_off(world, client, "2")
    assert again in world.closed
    store.do_all()
    assert tags(world, again) == []


def test_the_defaults_let_the_largest_message_through() -> None:
    limits = Limits()
    assert limits.events_stored_per_session_max_bytes >= limits.reply_size_max_bytes + MIB
