"""Newline-delimited JSON: lines are split at LF, within the limit, however they were cut, at linear cost."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.wire import ndjson
from isthmus.core.wire.ndjson import Line, LineReader, Oversize, encode_line, encode_lines

BOM = b"\xef\xbb\xbf"
PIECES = [b"\n", b"\r", b"\r\n", b" ", b"\t", BOM, BOM[:2], b"{}", b'{"id":1}', b"\xe2\x80\xa8", b"\xc2\x85", b"x" * 9]
STREAMS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=16).map(b"".join)
EVERYTHING = 1 << 30


def feed(chunks: list[bytes], line_size_max_bytes: int = EVERYTHING) -> list[Line | Oversize]:
    reader = LineReader(line_size_max_bytes=line_size_max_bytes)
    events: list[Line | Oversize] = []
    for chunk in chunks:
        events += reader.receive_bytes(chunk)
    return [*events, *reader.receive_eof()]


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    """`stream` in pieces, some of them empty."""
    edges = [0, *sorted(min(i, len(stream)) for i in at), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def expected(stream: bytes, limit: int) -> list[Line | Oversize]:
    """The obvious reader, which has the whole stream and all the memory it wants."""
    events: list[Line | Oversize] = []
    head_max = min(4096, limit)
    for number, raw in enumerate(stream.split(b"\n")):
        bom = BOM if number == 0 else b""
        line = raw.removesuffix(b"\r").removeprefix(bom)
        if len(raw) > limit:
            events.append(Oversize(raw[:head_max].removeprefix(bom), len(raw), raw[-320:]))
        elif line.strip():
            events.append(Line(line))
    return events


@given(stream=STREAMS, limit=st.integers(1, 24) | st.just(EVERYTHING), at=st.lists(st.integers(0, 120), max_size=8))
@example(stream=BOM + BOM, limit=EVERYTHING, at=[1])
def test_long_lines_in_pieces_are_the_same_lines(stream: bytes, limit: int, at: list[int]) -> None:
    """The bounds of long lines and small pieces make no difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "SMALL_SIZE_MAX_BYTES", 3)
        reader = LineReader(line_size_max_bytes=limit, joined_size_max_bytes=4)
        events: list[Line | Oversize] = []
        for chunk in cut(stream, at):
            events += reader.receive_bytes(chunk)
        events += reader.receive_eof()
    joined = [Line(b"".join((line.data, *line.rest))) if isinstance(line, Line) else line for line in events]
    assert joined == expected(stream, limit)


def test_a_long_line_is_not_copied() -> None:
    """Only small pieces at its end are joined."""
    pieces = [bytes([65 + i]) * 5000 for i in range(9)]
    reader = LineReader(line_size_max_bytes=EVERYTHING, joined_size_max_bytes=40_000)
    for piece in pieces:
        assert reader.receive_bytes(piece) == []
    (line,) = reader.receive_bytes(b"x\r\n")
    assert isinstance(line, Line)
    assert line.data is pieces[0]
    assert all(got is piece for got, piece in zip(line.rest, pieces[1:-1], strict=False))
    assert line.rest[-1] == pieces[-1] + b"x"


@given(stream=STREAMS, limit=st.integers(1, 24) | st.just(EVERYTHING), at=st.lists(st.integers(0, 120), max_size=8))
def test_lines_are_the_split_at_lf_however_they_arrive(stream: bytes, limit: int, at: list[int]) -> None:
    """The result is that of the obvious reader, below and above the limit, however the stream is cut."""
    assert feed(cut(stream, at), limit) == expected(stream, limit)


@given(stream=STREAMS, limit=st.integers(1, 24))
def test_one_byte_at_a_time(stream: bytes, limit: int) -> None:
    """A stream may arrive byte by byte."""
    assert feed([stream[i : i + 1] for i in range(len(stream))], limit) == expected(stream, limit)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.lists(JSON, max_size=5), indent=st.none() | st.just(1), at=st.lists(st.integers(0, 400), max_size=5))
def test_every_message_comes_back(values: list[object], indent: int | None, at: list[int]) -> None:
    """An encoded message means the same when it was cut and read again, pretty-printed or not, escaped or not."""
    texts = [json.dumps(v, indent=indent, ensure_ascii=indent is None) for v in values]
    stream = b"".join(encode_line(t.encode("utf-8", "surrogatepass").replace(b"\n", b"\r\n")) for t in texts)
    assert stream.count(b"\n") == len(values)
    lines = feed(cut(stream, at))
    assert [
        json.loads(line.data.decode("utf-8", "surrogatepass")) for line in lines if isinstance(line, Line)
    ] == values
    assert len(lines) == len(values)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"\n\r\n \t\n", []),
        (b"{}\r\n", [Line(b"{}")]),
        (b"{}\r\r\n", [Line(b"{}\r")]),
        (b"a\rb\n", [Line(b"a\rb")]),
        (b'"\xe2\x80\xa8\xc2\x85"\n', [Line(b'"\xe2\x80\xa8\xc2\x85"')]),
        (BOM + b"{}\n" + BOM + b"{}\n", [Line(b"{}"), Line(BOM + b"{}")]),
        (BOM + b"\n{}\n", [Line(b"{}")]),
        (BOM, []),
        (b"{}\n{", [Line(b"{}"), Line(b"{")]),
        (b"{}\n \r", [Line(b"{}")]),
    ],
)
def test_line_ends_marks_and_blanks(stream: bytes, events: list[object]) -> None:
    """Only LF ends a line, one CR goes with it; U+2028, NEL and other CRs are data; a mark counts only at the start."""
    assert feed([stream]) == events
    assert feed([stream[i : i + 1] for i in range(len(stream))]) == events


def test_the_limit_is_exact_and_the_next_line_is_whole() -> None:
    """A line of the limit passes, one byte more is dropped, and the line after it is read."""
    expected = [Line(b"12345678"), Oversize(b"12345678", 9, b"123456789"), Line(b"{}")]
    assert feed([b"12345678\n123456789\n{}\n"], 8) == expected


def test_the_head_of_a_dropped_line_is_kept() -> None:
    """The first 4096 bytes of an oversize line are kept, to find its id."""
    long = b'{"id":7,' + b"x" * 10_000
    assert feed([long, b"\n"], 9000) == [Oversize(long[:4096], len(long), long[-320:])]
    assert feed([long], 9000) == [Oversize(long[:4096], len(long), long[-320:])]
    assert feed([long], 20_000) == [Line(long)]


def test_nothing_is_read_after_the_end() -> None:
    """The end is final: bytes after it are the caller's mistake, asking again is not."""
    reader = LineReader(line_size_max_bytes=8)
    reader.receive_bytes(b"{")
    assert reader.receive_eof() == [Line(b"{")]
    assert reader.receive_eof() == []
    with pytest.raises(LocalProtocolError):
        reader.receive_bytes(b"}\n")


class Work:
    """Bytes that were searched or copied."""

    touched = 0


class Chunk(bytes):
    """A chunk that counts what is done to it."""

    def find(self, *args: Any) -> int:
        start = args[1] if len(args) > 1 else 0
        found = super().find(*args)
        Work.touched += (len(self) if found < 0 else found) - start
        return found

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, int):
            return part
        Work.touched += len(part)
        return Chunk(part)

    def __contains__(self, key: Any) -> bool:
        Work.touched += len(self)
        return super().__contains__(key)

    def split(self, *args: Any, **kwargs: Any) -> list[bytes]:
        Work.touched += len(self)
        return super().split(*args, **kwargs)


class Buffer(bytearray):
    """A buffer that counts what is done to it."""

    def __init__(self, content: bytes | bytearray = b"") -> None:
        super().__init__(content)
        Work.touched += len(content)

    def __iadd__(self, other: Any) -> Buffer:
        Work.touched += len(other)
        super().__iadd__(other)
        return self

    def __add__(self, other: Any) -> Buffer:
        Work.touched += len(self) + len(other)
        return Buffer(super().__add__(other))

    def find(self, *args: Any) -> int:
        Work.touched += len(self) - (args[1] if len(args) > 1 else 0)
        return super().find(*args)

    def __contains__(self, key: Any) -> bool:
        Work.touched += len(self)
        return super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        Work.touched += 0 if isinstance(part, int) else len(part)
        return part


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> type[Work]:
    Work.touched = 0
    monkeypatch.setattr(ndjson, "bytearray", Buffer, raising=False)
    return Work


@pytest.mark.parametrize("line_size_bytes", [10_000_000, 40, 1])
def test_work_is_linear(work: type[Work], line_size_bytes: int) -> None:
    """Each byte is touched a fixed number of times, in one long line and in many short ones."""
    size_bytes = 10_000_000 if line_size_bytes > 1000 else 100_000
    stream = (b"x" * line_size_bytes + b"\n") * (size_bytes // line_size_bytes)
    for step in (64 * 1024, len(stream)):
        work.touched = 0
        reader = LineReader(line_size_max_bytes=EVERYTHING)
        lines = [e for i in range(0, len(stream), step) for e in reader.receive_bytes(Chunk(stream[i : i + step]))]
        assert len(lines) == size_bytes // line_size_bytes
        assert len(stream) <= work.touched <= 6 * len(stream)


@pytest.mark.parametrize("piece_size_bytes", [1, 1000, 5000])
def test_no_more_than_the_limit_is_buffered(piece_size_bytes: int) -> None:
    """An endless line costs its head, and a long one in many pieces little more than its length."""
    limit = 10_000
    reader = LineReader(line_size_max_bytes=limit)
    piece, count = b"x" * piece_size_bytes, limit // piece_size_bytes
    tracemalloc.start()
    try:
        for _ in range(count):
            assert reader.receive_bytes(bytes(bytearray(piece))) == []
        held_bytes, _ = tracemalloc.get_traced_memory()
        assert limit <= held_bytes <= 2 * limit
        for _ in range(count):
            assert reader.receive_bytes(piece) == []
        held_bytes, _ = tracemalloc.get_traced_memory()
        assert held_bytes <= 6000
    finally:
        tracemalloc.stop()
    dropped = Oversize(b"x" * 4096, 2 * limit, b"x" * 320)
    assert reader.receive_bytes(b"\n{}\n") == [dropped, Line(b"{}")]


@given(texts=st.lists(st.sampled_from([b"", b"{}", b"[\r\n]", b"x" * 9, b"y" * 10, b"\r" * 10]), max_size=8))
def test_several_messages_are_encoded_as_one_by_one(texts: list[bytes]) -> None:
    """Each large message adds at most two pieces, and one more is for the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "JOINED_SIZE_MAX_BYTES", 9)
        pieces = encode_lines(texts)
    assert b"".join(pieces) == b"".join(map(encode_line, texts))
    assert all(pieces)
    assert len(pieces) <= 1 + 2 * sum(len(text) > 9 for text in texts)


# --- Long lines -------------------------------------------------------------------------------------------------------


def taken(*chunks: bytes, joined_size_max_bytes: int) -> list[Line | Oversize]:
    reader = LineReader(line_size_max_bytes=EVERYTHING, joined_size_max_bytes=joined_size_max_bytes)
    return [event for chunk in chunks for event in reader.receive_bytes(chunk)]


def test_a_long_line_of_white_space_is_no_line() -> None:
    """The line after it is read whole."""
    blank = b" " * 5000
    assert taken(blank, blank, b"\t\r\n", b"{}\n", joined_size_max_bytes=100) == [Line(b"{}")]


def test_small_pieces_before_a_large_one_keep_their_place() -> None:
    large, other = b"x" * 4096, b"y" * 5000
    (line,) = taken(b"a", b"b", large, b"c", other, b"d\r\n", joined_size_max_bytes=100)
    assert line == Line(b"ab", (large, b"c", other + b"d"))
    (line,) = taken(b"a", b"b", large, b"c\n", joined_size_max_bytes=100)
    assert line == Line(b"ab", (large + b"c",))


def test_a_line_is_joined_up_to_its_bound() -> None:
    large = b"x" * 5000
    assert taken(large, b"\n", joined_size_max_bytes=4999) == [Line(large, ())]
    assert taken(large, large, b"\n", joined_size_max_bytes=10_000) == [Line(large + large)]
    assert taken(large, large, b"\n", joined_size_max_bytes=9_999) == [Line(large, (large,))]
