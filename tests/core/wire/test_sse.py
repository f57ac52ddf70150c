"""Event streams: the reader follows WHATWG's algorithm, however the bytes were cut, at linear cost."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.wire import sse
from isthmus.core.wire.chunks import Chunks
from isthmus.core.wire.sse import (
    COMMENT,
    DROPPED_LINE_MAX_BYTES,
    RETRY_MAX_MS,
    Event,
    EventReader,
    Identified,
    Oversize,
    Retry,
    SseEvent,
    encode_event,
    encode_events,
)
from isthmus.core.wire.truncated import HEAD_SIZE_MAX_BYTES, TAIL_SIZE_MAX_BYTES

EVERYTHING = 1 << 30
# Whole lines and parts of them, so that both meaningful streams and nearly meaningful ones are common.
PIECES = [
    *[
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b":",
        b": ",
        b" ",
        b"\0",
        b"7",
        b"\xef\xbb\xbf",
        b"\xef\xbb",
        b"\xe2\x82\xac",
        b"\xe2",
    ],
    *[b"data", b"data:", b"data: ", b"data: {}\n", b"data:x\r\n", b"event: message\n", b"event: message\ndata: {}\n\n"],
    *[b"event: message\r\ndata: {}\r\n\r\n", b"event: message\ndata: ", b"event", b"event:", b"event: ping\n", b"id"],
    *[b"id: 1\n", b"id:\n", b"id: a\0b\n", b"id: \xff\n", b"retry", b"retry: 30\n", b"retry: -1\n", b"retry: 0012\n"],
    *[b": note\n", b"other: x\n", b" data: x\n", b"dataset: x\n", b"Data: x\n"],
]
LINES = [
    *(piece.strip(b"\r\n") for piece in PIECES if b"\n" not in piece.strip(b"\r\n")),
    b"",
    b"",
    b"",
    b"data: {}",
    b"id: 2",
]
STREAMS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=14).map(b"".join) | st.lists(
    st.builds(bytes.__add__, st.sampled_from(LINES), st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])), max_size=14
).map(b"".join)
CUTS = st.lists(st.integers(0, 160), max_size=8)


def feed(chunks: list[bytes], event_size_max_bytes: int = EVERYTHING) -> list[SseEvent]:
    reader = EventReader(event_size_max_bytes=event_size_max_bytes)
    events: list[SseEvent] = []
    for chunk in chunks:
        events += reader.receive_bytes(chunk)
    return [*events, *reader.receive_eof()]


def feed_plain(chunks: list[bytes], event_size_max_bytes: int = EVERYTHING) -> list[SseEvent]:
    """Feeds the chunks as `feed` does, after looking for plain events."""
    reader = EventReader(event_size_max_bytes=event_size_max_bytes)
    events: list[SseEvent] = []
    for chunk in chunks:
        messages, rest = reader.take_plain(chunk)
        events += [Event("message", message, reader.last_event_id) for message in messages]
        events += reader.receive_bytes(rest)
    return [*events, *reader.receive_eof()]


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    """`stream` in pieces, some of them empty."""
    edges = [0, *sorted(min(i, len(stream)) for i in at), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def singly(stream: bytes) -> list[bytes]:
    return [stream[i : i + 1] for i in range(len(stream))]


def interpret(stream: bytes) -> list[tuple[str, ...]]:
    """Follows WHATWG HTML, "Interpreting an event stream", step by step on the decoded text. Writes down what a browser
    would do: dispatched events, changed reconnection times, and events without data that have an id."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    done: list[tuple[str, ...]] = []
    data_buffer = event_type_buffer = ""
    last_event_id_buffer: str | None = None
    names_id = False
    lines = re.split(r"\r\n|\n|\r", text)
    for line in lines[:-1]:  # what follows the last line end is no line
        if line == "":
            if data_buffer.removesuffix("\n") == "":
                if names_id:
                    assert last_event_id_buffer is not None
                    done.append(("identified", last_event_id_buffer))
            else:
                event_type = "message" if event_type_buffer == "" else event_type_buffer
                done.append(("event", event_type, data_buffer[:-1], repr(last_event_id_buffer)))
            data_buffer = event_type_buffer = ""
            names_id = False
            continue
        if line.startswith(":"):
            continue
        if ":" in line:
            field, value = line.split(":", 1)
            if value.startswith(" "):
                value = value[1:]
        else:
            field, value = line, ""
        if field == "event":
            event_type_buffer = value
        elif field == "data":
            data_buffer += value
            data_buffer += "\n"
        elif field == "id":
            if "\0" not in value:
                last_event_id_buffer = value
                names_id = True
        elif field == "retry" and value != "" and set(value) <= set("0123456789"):
            done.append(("retry", str(min(int(value), RETRY_MAX_MS))))
    return done


def interpreted(events: list[SseEvent]) -> list[tuple[str, ...]]:
    """The reader's events in the form of `interpret`."""
    words: list[tuple[str, ...]] = []
    for event in events:
        match event:
            case Event(type, data, id):
                words.append(("event", type, data.decode("utf-8", "replace"), repr(id)))
            case Identified(id):
                words.append(("identified", id))
            case Retry(ms):
                words.append(("retry", str(ms)))
            case Oversize():
                words.append(("oversize",))
    return words


@settings(max_examples=400)
@given(stream=STREAMS, at=CUTS)
@example(stream=b"data\n\ndata\ndata\n\ndata:", at=[])  # WHATWG's own examples
@example(stream=b"data:test\n\ndata: test\n\n", at=[])
@example(stream=b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n", at=[])
@example(stream=b"data: YHOO\ndata: +2\ndata: 10\n\n", at=[9, 10, 11])
@example(
    stream=b"event: message\ndata: 1\n\n\xef\xbb\xbfdata: 2\n\n", at=[]
)  # a mark that is none, after the short way
@example(stream=b"event: message\ndata: \n\n", at=[])  # the short way does not hold for empty data
@example(stream=b"data: event: message\ndata: 1\n\n", at=[6])  # nor within a line
@example(stream=b"id: 1\nevent: message\ndata: 1\n\n", at=[6])  # nor within an event
@example(stream=b"data: 1\r\ndata: 2\n\n", at=[8, 8])  # nothing arrives between CR and LF
@example(stream=b"event: ping\n\ndata: 1\n\n", at=[])  # a name does not outlive its event
def test_the_reader_does_what_the_specification_says(stream: bytes, at: list[int]) -> None:
    """Any cutting of any stream gives what the algorithm gives for the whole."""
    assert interpreted(feed(cut(stream, at))) == interpret(stream)
    assert interpreted(feed(singly(stream))) == interpret(stream)


@given(stream=STREAMS, limit=st.integers(1, 48), at=CUTS)
def test_oversize_events_do_not_depend_on_cuts(stream: bytes, limit: int, at: list[int]) -> None:
    """The dropped events and their sizes depend on the bytes only."""
    whole = feed([stream], limit)
    assert feed(cut(stream, at), limit) == whole
    assert feed(singly(stream), limit) == whole
    assert all(e.size_bytes > limit for e in whole if isinstance(e, Oversize))
    assert all(len(e.data) <= limit for e in whole if isinstance(e, Event))


@settings(max_examples=400)
@given(stream=STREAMS, limit=st.integers(4, 48), at=CUTS)
def test_a_dropped_event_loses_only_the_middle_of_its_data(stream: bytes, limit: int, at: list[int]) -> None:
    """The events with a limit are those without, except that dropped ones have only the start and the end of their
    data. A dropped event without data or id has no counterpart."""
    limited = feed(cut(stream, at), limit)
    free: list[SseEvent] = [event for event in feed([stream]) if not isinstance(event, Retry)]
    for event in limited:
        match event:
            case Retry():
                continue
            case Oversize(_, id, type, head, tail):
                if free and isinstance(free[0], Event) and head:
                    plain = free.pop(0)
                    assert isinstance(plain, Event)
                    assert (type, id) == (plain.type, plain.id)
                    assert head == plain.data[:limit]
                    assert tail == plain.data[-TAIL_SIZE_MAX_BYTES:]
                elif free and isinstance(free[0], Identified) and free[0].id == id and not head:
                    free.pop(0)
            case _:
                assert event == free.pop(0)
    assert all(event.size_bytes > limit for event in limited if isinstance(event, Oversize))


FIELDS = st.sampled_from([b"data: ", b"data:", b"id: 7", b"event: other\n", b"id: ", b": ", b"retry: 5\n", b"x"])


@given(
    parts=st.lists(FIELDS | st.integers(0, 20_000).map(lambda size: b"0123456789" * (size // 10) + b"\n"), max_size=12),
    at=st.lists(st.integers(0, 100_000), max_size=8),
    end=st.sampled_from([b"\n", b"\r", b"\r\n"]),
)
def test_the_ends_of_long_events_are_exact(parts: list[bytes], at: list[int], end: bytes) -> None:
    """The first 4 KiB and the last 320 bytes, however many lines they were in, and however they were cut."""
    stream = (b"".join(parts) + b"\n\n").replace(b"\n", end)
    plain = [event for event in feed([stream]) if isinstance(event, Event)]
    limited = feed(cut(stream, at), 5000)
    assert limited == feed([stream], 5000)
    whole = [event for event in limited if isinstance(event, Event) or (isinstance(event, Oversize) and event.head)]
    for was, event in zip(whole, plain, strict=False):
        if isinstance(was, Oversize) and max(map(len, stream.splitlines())) <= DROPPED_LINE_MAX_BYTES:
            assert (was.id, was.type) == (event.id, event.type)
        if isinstance(was, Oversize):
            assert was.head == event.data[:HEAD_SIZE_MAX_BYTES]
            assert was.tail == event.data[-TAIL_SIZE_MAX_BYTES:]


TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=6)
EVENTS = st.builds(
    Event,
    type=TEXT.filter(bool) | st.just("message"),
    data=st.binary(min_size=1, max_size=30).map(lambda b: b.replace(b"\r", b" ").replace(b"\n", b" ")),
    id=st.none() | TEXT,
)


@given(events=st.lists(EVENTS, max_size=6), limit=st.integers(30, 60), at=CUTS)
def test_encoded_events_are_read_again_within_the_limit(events: list[Event], limit: int, at: list[int]) -> None:
    """Each event is read with the last id named so far; one whose lines are over the limit gives its size."""
    stream = COMMENT.join([b"", *(encode_event(e.data, event=e.type, id=e.id) for e in events), b""])
    expected: list[SseEvent] = []
    last_id: str | None = None
    for e in events:
        size_bytes = len(f"event: {e.type}".encode())
        if e.id is not None:
            size_bytes += len(f"id: {e.id}".encode())
            last_id = e.id
        size_bytes += len(b"data: " + e.data)
        dropped = Oversize(size_bytes, last_id, e.type, e.data, e.data)
        expected.append(Event(e.type, e.data, last_id) if size_bytes <= limit else dropped)
    assert feed(cut(stream, at), limit) == expected


BLOCKS = st.sampled_from(
    [
        *4 * [b"event: message\ndata: {}\n\n", b"event: message\ndata: [1]\n\n"],
        *2 * [b"data: {}\n\n", b"data: 1\n\n"],
        b"event: message\ndata: \n\n",
        b"event: message\ndata: 1\ndata: 2\n\n",
        b"event: message\r\ndata: 1\r\n\r\n",
        b"event: ping\ndata: 1\n\n",
        b"id: 7\ndata: 1\n\n",
        b": comment\n\n",
        b"\xef\xbb\xbf",
        b"\n",
        b"data: 1\r",
        b"event: message\ndata: 1",
    ]
)


@given(blocks=st.lists(BLOCKS, max_size=8), limit=st.integers(1, 60), at=CUTS)
def test_a_look_for_plain_events_changes_nothing(blocks: list[bytes], limit: int, at: list[int]) -> None:
    """The events are the same for all blocks, however they are cut, and at the limit."""
    stream = b"".join(blocks)
    assert feed_plain(cut(stream, at)) == feed([stream])
    assert feed_plain(cut(stream, at), limit) == feed([stream], limit)


def test_plain_events_are_taken_as_they_are_and_the_rest_is_left() -> None:
    reader = EventReader(event_size_max_bytes=EVERYTHING)
    assert reader.take_plain(3 * b"event: message\ndata: {}\n\n" + b"event: mes") == (3 * [b"{}"], b"event: mes")
    assert reader.take_plain(2 * b"data: {}\n\n") == (2 * [b"{}"], b"")
    assert reader.take_plain(b"data: {}\n\nid: 1\ndata: {}\n\n")[0] == []
    assert reader.take_plain(b"data: \n\n")[0] == []
    assert reader.take_plain(b"data: 1\r2\n\n")[0] == []
    assert reader.receive_bytes(b"\xef\xbb\xbfdata: 1\n\n") == [], "a mark of order is one at the beginning only"
    reader.receive_bytes(b"data: ")
    assert reader.take_plain(b"data: {}\n\n")[0] == [], "it is within an event"


@given(messages=st.lists(st.binary(min_size=1, max_size=8), max_size=4), has_ids=st.booleans())
@example(messages=[b"a\rb"], has_ids=False)
def test_several_events_are_encoded_as_each_is(messages: list[bytes], has_ids: bool) -> None:
    ids = [f"3-{number}" for number in range(len(messages))] if has_ids else []
    singly = [encode_event(m, id=ids[at] if ids else None) for at, m in enumerate(messages)]
    assert encode_events(messages, ids) == b"".join(singly)


def test_one_event_is_three_lines() -> None:
    """LF only, one data line, line ends in the message flattened; an id where one is given."""
    assert encode_event(b'{"a":\r\n1}') == b'event: message\ndata: {"a":  1}\n\n'
    assert encode_event(b"/m", event="endpoint") == b"event: endpoint\ndata: /m\n\n"
    assert encode_event(b"", id="s.1") == b"event: message\nid: s.1\ndata: \n\n"
    assert feed([encode_event(b"", id="s.1"), COMMENT]) == [Identified("s.1")]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b"])
def test_names_and_ids_are_one_line(value: str) -> None:
    """A value that breaks the framing, or that readers ignore, is the caller's mistake."""
    with pytest.raises(LocalProtocolError):
        encode_event(b"{}", event=value)
    with pytest.raises(LocalProtocolError):
        encode_event(b"{}", id=value)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_known_at_its_last_byte(end: bytes) -> None:
    """No line end keeps the reader waiting for the byte after it, except that CRLF is known at its CR."""
    reader = EventReader(event_size_max_bytes=100)
    head = b"data: {}" + end
    assert reader.receive_bytes(head) == []
    assert reader.receive_bytes(end[:1]) == [Event("message", b"{}", None)]
    assert reader.receive_bytes(end[1:] + b"data: 1" + end + end) == [Event("message", b"1", None)]


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"10000000", 10_000_000),
        (b"86399999", RETRY_MAX_MS - 1),
        (b"86400001", RETRY_MAX_MS),
        (b"100000000", RETRY_MAX_MS),
        (b"9" * 5000, RETRY_MAX_MS),
        (b"0" * 5000 + b"1", 1),
    ],
)
def test_retry_is_a_number_of_any_length(value: bytes, ms: int) -> None:
    """Digits are a time, at most a day however many they are; it holds at once, before its event ends."""
    assert feed([b"retry: " + value + b"\n"]) == [Retry(ms)]


@pytest.mark.parametrize("value", [b"", b" 5", b"-1", b"+1", b"1.5", b"1s", "\u0661".encode()])
def test_retry_of_other_than_ascii_digits_is_ignored(value: bytes) -> None:
    assert feed([b"retry: " + value + b"\n\n"]) == []


def test_the_limit_is_exact_and_the_stream_goes_on() -> None:
    """An event of the limit passes, one byte more is dropped; its id counts wherever it is."""
    within, over = b"id: 1\ndata: 12\n\n", b"id: 2\ndata: 123\nid: 3\n\n"
    assert feed([within + over + b"data: {}\n\n"], 13) == [
        Event("message", b"12", "1"),
        Oversize(5 + 9 + 5, "3", head=b"123", tail=b"123"),
        Event("message", b"{}", "3"),
    ]


def test_a_mark_after_a_dropped_first_line_is_none() -> None:
    """The start of the stream is its first line, even if that was dropped."""
    assert feed([b"data: 12345678\n\n\xef\xbb\xbfdata: 1\n\n"], 12) == [
        Oversize(14, head=b"12345678", tail=b"12345678")
    ]


def test_the_limit_is_the_same_for_ordinary_blocks() -> None:
    """The fast path for ordinary blocks counts as the full reader does."""
    block = b"event: message\ndata: 12345\n\n"
    assert feed([block], 25) == feed(singly(block), 25) == [Event("message", b"12345", None)]
    dropped = Oversize(25, head=b"12345", tail=b"12345")
    assert feed([block], 24) == feed(singly(block), 24) == [dropped]


def test_comments_without_end_are_no_event() -> None:
    """Keep-alives, and unknown fields, do not add up to an event over the limit."""
    assert feed([b": keep-alive\nother: x\n" * 100 + b"data: {}\n\n"], 20) == [Event("message", b"{}", None)]


def test_the_end_discards_what_is_unfinished() -> None:
    """A cut-off event is gone, and so is its id; only one already over the limit is reported. The end is final."""
    reader = EventReader(event_size_max_bytes=20)
    assert reader.receive_bytes(b"id: 1\ndata: {}\n\nid: 2\ndata: {}\n") == [Event("message", b"{}", "1")]
    assert reader.receive_eof() == []
    assert reader.last_event_id == "1"
    with pytest.raises(LocalProtocolError):
        reader.receive_bytes(b"\n")
    assert feed([b"data: " + b"x" * 30], 20) == [Oversize(36)]
    assert reader.receive_eof() == []


class Work:
    """Bytes that were searched or copied, and the most that a buffer ever held."""

    touched = 0
    held_max = 0


class Chunk(bytes):
    """A chunk that counts what is done to it."""

    def find(self, *args: Any) -> int:
        start = args[1] if len(args) > 1 else 0
        found = super().find(*args)
        Work.touched += (len(self) if found < 0 else found) - start
        return found

    def replace(self, *args: Any) -> bytes:
        Work.touched += len(self)
        return Chunk(super().replace(*args))

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, int):
            return part
        Work.touched += len(part)
        return Chunk(part)


class Buffer(bytearray):
    """A buffer that counts what is done to it."""

    def __init__(self, content: bytes | bytearray = b"") -> None:
        super().__init__(content)
        Work.touched += len(content)

    def __iadd__(self, other: Any) -> Buffer:  # type: ignore[misc]
        Work.touched += len(other)
        super().__iadd__(other)
        Work.held_max = max(Work.held_max, len(self))
        return self

    def find(self, *args: Any) -> int:
        start = args[1] if len(args) > 1 else 0
        found = super().find(*args)
        Work.touched += (len(self) if found < 0 else found) - start
        return found

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        Work.touched += 0 if isinstance(part, int) else len(part)
        return part


class CountedChunks(Chunks):
    """Pieces that count what is done to them."""

    __slots__ = ()

    def append(self, piece: bytes | bytearray) -> None:
        super().append(piece)
        Work.touched += len(piece)
        Work.held_max = max(Work.held_max, self.size_bytes)

    def take(self, skip: int = 0) -> bytes:
        Work.touched += self.size_bytes
        return super().take(skip)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> type[Work]:
    Work.touched = Work.held_max = 0
    monkeypatch.setattr(sse, "bytearray", Buffer, raising=False)
    monkeypatch.setattr(sse, "Chunks", CountedChunks)
    return Work


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("prefix", [b"event: message\n", b"id: 1\n", b"data: 0\n"])
@pytest.mark.parametrize("data_size_bytes", [10_000_000, 40, 1])
def test_work_is_linear(work: type[Work], prefix: bytes, end: bytes, data_size_bytes: int) -> None:
    """Each byte is touched a fixed number of times, in one long event and in many short ones."""
    size_bytes = 10_000_000 if data_size_bytes > 1000 else 10_000
    stream = (prefix + b"data: " + b"x" * data_size_bytes + b"\n\n").replace(b"\n", end) * (
        size_bytes // data_size_bytes
    )
    for step in (64 * 1024, len(stream)):
        work.touched = 0
        reader = EventReader(event_size_max_bytes=EVERYTHING)
        chunks = (Chunk(stream[i : i + step]) for i in range(0, len(stream), step))
        events = [event for chunk in chunks for event in reader.receive_bytes(chunk)]
        assert len(events) == size_bytes // data_size_bytes
        assert size_bytes <= work.touched <= 8 * len(stream)


def test_many_data_lines_are_linear_and_leave_no_object_each(work: type[Work]) -> None:
    """One event of ten thousand data lines is gathered in one buffer."""
    stream = b"data: ab\n" * 10_000 + b"\n"
    events = EventReader(event_size_max_bytes=EVERYTHING).receive_bytes(Chunk(stream))
    assert events == [Event("message", b"\n".join([b"ab"] * 10_000), None)]
    assert work.held_max == 30_000 - 1
    assert work.touched <= 6 * len(stream)


def test_no_more_than_the_limit_is_buffered(work: type[Work]) -> None:
    """An endless line, or an endless event, is counted and forgotten."""
    for unit in (b"x" * 1000, b"data: " + b"x" * 993 + b"\n"):
        reader = EventReader(event_size_max_bytes=100_000)
        reader.receive_bytes(b"data: ")
        for _ in range(1000):
            assert reader.receive_bytes(Chunk(unit)) == []
        assert 0 < work.held_max <= 100_000
        assert [type(e) for e in reader.receive_bytes(b"\n\ndata: {}\n\n")] == [Oversize, Event]


def test_the_usual_prefixes_are_read_as_the_full_reader_does() -> None:
    """An empty event field before each event has no meaning, but hides the prefix from the fast path; the events are
    the same."""
    prefixes = [
        b"",
        b"event: message\n",
        b"id: 1\n",
        b"id: \n",
        b"id: \xe2\x82\xac\n",
        b"id: a\0\n",
        b"id: " + b"9" * 129 + b"\n",
    ]
    blocks = [
        early + late + b"data: {}\n" + more + b"\n"
        for early, late in itertools.product(prefixes, prefixes)
        for more in (b"", b"data: []\n", b"id: 7\n", b"event: other\n")
    ]
    plain, hidden = (EventReader(event_size_max_bytes=EVERYTHING) for _ in range(2))
    for block in blocks:
        assert plain.receive_bytes(block) == hidden.receive_bytes(b"event:\n" + block)
        assert plain.last_event_id == hidden.last_event_id


@pytest.mark.parametrize("id", [b"\0", b"a\0", b"\0b", b"a\0b"])
def test_an_id_with_a_nul_is_ignored(id: bytes) -> None:
    """The id before it stays."""
    assert feed([b"id: 1\n\nid: " + id + b"\n\ndata: x\n\n"])[-1] == Event("message", b"x", "1")


@pytest.mark.parametrize("field", ["data: x", "id: 1", "event: y"])
def test_an_event_of_too_many_lines_is_dropped_and_skipped(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the bytes are cut, what is behind it arrives, and its lines are not read any more."""
    monkeypatch.setattr(sse, "LINES_MAX", 3)
    lines = [b"data: a", *[field.encode()] * 3, b"id: late", b"data: z"]
    stream = b"\n".join([*lines, b"", b"data: next", b"", b""])
    whole = sse.EventReader(event_size_max_bytes=1000)
    found = whole.receive_bytes(stream)
    assert [type(event) for event in found] == [sse.Oversize, sse.Event]
    assert found[0].head.startswith(b"a") and found[1].data == b"next"
    assert whole.last_event_id == ("1" if field == "id: 1" else None)
    for cut in range(len(stream)):
        reader = sse.EventReader(event_size_max_bytes=1000)
        pieces = reader.receive_bytes(stream[:cut]) + reader.receive_bytes(stream[cut:])
        assert pieces == found
    single = sse.EventReader(event_size_max_bytes=1000)
    assert [event for i in range(len(stream)) for event in single.receive_bytes(stream[i : i + 1])] == found
    fewer = sse.EventReader(event_size_max_bytes=1000)
    assert [type(event) for event in fewer.receive_bytes(b"data: a\ndata: b\n\n" * 4)] == [sse.Event] * 4
