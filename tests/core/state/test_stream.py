"""A stream that outlives its connection: its event ids, the events it keeps, and the order in which they are
dropped."""

from __future__ import annotations

import itertools
import re

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.ids import ChannelId
from isthmus.core.state.stream import EventPlace, Kept, Stream, parse_event_id

numbers = st.integers(1, 10**15 - 1)


def stream(number: int = 7) -> Stream:
    made = Stream(ChannelId(1), may_resume=True)
    made.number = number
    return made


def filled(flags: str) -> Stream:
    """A stream with an event for each letter: "l" is lossy, "k" must be kept. Each message is its place, from 1."""
    made = stream()
    for place, flag in enumerate(flags, 1):
        made.keep(b"%d" % place, is_last=False, is_lossy=flag == "l")
    return made


def drop_one(of: Stream, *, of_held: bool = False) -> Kept:
    victim = of.next_victim(of_held=of_held)
    of.drop(victim)
    return victim


def rest(of: Stream, ordinal: int) -> list[Kept]:
    """The events after an ordinal, as a client that resumes walks through them."""
    found = []
    while (kept := of.after(ordinal)) is not None:
        found.append(kept)
        ordinal = kept.ordinal
    return found


def plain(kept: Kept) -> tuple[int, int, bool, bool, bool]:
    return (kept.ordinal, kept.size_bytes, kept.is_last, kept.is_lossy, kept.place is EventPlace.HELD)


# --- Ids --------------------------------------------------------------------------------------------------------------


@given(number=numbers, count=st.integers(1, 5), primes=st.integers(0, 3))
def test_an_id_names_its_stream_and_its_event(number: int, count: int, primes: int) -> None:
    """Events that are not kept, and only carry an id to resume at, count like any other."""
    made = stream(number)
    names = [made.next_event_id() for _ in range(primes)]
    names += [made.keep(b"{}", is_last=False, is_lossy=False) for _ in range(count)]
    assert [parse_event_id(name) for name in names] == [(number, ordinal + 1) for ordinal in range(primes + count)]
    assert made.last_ordinal == primes + count
    assert made.kept_count == count


@given(number=numbers, ordinal=numbers)
def test_a_written_id_can_be_read(number: int, ordinal: int) -> None:
    assert parse_event_id(f"{number}-{ordinal}") == (number, ordinal)


@each_row(
    "text",
    [
        "",
        "-",
        "1",
        "1-",
        "-1",
        "1-1-1",
        "01-1",
        "1-01",
        "0-1",
        "1-0",
        "+1-1",
        "1--1",
        " 1-1",
        "1-1 ",
        "1-1\n",
        "1 -1",
        "1_0-1",
        "1.0-1",
        "a-1",
        "0x1-1",
        "١-١",
        "¹-1",
        "1-" + "9" * 16,
        "9" * 5000 + "-1",
        "\0",
    ],
)
def test_any_other_text_is_no_id(text: str) -> None:
    assert parse_event_id(text) is None


@given(text=st.one_of(st.text(max_size=12), st.text(alphabet="0123456789- \n", max_size=12)))
def test_a_read_id_is_written_the_same_way(text: str) -> None:
    """No two texts name one event."""
    found = parse_event_id(text)
    assert found is None or f"{found[0]}-{found[1]}" == text
    assert (found is None) != bool(re.fullmatch(r"[1-9][0-9]{0,14}-[1-9][0-9]{0,14}", text, re.ASCII))


# --- Kept events ------------------------------------------------------------------------------------------------------

sizes = st.integers(0, 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), sizes, st.booleans()),
        st.tuples(st.sampled_from(["prime", "drop", "drop held", "store"]), st.just(0), st.just(False)),
    ),
    max_size=30,
)


@given(steps=steps, ends=st.booleans())
def test_a_stream_gives_back_what_a_list_would(steps: list[tuple[str, int, bool]], ends: bool) -> None:
    """Any event is followed by exactly the later ones that are left, in order, whatever was kept, named, stored and
    dropped; stored events come before held ones."""
    made = stream()
    model: list[tuple[int, int, bool, bool, bool]] = []
    ordinal = 0
    for what, size, is_lossy in [*steps, *([("last", 3, False)] if ends else [])]:
        if what in ("drop", "drop held"):
            may_go = [kept for kept in model if kept[4] or what == "drop"]
            if may_go:
                victim = next((kept for kept in may_go if kept[3]), may_go[0])
                model.remove(victim)
                assert plain(drop_one(made, of_held=what == "drop held")) == victim
            continue
        if what == "store":
            held = next((i for i, kept in enumerate(model) if kept[4]), None)
            if held is not None:
                model[held] = (*model[held][:4], False)
                assert plain(made.store_one()) == model[held]
            continue
        ordinal += 1
        if what == "prime":
            assert made.next_event_id() == made.event_id(ordinal)
        else:
            model.append((ordinal, size, what == "last", is_lossy, True))
            assert made.keep(b"x" * size, is_last=what == "last", is_lossy=is_lossy) == f"7-{ordinal}"
        assert made.last_ordinal == ordinal
    assert made.kept_count == len(model)
    for is_held, count, size_bytes in (
        (True, made.held_count, made.held_bytes),
        (False, made.stored_count, made.stored_bytes),
    ):
        sizes = [size for _, size, _, _, held in model if held is is_held]
        assert (count, size_bytes) == (len(sizes), sum(sizes))
    assert made.is_over == ends
    for since in range(ordinal + 2):
        assert [plain(kept) for kept in rest(made, since)] == [kept for kept in model if kept[0] > since]
        assert made.keeps(since) == any(kept[0] == since for kept in model)
    assert [plain(kept) for kept in made.clear()] == model
    assert (made.kept_count, made.held_count, made.stored_count) == (0, 0, 0)


def test_notifications_are_dropped_first_then_the_oldest_event() -> None:
    for flags in ("".join(letters) for size in range(1, 7) for letters in itertools.product("lk", repeat=size)):
        made = filled(flags)
        gone = [drop_one(made).ordinal for _ in flags]
        assert gone == sorted(range(1, len(flags) + 1), key=lambda place: (flags[place - 1] == "k", place)), flags
        assert (made.kept_count, made.held_bytes) == (0, 0)


def test_a_notification_does_not_displace_a_server_request() -> None:
    """A log notification is dropped first, even if it is newer than a server request."""
    made = filled("kl")
    drop_one(made)
    assert [kept.message for kept in rest(made, 0)] == [b"1"]


def test_nothing_follows_the_last_event() -> None:
    made = stream()
    made.keep(b"{}", is_last=True, is_lossy=False)
    with pytest.raises(AssertionError):
        made.keep(b"{}", is_last=False, is_lossy=False)
    assert made.kept_count == 1


def test_a_stream_without_a_number_has_no_ids() -> None:
    with pytest.raises(AssertionError):
        Stream(ChannelId(1), may_resume=True).next_event_id()


def test_a_dropped_event_leaves_the_count_that_it_is_in() -> None:
    """A stored event counts as stored and no longer as held; a dropped one takes its size along."""
    made = filled("kkk")
    for message in (b"xxxx", b"yyyyyyyy"):
        made.keep(message, is_last=False, is_lossy=False)
    assert (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes) == (5, 15, 0, 0)
    for _ in range(4):
        made.store_one()
    assert (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes) == (1, 8, 4, 7)
    first, *_, fourth, last = rest(made, 0)
    assert (fourth.place, last.place) == (EventPlace.SAVING, EventPlace.HELD)
    made.drop(fourth)
    assert (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes) == (1, 8, 3, 3)
    made.drop(last)
    assert (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes) == (0, 0, 3, 3)
    made.drop(first)
    assert (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes) == (0, 0, 2, 2)
    assert len(made.clear()) == 2
    assert (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes) == (0, 0, 0, 0)


def test_a_stream_begins_with_nothing() -> None:
    """A new stream has no number and no event."""
    made = Stream(ChannelId(3))
    names = ("number", "last_ordinal", "faded_ordinal", "replay", "channel", "kept_count")
    assert [getattr(made, name) for name in names] == [None, 0, 0, None, 3, 0]
    assert not (made.is_over or made.may_resume or made.is_listening)
    counts = (made.held_count, made.held_bytes, made.stored_count, made.stored_bytes)
    assert counts == (0, 0, 0, 0)
    kept = Kept(1, b"m", 1)
    assert (kept.is_last, kept.is_lossy, kept.place) == (False, False, EventPlace.HELD)


def test_lossy_events_kept_at_once_are_like_those_kept_singly() -> None:
    """Ids, order and sizes agree, and the first are dropped while too many are held."""
    one_by_one, at_once = stream(), stream()
    for made in (one_by_one, at_once):
        made.keep(b"lossy", is_last=False, is_lossy=True)
    ids = tuple(one_by_one.keep(message, is_last=False, is_lossy=True) for message in (b"1", b"22", b"333"))
    assert at_once.keep_lossy([b"1", b"22", b"333"], 6) == ids == ("7-2", "7-3", "7-4")
    assert [plain(kept) for kept in rest(at_once, 0)] == [plain(kept) for kept in rest(one_by_one, 0)]
    assert (at_once.held_count, at_once.held_bytes) == (4, 11)
    assert at_once.drop_lossy(4) == 0
    assert at_once.drop_lossy(2) == 6
    assert [kept.message for kept in rest(at_once, 0)] == [b"22", b"333"]
    assert (at_once.held_count, at_once.held_bytes) == (2, 5)
    at_once.store_one()
    assert at_once.drop_lossy(0) == 0, "what is in the storage is not here"
    made = filled("kl")
    assert made.drop_lossy(0) == 0, "what must be kept is in front"
