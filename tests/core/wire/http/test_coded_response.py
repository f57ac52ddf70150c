"""Tests of responses with content codings: they report what the same response without one reports."""

from __future__ import annotations

import json

import pytest
from coded_bodies import PACKERS, Flushing, pack_gzip
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.budget import Budget, Share
from isthmus.core.base.effects import Listen, Post
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.coded_response import CodedReader
from isthmus.core.wire.http.codings import SLICE_BYTES
from isthmus.core.wire.http.legacy_sse_client import SseSession
from isthmus.core.wire.http.response import Arrived, Dropped, Ended, Opened, ReplyEvent, ResponseReader
from isthmus.transports.base.decompressors import added_coding

POST = Post("s", b'{"jsonrpc":"2.0","id":7,"method":"a/b"}')
JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream")
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'
DONE = Ended(Cause(End.DONE))


def opened(
    coding: str,
    kind: tuple[bytes, bytes] = JSON,
    *,
    status: int = 200,
    limits: Limits | None = None,
    share: Share | None = None,
    reader: ResponseReader | SseSession | None = None,
) -> tuple[CodedReader, list[ReplyEvent]]:
    headers = (kind, (b"content-length", b"99"), (b"content-encoding", coding.encode()))
    limits = limits or Limits()
    inner = reader or ResponseReader(POST, limits)
    made = CodedReader.for_head(inner, headers, limits, added=added_coding, share=share)
    assert made is not None
    return made, made.receive_head(status, headers)


def feed(made: CodedReader, *pieces: bytes) -> list[ReplyEvent]:
    out: list[ReplyEvent] = []
    for piece in pieces:
        out += made.receive_body(piece)
        while made.is_behind:
            out += made.receive_body(b"")
    return out


@pytest.mark.parametrize("kind", PACKERS)
@given(cut_at=st.integers(0, 100))
def test_a_document_arrives_decoded(kind: str, cut_at: int) -> None:
    coding, pack = PACKERS[kind]
    made, facts = opened(coding)
    assert made.is_gathering
    body = pack(ANSWER)
    facts += feed(made, body[:cut_at], body[cut_at:]) + made.receive_eof(True)
    assert facts == [Opened(), Arrived(ANSWER), DONE]


@pytest.mark.parametrize("kind", PACKERS)
@given(cut_at=st.integers(0, 100))
def test_events_arrive_decoded(kind: str, cut_at: int) -> None:
    coding, pack = PACKERS[kind]
    made, facts = opened(coding, EVENTS)
    body = pack(b"data: 1\n\nid: a\nevent: message\ndata: 2\n\n")
    facts += feed(made, body[:cut_at], body[cut_at:]) + made.receive_eof(True)
    assert facts == [Opened(), Arrived(b"1"), Arrived(b"2"), Ended(Cause(End.DONE, last_event_id="a"))]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_an_event_arrives_before_the_stream_goes_on(coding: str) -> None:
    server = Flushing(coding)
    made, _ = opened(coding, EVENTS)
    for number in range(3):
        assert feed(made, server.pack(b"data: %d\n\n" % number)) == [Arrived(b"%d" % number)]
    assert made.receive_eof(False) == [Ended(Cause(End.BROKEN, "the connection ended within the event stream"))]


def test_a_stream_of_events_whose_coding_has_no_end_is_broken_off() -> None:
    made, _ = opened("gzip", EVENTS)
    assert feed(made, Flushing("gzip").pack(b"data: 1\n\n")) == [Arrived(b"1")]
    detail = "got a body in gzip that is cut off, expected all of it"
    assert made.receive_eof(True) == [Ended(Cause(End.BROKEN, detail))]


@pytest.mark.parametrize("kind", PACKERS)
def test_a_document_that_is_cut_off_is_not_believed(kind: str) -> None:
    coding, pack = PACKERS[kind]
    body = pack(ANSWER)
    for size in range(1, len(body)):
        made, _ = opened(coding)
        facts = feed(made, body[:size]) + made.receive_eof(True)
        assert [type(fact) for fact in facts] == [Ended], size
        assert isinstance(facts[0], Ended) and facts[0].cause.end is End.BROKEN


def test_a_body_that_is_no_gzip_ends_the_response() -> None:
    made, _ = opened("gzip")
    detail = "got a body that is not gzip, expected what its Content-Encoding says"
    assert made.receive_body(ANSWER) == [Ended(Cause(End.BROKEN, detail))]
    assert not made.is_behind
    with pytest.raises(LocalProtocolError):
        made.receive_body(b"")


def test_a_refusal_is_decoded() -> None:
    made, facts = opened("gzip", status=502)
    assert feed(made, pack_gzip(ANSWER)) == facts == []
    (end,) = made.receive_eof(True)
    assert isinstance(end, Ended) and (end.cause.end, end.cause.status, end.cause.body) == (End.REFUSED, 502, ANSWER)
    assert "Content-Encoding" not in end.cause.detail


def test_a_refusal_with_a_wrong_checksum_keeps_its_status_only() -> None:
    body = bytearray(pack_gzip(ANSWER))
    body[-5] ^= 1
    made, _ = opened("gzip", status=502)
    (end,) = made.receive_body(bytes(body))
    assert isinstance(end, Ended) and (end.cause.end, end.cause.status, end.cause.body) == (End.REFUSED, 502, b"")
    assert end.cause.detail.endswith("; got a body that is not gzip, expected what its Content-Encoding says")


def test_a_document_over_the_limit_is_refused_while_it_is_decoded() -> None:
    made, _ = opened("gzip", limits=Limits(reply_size_max_bytes=2 * SLICE_BYTES))
    assert made.receive_body(pack_gzip(b"x" * (8 * SLICE_BYTES))) == []
    assert made.is_behind
    assert made.receive_body(b"") == []
    error, end = made.receive_body(b"")
    assert isinstance(error, Arrived) and json.loads(error.message)["error"]["code"] == -31007
    assert isinstance(end, Ended) and end.cause.end is End.BROKEN
    assert not made.is_behind, "the rest is not decoded"


def test_an_event_over_the_limit_is_dropped_and_the_next_one_read() -> None:
    made, _ = opened("gzip", EVENTS, limits=Limits(reply_size_max_bytes=1000))
    large = b'{"jsonrpc":"2.0","id":7,"result":"%b"}' % (b"x" * 2000)
    dropped, error, arrived = feed(made, pack_gzip(b"data: %b\n\ndata: 1\n\n" % large))
    assert isinstance(dropped, Dropped) and isinstance(error, Arrived)
    assert json.loads(error.message)["id"] == 7
    assert arrived == Arrived(b"1")


def test_the_decoded_bytes_are_what_arrives() -> None:
    """A document that is decoded takes of the room for messages that are arriving what its text takes."""
    budget = Budget(limit=4 * SLICE_BYTES, owner_limit=4 * SLICE_BYTES)
    made, _ = opened("gzip", reader=ResponseReader(POST, Limits(), share=Share(budget, "a")))
    made.receive_body(pack_gzip(b"x" * 3 * SLICE_BYTES))
    assert budget.used == SLICE_BYTES
    feed_rest = [made.receive_body(b"") for _ in range(2)]
    assert feed_rest == [[], []] and budget.used == 3 * SLICE_BYTES


@pytest.mark.parametrize("is_complete", [True, False])
def test_memory_of_a_decompressor_is_given_back_at_the_end(is_complete: bool) -> None:
    budget = Budget(limit=1 << 30, owner_limit=1 << 30)
    made, _ = opened("br", EVENTS, share=Share(budget, "a"))
    feed(made, PACKERS["br"][1](b": x\n\n" * SLICE_BYTES))
    assert budget.used >= SLICE_BYTES
    made.receive_eof(is_complete)
    assert budget.used == 0


def test_nothing_comes_while_a_piece_is_decoded() -> None:
    made, _ = opened("gzip")
    made.receive_body(pack_gzip(b"x" * 2 * SLICE_BYTES))
    assert made.is_behind
    with pytest.raises(LocalProtocolError):
        made.receive_body(b"x")
    with pytest.raises(LocalProtocolError):
        made.receive_eof(True)
    assert made.receive_eof(False) == [Ended(Cause(End.BROKEN, "the connection ended within the response"))]
    assert not made.is_behind


def test_a_session_of_http_and_sse_is_decoded() -> None:
    made, _ = opened("gzip", EVENTS, reader=SseSession("http://h/sse", Limits()))
    body = Flushing("gzip").pack(b"event: endpoint\ndata: /post\n\ndata: 1\n\n")
    assert feed(made, body) == [Opened(), Arrived(b"1")]


@pytest.mark.parametrize("coding", [b"identity", b"", b"compress", b"gzip, gzip, gzip"])
def test_what_cannot_be_decoded_is_left_to_the_reader(coding: bytes) -> None:
    headers = (JSON, (b"content-encoding", coding))
    reader = ResponseReader(Listen("s"), Limits())
    assert CodedReader.for_head(reader, headers, Limits(), added=added_coding) is None


def test_an_empty_body_with_a_coding_is_an_acceptance() -> None:
    headers = (JSON, (b"content-length", b"0"), (b"content-encoding", b"gzip"))
    made = CodedReader.for_head(ResponseReader(POST, Limits()), headers, Limits(), added=added_coding)
    assert made is not None
    assert made.receive_head(200, headers) == [Opened(), DONE]
    assert not made.is_behind
