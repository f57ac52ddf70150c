"""The rewriting of the endpoint event: no other byte changes, whatever the stream holds and however it is cut."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.wire.http.endpoint_rewrite import HELD_MAX_BYTES, EndpointRewriter


def replace(uri: str) -> str:
    if "evil" in uri:
        raise RemoteProtocolError("elsewhere")
    return f"/new{uri}"


def feed(pieces: list[bytes]) -> tuple[bytes, bool]:
    rewriter = EndpointRewriter(replace)
    out = b"".join([rewriter.receive_bytes(piece) for piece in pieces])
    return out + rewriter.receive_eof(), rewriter.failure is not None


def model(stream: bytes) -> tuple[bytes, bool]:
    """Does the same with regular expressions, event by event, over the whole stream."""
    out, rest = b"", stream
    is_first = True
    while found := re.search(rb"(?:\A|\r\n|\r(?!\n)|\n)(\r\n|\r|\n)", rest):
        event, rest = rest[: found.end()], rest[found.end() :]
        kind, lines, comments_stop = b"", [], 0  # comments in front do not wait for the event
        for line in re.finditer(rb"([^\r\n]*)(?:\r\n|\r|\n)", event):
            text = line[1]
            if is_first and line.start() == 0:
                text = text.removeprefix(b"\xef\xbb\xbf")
            name, _, value = text.partition(b":")
            if text and not name and comments_stop == line.start():
                comments_stop = line.end()
            value = value.removeprefix(b" ")
            if name == b"event":
                kind = value
            elif name == b"data":
                lines.append((line.end(1) - len(value), line.end(1)))
        is_first = False
        if kind == b"endpoint":
            if len(lines) != 1:
                return out + event[:comments_stop], True
            start, stop = lines[0]
            try:
                out += event[:start] + replace(event[start:stop].decode("latin-1")).encode() + event[stop:]
            except RemoteProtocolError:
                return out + event[:comments_stop], True
        else:
            out += event
    return out + rest, False


LINES = st.sampled_from(
    b"event: endpoint|event:endpoint|event: message|event|event:  endpoint|event: endpoint |Event: endpoint|data|"
    b"data: /m?id=1|data:/m|data: evil|data: endpoint|: endpoint|id: 1|x|||events: endpoint|"
    b"\xef\xbb\xbfevent: endpoint".split(b"|")
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])).map(b"".join), max_size=14).map(b"".join)


@given(stream=STREAMS | st.text("ev:nt\r\n data/endpoint").map(str.encode), cuts=st.data())
def test_the_result_does_not_depend_on_cuts_and_other_bytes_stay(stream: bytes, cuts: st.DataObject) -> None:
    pieces, rest = [], stream
    while rest:
        size = cuts.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert feed(pieces) == feed([stream]) == model(stream)


@given(stream=STREAMS)
def test_byte_by_byte(stream: bytes) -> None:
    assert feed([stream[i : i + 1] for i in range(len(stream))]) == model(stream)


@pytest.mark.parametrize(
    "stream, expected",
    [
        (b"event: endpoint\ndata: /m?id=1\n\n", b"event: endpoint\ndata: /new/m?id=1\n\n"),
        (b"event:endpoint\r\ndata:/m\r\n\r\n", b"event:endpoint\r\ndata:/new/m\r\n\r\n"),
        (b"data: /m\nevent: endpoint\nid: 7\n\n", b"data: /new/m\nevent: endpoint\nid: 7\n\n"),
        (b"\xef\xbb\xbfevent: endpoint\rdata: /m\r\r", b"\xef\xbb\xbfevent: endpoint\rdata: /new/m\r\r"),
        (b": hi\n\nevent: endpoint\ndata: /m\n\ndata: x\n\n", b": hi\n\nevent: endpoint\ndata: /new/m\n\ndata: x\n\n"),
        (b"event: endpoint\nevent: message\ndata: /m\n\n", b"event: endpoint\nevent: message\ndata: /m\n\n"),
        (b"event: endpoint\ndata: /m\n", b"event: endpoint\ndata: /m\n"),
    ],
)
def test_examples(stream: bytes, expected: bytes) -> None:
    assert feed([stream]) == (expected, False)


@pytest.mark.parametrize(
    "event", [b"event: endpoint\ndata: evil\n\n", b"event: endpoint\n\n", b"event: endpoint\ndata: a\ndata: b\n\n"]
)
def test_a_refused_endpoint_ends_the_stream(event: bytes) -> None:
    assert feed([b"data: 1\n\n" + event + b"data: 2\n\n", b"data: 3\n\n"]) == (b"data: 1\n\n", True)


def test_events_and_comments_pass_at_once() -> None:
    rewriter = EndpointRewriter(replace)
    for piece in (b": ping\n", b": ping\n\n", b"data: 1\n\n", b"event: message\r\ndata: 2\r\n\r\n"):
        assert rewriter.receive_bytes(piece) == piece
    assert rewriter.receive_bytes(b"data: 1\n\ndata: 2") == b"data: 1\n\n"
    assert rewriter.receive_bytes(b"\n\n") == b"data: 2\n\n"


@pytest.mark.parametrize("cut", [1000, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_large_event_is_not_held(cut: int, end: bytes) -> None:
    large = b"data: " + b"x" * (3 * HELD_MAX_BYTES) + end
    for extra, is_failure in ((b"", False), (b"event: message", False), (b"event: endpoint", True)):
        for stream in (large + extra + end + end, extra + end + large + end if extra else large + end):
            rewriter = EndpointRewriter(replace)
            out = b""
            held = 0
            for start in range(0, len(stream), cut):
                out += rewriter.receive_bytes(stream[start : start + cut])
                held = max(held, min(start + cut, len(stream)) - len(out))
            assert held <= HELD_MAX_BYTES + 2
            assert (rewriter.failure is not None) is is_failure
            assert out == stream
            if not is_failure:
                assert rewriter.receive_bytes(b"event: endpoint\ndata: /m\n\n") == b"event: endpoint\ndata: /new/m\n\n"


def test_an_event_that_passes_is_held_up_to_a_bound() -> None:
    """The bound holds for lines of any length, in pieces of any size."""
    rewriter = EndpointRewriter(replace)
    piece = b"x" * HELD_MAX_BYTES
    assert rewriter.receive_bytes(b"data: " + piece) == b"data: " + piece
    tracemalloc.start()
    try:
        for _ in range(50):
            assert rewriter.receive_bytes(piece) == piece
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2 * HELD_MAX_BYTES
    assert rewriter.receive_bytes(b"\n\n") == b"\n\n"
    assert rewriter.receive_bytes(b"event: endpoint\ndata: /a\n\n") == b"event: endpoint\ndata: /new/a\n\n"
