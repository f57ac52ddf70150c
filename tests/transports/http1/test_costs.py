"""Tests of the costs of the HTTP codecs: work without h11, data without copies, and bounded memory."""

from __future__ import annotations

import h11
import pytest
from http1_driving import Answer, request_all, serve
from isthmus.core.wire.http1 import fields as http1_fields
from isthmus.core.wire.http1.events import END, NEED_DATA, Data, ResponseHead
from isthmus.core.wire.http1.fields import EncodedFields, FieldLines, NotPlain
from isthmus.transports.http1.client import ClientCodec
from isthmus.transports.http1.incoming import CHUNKS_MAX
from isthmus.transports.http1.server import ServerCodec

LIMIT = 1 << 16
HOST = b"Host: x\r\n"
REQUESTS = [
    b"POST /mcp HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nConnection: keep-alive\r\n\r\n{}",
    b"GET /mcp HTTP/1.1\r\naccept:text/event-stream\r\n" + HOST + b"\r\n",
    b"PUT /a?b=c HTTP/1.1\r\n"
    + HOST
    + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"OPTIONS /mcp HTTP/1.1\r\n" + HOST + b"X-Latin: \xe9\r\n\r\n",
    b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"DELETE /mcp HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
]
RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\na\r\ndata: {}\n\n\r\n0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nX: \r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
]
SIZED = ((b"content-type", b"application/json"), (b"content-length", b"2"))
ASKED = ("POST", b"/mcp", ((b"host", b"x"), (b"content-length", b"2")), True)


def no_h11(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("h11 was asked")

    patch.setattr(h11.Connection, "__init__", refuse)


@pytest.mark.parametrize("step", [1, 7, LIMIT])
def test_the_usual_requests_are_read_and_answered_without_h11(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Usual requests never reach h11, however the bytes are cut."""
    no_h11(monkeypatch)
    stream = b"".join(REQUESTS)
    answers = [Answer(200, SIZED, (b"{}",)), Answer(200, (), (b"{}",), early=True), Answer(202, ((b"x", b""),))]
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    story = serve(ServerCodec(head_size_max_bytes=LIMIT), chunks, answers)
    assert [entry[0] for entry in story].count("answers") == len(REQUESTS)
    assert not any("refused" in entry for entry in story)


@pytest.mark.parametrize("step", [1, 7, LIMIT])
def test_the_usual_responses_are_read_without_h11(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Usual responses never reach h11, however the bytes are cut."""
    no_h11(monkeypatch)
    stream = b"".join(RESPONSES)
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    story = request_all(ClientCodec(head_size_max_bytes=LIMIT), chunks, [ASKED])
    assert [entry[0] for entry in story].count("through") == len(RESPONSES)
    assert not any("refused" in entry for entry in story)


def test_after_an_unusual_request_h11_is_done_with() -> None:
    """A client that sends one odd head pays for that one only."""
    codec = ServerCodec(head_size_max_bytes=LIMIT)
    for head in (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    ):
        codec.receive_data(head)
        codec.next_event()
        assert codec.next_event() is END
        codec.encode_whole(200, SIZED, b"{}")
        with pytest.MonkeyPatch.context() as patch:
            no_h11(patch)
            codec.start_next_cycle()
            assert codec.next_event() is NEED_DATA


def reading(head: bytes) -> ClientCodec:
    codec = ClientCodec(head_size_max_bytes=LIMIT)
    codec.encode_request("GET", b"/", ((b"host", b"x"),))
    codec.note_sent()
    codec.receive_data(head)
    assert isinstance(codec.next_event(), ResponseHead)
    return codec


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2dc6c0\r\n",
    ],
)
def test_what_fills_a_read_is_given_out_as_it_came(head: bytes) -> None:
    """No byte of a large body is copied, whichever way it is framed."""
    codec = reading(head)
    assert codec.next_event() is NEED_DATA
    for _ in range(3):
        piece = bytes(1_000_000)
        codec.receive_data(piece)
        event = codec.next_event()
        assert isinstance(event, Data)
        assert event.data is piece


def test_chunks_that_came_together_are_given_out_together_within_bounds() -> None:
    """One burst of events is one piece for its reader; a flood of tiny chunks is many pieces."""
    codec = reading(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (2 * CHUNKS_MAX + 3))
    sizes = []
    while isinstance(event := codec.next_event(), Data):
        sizes.append(len(event.data))
    assert sizes == [CHUNKS_MAX, CHUNKS_MAX, 3]


def test_nothing_that_was_read_is_kept() -> None:
    """A connection holds no buffer between messages."""
    codec = reading(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
    codec.next_event()
    assert codec.next_event() is END
    assert codec._buffer == b""
    server = ServerCodec(head_size_max_bytes=LIMIT)
    server.receive_data(REQUESTS[1])
    server.next_event()
    assert server._buffer == b""


def test_lines_remembered_are_few_and_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of header lines is bounded, whatever peers send and receive. A line that is not plain is not
    remembered."""
    monkeypatch.setattr(http1_fields, "MEMO_LINES_MAX", 10)
    lines, fields = FieldLines(), EncodedFields()
    for number in range(35):
        assert lines[b"X: %d" % number] == (b"x", b"%d" % number)
        assert fields[b"x", b"%d" % number] == b"x: %d\r\n" % number
        assert len(lines) <= 10
        assert len(fields) <= 10
    held = len(lines), len(fields)
    long = b"y" * http1_fields.MEMO_LINE_SIZE_MAX_BYTES
    assert lines[b"X: " + long] == (b"x", long)
    assert fields[b"x", long] == b"x: " + long + b"\r\n"
    with pytest.raises(NotPlain):
        lines[b"X Y: 1"]
    with pytest.raises(NotPlain):
        fields[b"x", b"1\r\ny: 2"]
    assert (len(lines), len(fields)) == held


def test_an_invalid_header_changes_nothing() -> None:
    """The refusal is raised at the call, and another response can be sent instead."""
    codec = ServerCodec(head_size_max_bytes=LIMIT)
    codec.receive_data(REQUESTS[0])
    codec.next_event()
    with pytest.raises(h11.LocalProtocolError):
        codec.encode_whole(200, ((b"x", b"1\r\ny: 2"),), b"")
    assert codec.encode_whole(200, SIZED, b"{}").endswith(b"content-length: 2\r\n\r\n{}")


def test_a_body_keeps_to_the_length_that_was_promised() -> None:
    """A longer or shorter body would shift into the next response."""
    for pieces, is_refused in (((b"{", b"}"), False), ((b"{",), True), ((b"{}", b"x"), True)):
        codec = ServerCodec(head_size_max_bytes=LIMIT)
        codec.receive_data(REQUESTS[0])
        codec.next_event()
        codec.encode_head(200, SIZED)
        try:
            written = b"".join(part for piece in pieces for part in codec.encode_data(piece)) + codec.encode_end()
        except h11.LocalProtocolError:
            assert is_refused
            with pytest.raises(h11.LocalProtocolError):
                codec.encode_head(200, SIZED)
        else:
            assert not is_refused
            assert written == b"{}"


def test_a_known_head_that_came_in_two_pieces_does_not_hide_the_next() -> None:
    """The position up to which one head was searched for its end does not apply to the next head."""
    codec = ServerCodec(head_size_max_bytes=LIMIT)
    get = b"GET / HTTP/1.1\r\n" + HOST + b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n"
    for pieces in ([get], [get[:-1], get[-1:]], [b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"]):
        for piece in pieces:
            codec.receive_data(piece)
            event = codec.next_event()
        assert event is not NEED_DATA
        assert codec.next_event() is END
        codec.encode_whole(200, SIZED, b"{}")
        codec.start_next_cycle()
