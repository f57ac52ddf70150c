"""Tests of the shortcut for repeated heads: a message that begins as the one before it is read in one step, with the
same result as in many."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import h11
import pytest
from http1_messages import CUTS, REQUEST_LINES, STATUS_LINES, messages
from hypothesis import given, settings
from isthmus.core.wire.http1.events import END, NEED_DATA, Data, InformationalHead, RequestHead, ResponseHead
from isthmus.core.wire.http1.heads import PostHead
from isthmus.transports.http1.client import ClientCodec
from isthmus.transports.http1.server import ServerCodec

LIMIT = 300
POST = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
SIZED = ((b"content-length", b"2"),)
Entry = tuple[object, ...]
Through = Callable[[object, bytes], list[Entry]]
"""The entries to note for a complete message and for what the test does with it."""


def arriving(one: bytes, other: bytes, cuts: list[int]) -> list[bytes]:
    """One message many times, mostly alone, once cut up; at the end another message, and two that arrive together."""
    edges = [0, *sorted({min(cut, len(one)) for cut in cuts}), len(one)]
    cut_up = [one[a:b] for a, b in itertools.pairwise(edges) if a < b]
    return [one, one, *cut_up, one, other, one, one + one]


def read(codec: Any, chunks: list[bytes], through: Through, *, in_one_step: bool) -> tuple[list[Entry], int]:
    """The entries of a codec for these bytes, and the number of messages that it gave in one step."""
    story: list[Entry] = []
    head: RequestHead | ResponseHead | None = None
    body, steps = b"", 0
    for chunk in chunks:
        codec.receive_data(chunk)
        while True:
            whole = None if head is None or not in_one_step else codec.take_repeated(head)
            if whole is not None:
                steps += 1
                story += through(head, whole)
                continue
            try:
                event = codec.next_event()
            except h11.RemoteProtocolError as error:
                return [*story, (error.error_status_hint,)], steps
            if isinstance(event, RequestHead | ResponseHead):
                head, body = event, b""
            elif isinstance(event, Data):
                body += event.data
            elif event is END:
                story += through(head, body)
            elif not isinstance(event, InformationalHead):
                break
    return story, steps


def serve(chunks: list[bytes], *, in_one_step: bool) -> tuple[list[Entry], int]:
    """The requests, responses and states of a server's codec."""
    codec = ServerCodec(head_size_max_bytes=LIMIT)

    def through(head: object, body: bytes) -> list[Entry]:
        entries: list[Entry] = [(head, body, codec.version, codec.is_awaiting_continue, codec.trailing_data)]
        try:
            entries.append((codec.encode_whole(200, SIZED, b"{}"), codec.is_through))
        except h11.LocalProtocolError:  # the response to a CONNECT, which the codec does not write
            return [*entries, ("refused",)]
        if codec.is_through:
            codec.start_next_cycle()
        return entries

    return read(codec, chunks, through, in_one_step=in_one_step)


def request_all(chunks: list[bytes], *, in_one_step: bool) -> tuple[list[Entry], int]:
    """The requests, responses and states of a client's codec, which sends POSTs."""
    codec = ClientCodec(head_size_max_bytes=LIMIT)
    post = PostHead(((b"host", b"x"),))

    def request() -> bytes:
        encoded = codec.encode_post(post, b"/mcp", 2)
        codec.note_sent()
        return encoded

    def through(head: object, body: bytes) -> list[Entry]:
        entries: list[Entry] = [(head, body, codec.trailing_data, codec.is_through)]
        if codec.is_through:
            codec.start_next_cycle()
            entries.append((request(),))
        return entries

    request()
    return read(codec, chunks, through, in_one_step=in_one_step)


@settings(max_examples=150)
@given(one=messages(REQUEST_LINES, with_host=True), other=messages(REQUEST_LINES, with_host=True), cuts=CUTS)
def test_a_request_read_in_one_step_is_what_it_is_in_many(one: bytes, other: bytes, cuts: list[int]) -> None:
    chunks = arriving(one, other, cuts)
    assert serve(chunks, in_one_step=True)[0] == serve(chunks, in_one_step=False)[0]


@settings(max_examples=150)
@given(one=messages(STATUS_LINES, with_host=False), other=messages(STATUS_LINES, with_host=False), cuts=CUTS)
def test_a_response_read_in_one_step_is_what_it_is_in_many(one: bytes, other: bytes, cuts: list[int]) -> None:
    chunks = arriving(one, other, cuts)
    assert request_all(chunks, in_one_step=True)[0] == request_all(chunks, in_one_step=False)[0]


def test_what_comes_whole_and_alone_is_read_in_one_step() -> None:
    """The first message, a divided one, two that arrive together, and one after another head take the usual way."""
    chunks = [POST + b"01234"] * 3 + [POST, b"56789"] + [POST + b"abcde"] + [POST + b"01234" + POST + b"56789"]
    story, steps = serve(chunks, in_one_step=True)
    assert steps == 3
    assert [entry[1] for entry in story[::2]] == [b"01234"] * 3 + [b"56789", b"abcde", b"01234", b"56789"]
    chunks = [OK + b"01234"] * 3 + [OK, b"56789"] + [OK + b"abcde"]
    story, steps = request_all(chunks, in_one_step=True)
    assert steps == 3
    assert [entry[1] for entry in story[::2]] == [b"01234"] * 3 + [b"56789", b"abcde"]


@pytest.mark.parametrize(
    "head",
    [
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: y\r\nContent-Length: 5\r\n\r\n",
    ],
)
def test_what_is_not_known_by_its_head_alone_is_not_taken(head: bytes) -> None:
    """Chunked bodies, requests without a body, and heads that only look alike take the usual way."""
    codec = ServerCodec(head_size_max_bytes=LIMIT)
    codec.receive_data(POST + b"01234")
    known = codec.next_event()
    assert isinstance(known, RequestHead)
    assert codec.take_rest() == b"01234"
    codec.encode_whole(200, SIZED, b"{}")
    codec.start_next_cycle()
    codec.receive_data(head)
    assert codec.take_repeated(known) is None
    read = codec.next_event()
    assert isinstance(read, RequestHead)
    assert read != known
    assert codec.next_event() in (END, NEED_DATA)
    assert codec.take_repeated(read) is None, "it has begun"
