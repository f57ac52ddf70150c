"""Refusals of a server: the status in words, the part of the body that is kept, and the bounds of promises."""

from __future__ import annotations

import pytest
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc.envelope_edges import EDGE_BYTES, PARTS_MIN_BYTES
from isthmus.core.wire.http.response import (
    Arrived,
    Begun,
    Ended,
    Opened,
    Piece,
    Primed,
    ResponseReader,
    ResponseState,
    promise_of,
)

JSON = [(b"content-type", b"application/json")]
EVENTS = [(b"content-type", b"text/event-stream")]
POST, LISTEN, DELETE = Post("s", b"{}"), Listen("s"), Delete("s", "i")
CREDENTIALS, PATH = "; does it want credentials in a header?", "; is the path of its URL right?"


def refused(status: int, *headers: tuple[bytes, bytes], body: bytes = b"") -> Cause:
    reader = ResponseReader(POST, Limits())
    assert reader.receive_head(status, headers) == []
    out = [] if not body else reader.receive_body(body)
    if not out:
        out = reader.receive_eof(True)
    (end,) = out
    assert isinstance(end, Ended)
    assert reader.is_ended
    return end.cause


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (300, ""),
        (304, ""),
        (400, ""),
        (401, CREDENTIALS),
        (402, ""),
        (403, CREDENTIALS),
        (404, PATH),
        (405, PATH),
        (406, ""),
        (426, "; is it a ws:// server?"),
        (427, ""),
        (500, "; see the log of the server"),
        (501, PATH),
        (999, ""),
    ],
)
def test_every_status_is_named_with_a_hint(status: int, hint: str) -> None:
    assert refused(status) == Cause(End.REFUSED, f"got HTTP status {status}, expected success{hint}", status)


@pytest.mark.parametrize(("size", "kept"), [(65_535, 65_535), (65_536, 65_536), (65_537, 65_536), (200_000, 65_536)])
def test_the_kept_part_of_a_refusal_is_bounded(size: int, kept: int) -> None:
    assert len(refused(500, body=b"x" * size).body) == kept


@pytest.mark.parametrize("status", [400, 401, 403, 407])
@pytest.mark.parametrize(("size", "is_kept"), [(4096, True), (4097, False)])
def test_a_challenge_of_up_to_4_kib_is_kept_with_401_and_403(status: int, size: int, is_kept: bool) -> None:
    cause = refused(status, (b"www-authenticate", b"B" * size))
    assert cause.challenge == ("B" * size if is_kept and status in (401, 403) else "")


@pytest.mark.parametrize("status", [-1, 0, 100, 199, 1000])
def test_an_interim_status_is_the_callers_mistake(status: int) -> None:
    reader = ResponseReader(POST, Limits())
    with pytest.raises(LocalProtocolError, match=f"got status {status}, expected a final one"):
        reader.receive_head(status, JSON)
    assert reader.state is ResponseState.WAITING
    assert reader.receive_head(200, JSON) == [Opened()]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 205, 299])
def test_a_success_without_a_body_is_the_end(status: int) -> None:
    """Some statuses never have a body; others may declare an empty one. A DELETE accepts any."""
    is_empty = status in (202, 204, 205)
    for headers in (JSON, EVENTS, [*JSON, (b"content-length", b"5")]):
        ends = [Opened(status=status), Ended(Cause(End.DONE))]
        assert (ResponseReader(POST, Limits()).receive_head(status, headers) == ends) is is_empty
        assert ResponseReader(DELETE, Limits()).receive_head(status, headers) == ends
        assert ResponseReader(POST, Limits(), has_messages=False).receive_head(status, headers) == ends
        assert ResponseReader(POST, Limits()).receive_head(status, [*headers[:1], (b"content-length", b"0")]) == ends


def test_a_stream_that_shall_not_be_opened_again_is_refused_with_204() -> None:
    (end,) = ResponseReader(LISTEN, Limits()).receive_head(204, [])
    assert end == Ended(Cause(End.REFUSED, "got HTTP status 204, expected an event stream", 204))


@pytest.mark.parametrize("target", [POST, LISTEN])
@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ([], "no Content-Type"),
        ([(b"content-type", b"")], "no Content-Type"),
        ([(b"content-type", b"text/html")], "Content-Type text/html"),
        ([(b"content-type", b"x" * 101)], "Content-Type " + "x" * 100),
        ([(b"content-type", b"a\x1fb\x7f\xe9 ~")], "Content-Type a?b?? ~"),
    ],
)
def test_an_unreadable_body_is_named_with_the_expected_type(
    target: Post | Listen, headers: list[tuple[bytes, bytes]], seen: str
) -> None:
    (end,) = ResponseReader(target, Limits()).receive_head(200, headers)
    wanted = "text/event-stream" if target is LISTEN else "application/json or text/event-stream"
    assert end == Ended(Cause(End.BROKEN, f"got {seen}, expected {wanted}; is this the MCP URL?"))


@pytest.mark.parametrize(
    ("codings", "told"),
    [
        ([b"gzip"], "gzip, expected none: none was offered"),
        ([b"Identity, x-\xe9"], "x-?, expected none: none was offered"),
        ([b"br"], "br, expected none: none was offered. To read it: pip install 'isthmus[codings]'"),
        ([b"gzip", b"ZSTD"], "gzip, zstd, expected none: none was offered. To read it: pip install 'isthmus[codings]'"),
        ([b"br, compress"], "br, compress, expected none: none was offered"),
        ([b"gzip", b"gzip, br"], "gzip, gzip, br, expected 2 codings at most; none was offered"),
        ([b"x" * 101], "x" * 100 + ", expected none: none was offered"),
    ],
)
def test_a_content_coding_that_nobody_decodes_is_named(codings: list[bytes], told: str) -> None:
    for headers in (JSON, EVENTS):
        reader = ResponseReader(POST, Limits())
        (end,) = reader.receive_head(200, [*headers, *((b"content-encoding", coding) for coding in codings)])
        assert end == Ended(Cause(End.BROKEN, f"got Content-Encoding {told}"))
        assert reader.is_ended


@pytest.mark.parametrize("coding", [b"Identity", b"", b" , identity"])
def test_identity_is_no_coding(coding: bytes) -> None:
    for headers in (JSON, EVENTS):
        reader = ResponseReader(POST, Limits())
        assert reader.receive_head(200, [*headers, (b"content-encoding", coding)]) == [Opened()]


@pytest.mark.parametrize("body", [b"", b"\x1f\x8b\x08"])
def test_the_body_of_a_refusal_with_a_content_coding_is_not_kept(body: bytes) -> None:
    reader = ResponseReader(POST, Limits())
    assert reader.receive_head(502, [*JSON, (b"content-encoding", b"gzip")]) == []
    (end,) = reader.receive_body(body) if body else reader.receive_eof(True)
    assert isinstance(end, Ended) and end.cause.end is End.REFUSED and end.cause.body == b""
    assert end.cause.detail.endswith("; of its body: got Content-Encoding gzip, expected none: none was offered")


def test_what_came_of_a_malformed_refusal_is_not_kept() -> None:
    reader = ResponseReader(POST, Limits())
    reader.receive_head(502, JSON)
    assert reader.receive_body(b'{"error":{}}') == []
    (end,) = reader.receive_eof(False, "a malformed body")
    assert isinstance(end, Ended) and end.cause.end is End.REFUSED and end.cause.body == b""
    assert end.cause.detail.endswith("; a malformed body")


@pytest.mark.parametrize("given", [b"APPLICATION/json", b"application/json;charset=utf-8", b" application/json ; x"])
def test_a_type_is_recognized_in_any_case_and_with_parameters(given: bytes) -> None:
    reader = ResponseReader(POST, Limits())
    assert reader.receive_head(200, [(b"content-type", given), (b"mcp-session-id", b"s")]) == [Opened("s")]
    assert reader.is_gathering
    assert reader.receive_body(b"{}") == []
    assert reader.receive_eof(True) == [Arrived(b"{}"), Ended(Cause(End.DONE))]


@pytest.mark.parametrize(
    ("headers", "body", "detail"),
    [
        (None, b"", "the connection ended before a response"),
        (JSON, b"{", "the connection ended within the response"),
        (EVENTS, b"data: 1", "the connection ended within the event stream"),
    ],
)
@pytest.mark.parametrize("problem", ["", "too slow"])
def test_a_broken_response_names_the_part_it_broke_in(
    headers: list[tuple[bytes, bytes]] | None, body: bytes, detail: str, problem: str
) -> None:
    reader = ResponseReader(POST, Limits())
    if headers is not None:
        reader.receive_head(200, headers)
        assert reader.receive_body(body) == []
    assert reader.receive_eof(False, problem) == [Ended(Cause(End.BROKEN, problem or detail))]
    with pytest.raises(LocalProtocolError):
        reader.receive_eof(False)


@pytest.mark.parametrize("digits", [15, 16])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_document_of_a_known_length_is_announced(digits: int, is_chunked: bool) -> None:
    """A length of more digits than any document has is ignored."""
    headers = [*JSON, (b"content-length", b"%0*d" % (digits, PARTS_MIN_BYTES))]
    if is_chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    reader = ResponseReader(POST, Limits())
    reader.receive_head(200, headers)
    events = reader.receive_body(b"x" * 100_000)
    assert bool(events) is (digits == 15 and not is_chunked)
    assert reader.state is ResponseState.GATHERING


def test_a_document_that_is_passed_on_comes_in_pieces_up_to_its_length() -> None:
    reader = ResponseReader(POST, Limits())
    reader.receive_head(200, [*JSON, (b"content-length", b"%d" % PARTS_MIN_BYTES)])
    most = b"x" * (PARTS_MIN_BYTES - 10)
    (begun,) = reader.receive_body(most)
    assert isinstance(begun, Begun) and begun.size_bytes == PARTS_MIN_BYTES
    assert b"".join(reader.pass_on()) == most
    assert reader.receive_body(b"") == []
    assert reader.receive_body(b"y" * 4) == [Piece(b"yyyy")]
    with pytest.raises(LocalProtocolError, match="got 7 bytes of a document of which 6 were to come"):
        reader.receive_body(b"y" * 7)
    assert reader.receive_body(b"z" * 6) == []
    assert reader.receive_body(b"") == []
    assert reader.receive_eof(True) == [Piece(b"zzzzzz", is_last=True), Ended(Cause(End.DONE))]


@pytest.mark.parametrize("target", [POST, LISTEN])
@pytest.mark.parametrize(
    ("stream", "is_primed"),
    [
        (b"id: 1\n\n", True),
        (b"id: 1\nevent: ping\ndata: 1\n\n", True),
        (b"id\n\n", False),
        (b"event: ping\ndata: 1\n\n", False),
        (b"id: " + b"x" * 9000 + b"\n\n", False),
        (b"data: 1\n\nid: 1\n\n", False),
        (b"id: 1\ndata: 1\n\n", False),
    ],
)
def test_a_reply_is_primed_by_an_id_before_any_message(target: Post | Listen, stream: bytes, is_primed: bool) -> None:
    reader = ResponseReader(target, Limits())
    reader.receive_head(200, EVENTS)
    events = reader.receive_body(stream + stream.replace(b": 1", b": 2"))
    assert events.count(Primed()) == (is_primed and target is POST)


@pytest.mark.parametrize(
    ("status", "headers", "size_max", "is_promised"),
    [
        (200, [*JSON, (b"content-length", b"5")], 5, True),
        (200, [*JSON, (b"content-length", b"5"), (b"mcp-session-id", b"s")], 5, True),
        (200, [*JSON, (b"content-length", b"6")], 5, False),
        (200, [*JSON, (b"content-length", b"0")], 5, True),
        (200, [(b"content-length", b"0")], 5, True),
        (202, [(b"content-length", b"0"), (b"mcp-session-id", b"s")], 5, True),
        (202, [(b"content-length", b"0"), (b"set-cookie", b"a=b")], 5, False),
        (202, [(b"content-length", b"5")], 5, False),
        (202, [], 5, False),
        (404, [(b"content-length", b"0")], 5, False),
        (200, [*JSON, (b"content-length", b"1")], 5, True),
        (200, JSON, 5, False),
        (201, [*JSON, (b"content-length", b"5")], 5, False),
        (200, [*EVENTS, (b"content-length", b"5")], 5, False),
        (200, [(b"content-length", b"5")], 5, False),
        (200, [*JSON, (b"content-length", b"-5")], 5, False),
        (200, [*JSON, (b"content-length", b"5"), (b"set-cookie", b"a=b")], 5, False),
        (200, [*JSON, (b"content-length", b"5"), (b"content-encoding", b"gzip")], 5, False),
    ],
)
def test_the_heads_that_promise_a_document(
    status: int, headers: list[tuple[bytes, bytes]], size_max: int, is_promised: bool
) -> None:
    session = dict(headers).get(b"mcp-session-id", b"").decode() or None
    expected = Connected(session, status=status) if is_promised else None
    assert promise_of(status, headers, size_max_bytes=size_max) == expected


def test_a_refusal_is_kept_up_to_its_bound_however_it_is_cut() -> None:
    reader = ResponseReader(POST, Limits())
    reader.receive_head(500, [])
    assert reader.receive_body(b"x" * 60_000) == []
    (end,) = reader.receive_body(b"y" * 60_000)
    assert isinstance(end, Ended)
    assert end.cause.body == b"x" * 60_000 + b"y" * 5_536


@pytest.mark.parametrize("size", [0, 1, 2, 200])
def test_a_document_that_has_not_begun_cannot_be_passed_on(size: int) -> None:
    reader = ResponseReader(POST, Limits())
    reader.receive_head(200, JSON)
    assert reader.receive_body(b"x" * size) == []
    with pytest.raises(LocalProtocolError, match="expected it right after the beginning"):
        reader.pass_on()
    assert reader.state is ResponseState.GATHERING


@pytest.mark.parametrize("first", [b"data: 1\n\n", b"event: message\ndata: 1\n\n", b"data: " + b"x" * 101 + b"\n\n"])
def test_a_reply_that_has_begun_is_not_primed(first: bytes) -> None:
    """The reply may begin with a message, or with an event over the limit."""
    reader = ResponseReader(POST, Limits(reply_size_max_bytes=100))
    reader.receive_head(200, EVENTS)
    assert reader.receive_body(first) != []
    assert reader.receive_body(b"id: 1\n\n") == []


@pytest.mark.parametrize("types", [frozenset({"endpoint"}), frozenset({"endpoint", "message"})])
def test_only_events_of_the_requested_types_arrive(types: frozenset[str]) -> None:
    """Other types are extensions, even the plain one."""
    for stream in (b"data: 1\n\n", b"event: message\ndata: 1\n\n", b"event: endpoint\ndata: 2\n\ndata: 1\n\n"):
        reader = ResponseReader(LISTEN, Limits(), event_types=types)
        reader.receive_head(200, EVENTS)
        events = [Arrived(b"2", "endpoint")] if b"endpoint" in stream else []
        assert reader.receive_body(stream) == [*events, *([Arrived(b"1")] if "message" in types else [])]


@pytest.mark.parametrize(
    "framing",
    [
        [],
        [(b"transfer-encoding", b"chunked")],
        [(b"transfer-encoding", b"chunked"), (b"content-length", b"%d" % (2 * PARTS_MIN_BYTES))],
        [(b"content-length", b"%d" % (PARTS_MIN_BYTES - 1))],
        [(b"content-length", b"-1")],
        [(b"content-length", b"1" * 16)],
    ],
)
def test_a_document_of_unknown_length_is_not_announced(
    framing: list[tuple[bytes, bytes]],
) -> None:
    reader = ResponseReader(POST, Limits())
    reader.receive_head(200, [*JSON, *framing])
    for _ in range(4):
        assert reader.receive_body(b" " * EDGE_BYTES) == []
