"""Event streams at their edges: byte order marks, bytes that are no text, line ends within messages, and long lines."""

from __future__ import annotations

import itertools

import pytest
from each_row import each_row
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.wire.sse import (
    Event,
    EventReader,
    Identified,
    Oversize,
    Retry,
    SseEvent,
    encode_event,
    encode_events,
)

BOM = b"\xef\xbb\xbf"
ODD = "\ufffd"


def feed(*chunks: bytes, limit: int = 1 << 20) -> list[SseEvent]:
    reader = EventReader(event_size_max_bytes=limit)
    return [event for chunk in chunks for event in reader.receive_bytes(chunk)] + list(reader.receive_eof())


def singly(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (BOM + b"data: 1\n\n", [Event("message", b"1", None)]),
        (BOM + b"event: message\ndata: 1\n\n" + BOM + b"data: 2\n\n", [Event("message", b"1", None)]),
        (BOM + b"\n" + BOM + b"data: 2\n\ndata: 3\n\n", [Event("message", b"3", None)]),
        (BOM + BOM + b"data: 1\n\n", []),
        (BOM + b"id: 1\n\n", [Identified("1")]),
        (BOM[:2] + b"data: 1\n\n", []),
    ],
)
def test_a_byte_order_mark_is_skipped_at_the_start_of_a_stream(
    stream: bytes, events: list[SseEvent], is_cut: bool
) -> None:
    assert feed(*(singly(stream) if is_cut else [stream])) == events


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_byte_order_mark_is_skipped_before_a_dropped_event(is_cut: bool) -> None:
    stream = BOM + b"data: 12345678\n\ndata: 1\n\n"
    dropped = Oversize(17, head=b"12345678", tail=b"12345678")
    assert feed(*(singly(stream) if is_cut else [stream]), limit=12) == [dropped, Event("message", b"1", None)]


@pytest.mark.parametrize(
    ("stream", "event"),
    [
        (b"id: \xff\ndata: 1\n\n", Event("message", b"1", ODD)),
        (b"id: \xff\nevent: message\ndata: 1\n\n", Event("message", b"1", ODD)),
        (b"event: message\nid: \xff\ndata: 1\n\n", Event("message", b"1", ODD)),
        (b"data: 1\nid: \xff\n\n", Event("message", b"1", ODD)),
        (b"event: \xff\ndata: 1\n\n", Event(ODD, b"1", None)),
        (b"data: \xff\n\n", Event("message", b"\xff", None)),
        (b"id: \xff\n\n", Identified(ODD)),
    ],
)
def test_undecodable_names_are_replaced_and_data_is_left(stream: bytes, event: SseEvent) -> None:
    assert feed(stream) == feed(*singly(stream)) == [event]


@pytest.mark.parametrize(
    ("stream", "event"),
    [
        (b"id: a\nid: b\ndata: 1\n\n", Event("message", b"1", "b")),
        (b"id: a\nevent: message\nid: b\ndata: 1\n\n", Event("message", b"1", "b")),
        (b"id: a\nevent: message\nid: \ndata: 1\n\n", Event("message", b"1", "")),
        (b"event: a\nevent: b\ndata: 1\n\n", Event("b", b"1", None)),
        (b"event: a\nevent\ndata: 1\n\n", Event("message", b"1", None)),
        (b"data: 1\n:\ndata: 2\n\n", Event("message", b"1\n2", None)),
        (b"data: 1\nx\n\n", Event("message", b"1", None)),
        (b"event: message\ndata: 1\nx\ndata: 2\n\n", Event("message", b"1\n2", None)),
        (b"data\ndata\n\n", Event("message", b"\n", None)),
        (b"data:1\ndata:  2\ndata: 3\n\n", Event("message", b"1\n 2\n3", None)),
    ],
)
def test_the_last_of_several_fields_counts_and_data_is_joined(stream: bytes, event: SseEvent) -> None:
    assert feed(stream) == feed(*singly(stream)) == [event]


def test_an_id_lasts_for_the_stream() -> None:
    """An id counts in a block of the usual form, in any other, and without data."""
    reader = EventReader(event_size_max_bytes=100)
    assert reader.last_event_id is None
    ids = []
    for block in (b"data: 1\n\n", b"id: a\ndata: 1\n\n", b"data: 1\n\n", b"id: b\n\n", b"data: 1\n\n", b"id\n\n"):
        reader.receive_bytes(block)
        ids.append(reader.last_event_id)
    assert ids == [None, "a", "a", "b", "b", ""]
    reader.receive_bytes(b"id: c\ndata: 1\n")
    assert reader.last_event_id == "", "an event that has not ended names none"
    reader.receive_eof()
    assert reader.last_event_id == ""


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_lines_of_up_to_16_kib_of_a_dropped_event_are_read(over: int) -> None:
    """The id of a dropped event is kept, as it is needed for resumption."""
    id = "x" * (16 * 1024 - len("id: ") + over)
    lines = b"data: " + b"1" * 20_000 + b"\nid: " + id.encode()
    (dropped,) = feed(lines + b"\n\n", limit=50)
    assert isinstance(dropped, Oversize)
    assert dropped.id == (id if over <= 0 else None)
    assert dropped.size_bytes == len(lines) - 1


def test_an_event_that_never_ends_is_reported_without_its_data() -> None:
    (dropped,) = feed(b"event: x\ndata: 1234567890", limit=10)
    assert isinstance(dropped, Oversize)
    assert (dropped.size_bytes, dropped.id, dropped.type, dropped.head, dropped.tail) == (24, None, "x", b"", b"")
    assert feed(b"data: 1234567890", limit=10)[0] == Oversize(16, None, "message")
    assert feed(b"data: 1", limit=10) == []


@each_row("message", [b"1", b"1\n", b"\r1", b"1\r\n2", b"\n\n", b"\r\r", b'{"a":\n1}', b'{"a":\r1}'])
@each_row("has_ids", [False, True])
@each_row("others", [(), (b"2",)])
def test_line_ends_of_messages_are_flattened(message: bytes, has_ids: bool, others: tuple[bytes, ...]) -> None:
    """Any kind of line end, in any of the messages, is replaced."""
    flat = message.replace(b"\r", b" ").replace(b"\n", b" ")
    for order in set(itertools.permutations((message, *others))):
        ids = [f"{at}" for at in range(len(order))] if has_ids else []
        expected = b"".join(
            b"event: message\n" + (b"id: %d\n" % at if has_ids else b"") + b"data: " + (flat if one == message else one)
            + b"\n\n"
            for at, one in enumerate(order)
        )  # fmt: skip
        assert encode_events(order, ids) == expected


def test_an_event_is_written_with_all_its_fields() -> None:
    written = encode_event(b"1", event="e", id="i", retry_ms=0)
    assert written == b"event: e\nid: i\nretry: 0\ndata: 1\n\n"
    assert feed(written) == [Retry(0), Event("e", b"1", "i")]
    for event in ("message", "messages", "messageQ", ""):
        assert encode_event(b"1", event=event) == f"event: {event}\ndata: 1\n\n".encode()
    assert encode_event(b"1", id="", retry_ms=25) == b"event: message\nid: \nretry: 25\ndata: 1\n\n"


def test_a_stream_ends_once() -> None:
    """Input after the end is the caller's mistake; a second end gives no event."""
    reader = EventReader(event_size_max_bytes=10)
    reader.receive_bytes(b"data: 1234567890")
    assert len(reader.receive_eof()) == 1
    assert reader.receive_eof() == []
    with pytest.raises(LocalProtocolError, match="after the end"):
        reader.receive_bytes(b"")
    assert reader.take_plain(b"data: 1\n\n") == ([], b"data: 1\n\n")


def test_the_first_line_is_recognized_however_it_is_cut() -> None:
    """A byte order mark on the second line does not count."""
    assert feed(b"data", b": 1\n", BOM + b"data: 2\n\n") == [Event("message", b"1", None)]


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("first", [b"", b":\n"])
def test_a_line_in_pieces_counts_like_any_line(first: bytes, over: int) -> None:
    """The lines of an event count together, wherever they were cut."""
    stream = first + b"data: 12\nid: " + b"1" * (1 + over) + b"\n\n"
    expected = Oversize(14, "11", head=b"12", tail=b"12") if over else Event("message", b"12", "1")
    for chunks in ([stream], singly(stream), [stream[:6], stream[6:13], stream[13:]]):
        assert feed(*chunks, limit=13) == [expected]


def test_a_type_that_is_too_long_is_no_known_type() -> None:
    """The beginning of the type is kept."""
    (dropped,) = feed(b"event: " + b"x" * 20_000 + b"\ndata: 1\n\n", limit=50)
    assert isinstance(dropped, Oversize)
    assert set(dropped.type) == {"x"}
    (dropped,) = feed(b"other: " + b"x" * 20_000 + b"\nid: 7\ndata: 1\n\n", limit=50)
    assert isinstance(dropped, Oversize)
    assert (dropped.type, dropped.id) == ("message", "7")


@pytest.mark.parametrize("ids", [["1"], ["1", "2", "3"]])
def test_each_message_has_an_id_or_none_has(ids: list[str]) -> None:
    with pytest.raises(ValueError, match="zip"):
        encode_events([b"1", b"2"], ids)
    assert encode_events([], []) == b""
