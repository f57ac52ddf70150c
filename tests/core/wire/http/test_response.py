"""Requests to an upstream, and the meaning of each response."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import msgspec
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.errors import OVERLOADED, LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc.envelope import encode_error, encode_notification, encode_request, encode_result
from isthmus.core.jsonrpc.envelope_edges import EDGE_BYTES, PARTS_MIN_BYTES
from isthmus.core.wire.http.request import EVENT_ID_MAX_BYTES, FRAMING_HEADERS, PROTOCOL_HEADERS, request_for
from isthmus.core.wire.http.response import (
    CHALLENGE_MAX_BYTES,
    REFUSAL_BODY_MAX_BYTES,
    TRANSITIONS,
    Arrived,
    Begun,
    Dropped,
    Ended,
    Opened,
    Piece,
    Primed,
    ReplyEvent,
    ResponseInput,
    ResponseReader,
    ResponseState,
    promise_of,
)

POST = Post("s", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
LISTEN = Listen("s")
DELETE = Delete("s", "abc")
DONE = Ended(Cause(End.DONE))
JSON = [(b"content-type", b"application/json")]
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
LARGE = [*JSON, (b"content-length", b"%d" % PARTS_MIN_BYTES)]
SMALL = Limits(reply_size_max_bytes=100)

# --- Requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [None, "2025-06-18"])
@pytest.mark.parametrize("session", [None, "abc~!"])
def test_each_target_has_its_method_headers_and_body(session: str | None, revision: str | None) -> None:
    both = {b"content-type": b"application/json", b"accept": b"application/json, text/event-stream"}
    optional = {b"accept-encoding": b"identity"}
    if session is not None:
        optional[b"mcp-session-id"] = session.encode()
    if revision is not None:
        optional[b"mcp-protocol-version"] = revision.encode()
    method, headers, body = request_for(Post("s", b"{}", session, revision))
    assert (method, dict(headers), body) == ("POST", both | optional, b"{}")
    assert {name for name, _ in headers} <= PROTOCOL_HEADERS and len(headers) == len(dict(headers))
    method, headers, body = request_for(Listen("s", session, revision))
    assert (method, dict(headers), body) == ("GET", {b"accept": b"text/event-stream"} | optional, b"")
    if session is not None:
        method, headers, body = request_for(Delete("s", session, revision))
        assert (method, dict(headers), body) == ("DELETE", optional, b"")


@given(st.text().filter(lambda text: not text or not all("!" <= c <= "~" for c in text)))
def test_a_value_that_no_header_can_carry_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_for(Post("s", b"{}", session=text))
    with pytest.raises(LocalProtocolError):
        request_for(Listen("s", revision=text))


@pytest.mark.parametrize("event_id", ["7", "a b", "\u20ac \U0001f600", "x" * EVENT_ID_MAX_BYTES])
def test_a_stream_is_resumed_after_the_event_named(event_id: str) -> None:
    """Source: WHATWG HTML: the header holds the id in UTF-8."""
    _, headers, _ = request_for(Listen("s", last_event_id=event_id))
    assert dict(headers)[b"last-event-id"] == event_id.encode()


@pytest.mark.parametrize("event_id", [None, ""])
def test_a_stream_without_an_id_is_opened_anew(event_id: str | None) -> None:
    assert request_for(Listen("s", last_event_id=event_id)) == request_for(Listen("s"))


@pytest.mark.parametrize("event_id", ["a\x07", "a\x7fb", " a", "a ", "\ud800\n", "x" * (EVENT_ID_MAX_BYTES + 1)])
def test_an_event_id_no_header_can_carry_is_refused(event_id: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_for(Listen("s", last_event_id=event_id))


TARGETS = [
    Post("s", b"{}", headers=(("X-A", "1"), ("x-b", "\xe9"), ("X-A", "2"))),
    Listen("s", headers=(("X-A", "1"), ("x-b", "\xe9"), ("X-A", "2"))),
    Delete("s", "abc", headers=(("X-A", "1"), ("x-b", "\xe9"), ("X-A", "2"))),
]


@pytest.mark.parametrize("target", TARGETS)
def test_carried_headers_go_with_every_request(target: Post | Listen | Delete) -> None:
    """Carried headers come last, unchanged, and repeated where they were."""
    plain = msgspec.structs.replace(target, headers=())
    method, headers, body = request_for(target)
    carried = [(b"x-a", b"1"), (b"x-b", b"\xe9"), (b"x-a", b"2")]
    assert (method, headers, body) == (request_for(plain)[0], request_for(plain)[1] + carried, request_for(plain)[2])


def test_a_carried_header_takes_the_place_of_none_of_the_servers_own() -> None:
    own = [(b"host", b"h"), (b"x-a", b"configured")]
    _, headers, _ = request_for(TARGETS[0], own)
    assert headers[:2] == own
    assert [value for name, value in headers if name == b"x-a"] == [b"configured"]
    assert (b"x-b", b"\xe9") in headers


@pytest.mark.parametrize("name", sorted(PROTOCOL_HEADERS | FRAMING_HEADERS))
def test_headers_of_the_protocol_are_not_carried(name: bytes) -> None:
    for spelled in (name.decode(), name.decode().title()):
        with pytest.raises(LocalProtocolError, match="leave it out"):
            request_for(Post("s", b"{}", headers=((spelled, "x"),)))


@pytest.mark.parametrize(
    "header",
    [
        ("", "x"),
        ("a b", "x"),
        ("a\n", "x"),
        ("\xe9", "x"),
        ("a", "x\r\nb: c"),
        ("a", "x\0"),
        ("a", " x"),
        ("a", "\u20ac"),
    ],
)
def test_a_carried_header_that_breaks_the_framing_is_refused(header: tuple[str, str]) -> None:
    for target in (Post("s", b"{}", headers=(header,)), Listen("s", headers=(header,))):
        with pytest.raises(LocalProtocolError):
            request_for(target)


# --- The table ------------------------------------------------------------------------------------------------------

Act = Callable[[ResponseReader], list[ReplyEvent]]
ACTS: dict[ResponseInput, Act] = {
    ResponseInput.ACCEPTED: lambda reader: reader.receive_head(202, []),
    ResponseInput.PROMISED_DOCUMENT: lambda reader: reader.receive_head(200, LARGE),
    ResponseInput.PROMISED_EVENTS: lambda reader: reader.receive_head(200, EVENTS),
    ResponseInput.PROMISED_OTHER: lambda reader: reader.receive_head(200, [(b"content-type", b"text/html")]),
    ResponseInput.DENIED: lambda reader: reader.receive_head(404, JSON),
    ResponseInput.FED: lambda reader: reader.receive_body(b"x" * EDGE_BYTES),
    ResponseInput.WANTED: lambda reader: [Arrived(piece) for piece in reader.pass_on()],
    ResponseInput.OVERFED: lambda reader: reader.receive_body(b"data: " + b"x" * PARTS_MIN_BYTES + b"\n\n"),
    ResponseInput.FINISHED: lambda reader: reader.receive_eof(True),
    ResponseInput.CUT: lambda reader: reader.receive_eof(False),
}


def reader_in(state: ResponseState) -> ResponseReader:
    reader = ResponseReader(POST, Limits(reply_size_max_bytes=PARTS_MIN_BYTES))
    path: dict[ResponseState, list[ResponseInput]] = {
        ResponseState.WAITING: [],
        ResponseState.GATHERING: [ResponseInput.PROMISED_DOCUMENT, ResponseInput.FED],
        ResponseState.PASSING: [ResponseInput.PROMISED_DOCUMENT, ResponseInput.FED, ResponseInput.WANTED],
        ResponseState.STREAMING: [ResponseInput.PROMISED_EVENTS],
        ResponseState.REFUSED: [ResponseInput.DENIED],
        ResponseState.ENDED: [ResponseInput.ACCEPTED],
    }
    for given_input in path[state]:
        ACTS[given_input](reader)
    assert reader.state is state
    return reader


def test_the_table_is_total() -> None:
    """Each state has a row, each input a use, and each state but the first is reached."""
    assert set(TRANSITIONS) == set(ResponseState)
    assert {given_input for row in TRANSITIONS.values() for given_input in row} == set(ResponseInput)
    assert {state for row in TRANSITIONS.values() for state in row.values()} >= set(ResponseState) - {
        ResponseState.WAITING
    }


@each_row("given_input", list(ResponseInput))
@each_row("state", list(ResponseState))
def test_the_reader_moves_along_the_table_only(state: ResponseState, given_input: ResponseInput) -> None:
    reader = reader_in(state)
    if (state, given_input) == (ResponseState.STREAMING, ResponseInput.OVERFED):
        return  # nothing overfeeds an event stream: events over the limit are dropped
    if given_input in TRANSITIONS[state]:
        events = ACTS[given_input](reader)
        assert reader.state is TRANSITIONS[state][given_input]
        assert [isinstance(event, Ended) for event in events].count(True) == reader.is_ended
        assert not reader.is_ended or isinstance(events[-1], Ended)
    else:
        with pytest.raises(LocalProtocolError) as caught:
            ACTS[given_input](reader)
        if (state, given_input) != (ResponseState.PASSING, ResponseInput.OVERFED):  # that is more than was promised
            assert f" while {state.name.lower()}" in str(caught.value)
        assert reader.state is state


@pytest.mark.parametrize("status", [100, 101, 199])
def test_an_interim_response_is_our_callers_mistake(status: int) -> None:
    reader = ResponseReader(POST, SMALL)
    with pytest.raises(LocalProtocolError):
        reader.receive_head(status, [])
    assert reader.state is ResponseState.WAITING


# --- Responses ------------------------------------------------------------------------------------------------------


def feed(
    head: tuple[int, list[tuple[bytes, bytes]]],
    pieces: list[bytes],
    *,
    target: Post | Listen | Delete = POST,
    is_complete: bool = True,
    limits: Limits = SMALL,
) -> list[ReplyEvent]:
    """Feed a whole response, as a driver does: nothing after `Ended`."""
    reader = ResponseReader(target, limits)
    out = reader.receive_head(*head)
    for piece in pieces:
        if not reader.is_ended:
            out += reader.receive_body(piece)
    if not reader.is_ended:
        out += reader.receive_eof(is_complete)
    assert [isinstance(event, Ended) for event in out] == [False] * (len(out) - 1) + [True]
    return out


def cause_of(events: list[ReplyEvent]) -> Cause:
    last = events[-1]
    assert isinstance(last, Ended)
    return last.cause


@each_row("target", [POST, LISTEN, DELETE])
@each_row("status", range(200, 600))
def test_every_status_means_one_thing(status: int, target: Post | Listen | Delete) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    content, message = (EVENTS, b"data: " + body + b"\n\n") if isinstance(target, Listen) else (JSON, body)
    events = feed((status, content), [message], target=target)
    if status >= 300:
        [ended] = events
        assert isinstance(ended, Ended)
        assert (ended.cause.end, ended.cause.status, ended.cause.body) == (End.REFUSED, status, message)
        assert str(status) in ended.cause.detail
        assert not ended.cause.unsent
    elif isinstance(target, Listen) and status == 204:
        assert events == [Ended(Cause(End.REFUSED, "got HTTP status 204, expected an event stream", 204))]
    elif isinstance(target, Delete) or status in (202, 204, 205):
        assert events == [Opened(status=status), DONE]
    else:
        assert events == [Opened(status=status), Arrived(body), DONE]


@pytest.mark.parametrize(
    ("lines", "challenge"),
    [
        ([b"Bearer realm=x"], "Bearer realm=x"),
        ([b"Bearer", b"Basic realm=\xe9"], "Bearer, Basic realm=\xe9"),
        ([], ""),
        ([b"Bearer\x07"], ""),
        ([b"x" * CHALLENGE_MAX_BYTES], "x" * CHALLENGE_MAX_BYTES),
        ([b"x" * CHALLENGE_MAX_BYTES, b"y"], ""),
    ],
)
def test_a_challenge_is_kept_as_it_is_or_not_at_all(lines: list[bytes], challenge: str) -> None:
    for status in (401, 403, 407, 200):
        events = feed((status, [*JSON, *((b"www-authenticate", line) for line in lines)]), [b"{}"])
        assert cause_of(events).challenge == (challenge if status in (401, 403) else "")


def test_an_empty_success_carries_no_message_whatever_its_type() -> None:
    for content_type in ([], JSON, EVENTS, [(b"content-type", b"text/plain")]):
        assert feed((200, [*content_type, (b"content-length", b"0")]), []) == [Opened(), DONE]
    assert feed((200, JSON), []) == [Opened(), DONE]


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ([(b"content-type", b"text/html; charset=utf-8")], "got Content-Type text/html; charset=utf-8, expected"),
        ([], "got no Content-Type, expected application/json or text/event-stream"),
        ([(b"content-type", b"application/json-seq")], "got Content-Type application/json-seq"),
        ([*JSON, (b"content-encoding", b"gzip")], "got Content-Encoding gzip"),
        ([(b"content-type", b"a\x1b\xff" + b"b" * 500)], "got Content-Type a??bbb"),
    ],
)
def test_an_unreadable_body_is_named(headers: list[tuple[bytes, bytes]], seen: str) -> None:
    [ended] = feed((200, headers), [b"<html>"])
    assert cause_of([ended]).end is End.BROKEN
    assert seen in cause_of([ended]).detail
    assert len(cause_of([ended]).detail) < 300


def test_a_listen_is_answered_with_events_only() -> None:
    cause = cause_of(feed((200, JSON), [b"{}"], target=LISTEN))
    assert cause.end is End.BROKEN
    assert "application/json, expected text/event-stream" in cause.detail


@pytest.mark.parametrize(
    ("value", "session"),
    [
        (b"abc", "abc"),
        (b"!~", "!~"),
        (b"", None),
        (b"a b", None),
        (b"\xe9", None),
        (b"a\x7f", None),
    ],
)
def test_a_session_id_is_visible_ascii_or_nothing(value: bytes, session: str | None) -> None:
    assert feed((202, [(b"mcp-session-id", value)]), [])[0] == Opened(session, 202)
    assert feed((200, [*JSON, (b"mcp-session-id", value)]), [])[0] == Opened(session)


@each_row(
    ("location", "shown"),
    [
        (b"https://other.example:8443/mcp?token=secret", "https://other.example:8443,"),
        (b"https://user:secret@other.example/", "https://other.example,"),
        (b"//other.example/secret", "//other.example,"),
        (b"http://[::1]:80/secret", "http://[::1]:80,"),
        (b"/login?secret", "another path of the same origin"),
        (b"http://[secret", "an unreadable address"),
        (b"http://h:secret/", "an unreadable address"),
        (b"http://\xff.secret/", "an unreadable address"),
    ],
)
@each_row("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_with_the_origin_it_names(status: int, location: bytes, shown: str) -> None:
    cause = cause_of(feed((status, [(b"location", location)]), []))
    assert (cause.end, cause.status) == (End.REFUSED, status)
    assert shown in cause.detail
    assert "secret" not in cause.detail


# --- Documents in pieces ----------------------------------------------------------------------------------------------


def passed(pieces: list[bytes], size_bytes: int, *, is_complete: bool = True) -> list[ReplyEvent]:
    """The events of a large document that is passed on in parts; the bytes gathered before that are one piece."""
    reader = ResponseReader(POST, Limits())
    events = reader.receive_head(200, [*JSON, (b"content-length", b"%d" % size_bytes)])
    for piece in pieces:
        new = reader.receive_body(piece)
        events += new
        if new and isinstance(new[0], Begun):
            gathered = reader.pass_on()
            assert gathered[0].startswith(new[0].beginning)
            events.append(Piece(b"".join(gathered)))
    return events + reader.receive_eof(is_complete)


@given(
    at=st.lists(st.integers(0, 3 * EDGE_BYTES) | st.integers(0, PARTS_MIN_BYTES), max_size=8),
    lost_bytes=st.none() | st.integers(1, PARTS_MIN_BYTES - 3 * EDGE_BYTES),
)
def test_a_document_in_pieces_is_the_whole_document(at: list[int], lost_bytes: int | None) -> None:
    """The document is passed on once, however it is cut, and its end comes with the last piece; a broken-off one has no
    last piece."""
    document = bytes(range(256)) * (PARTS_MIN_BYTES // 256)
    places = sorted({0, *at, PARTS_MIN_BYTES - (lost_bytes or 0)})
    places = [place for place in places if place <= PARTS_MIN_BYTES - (lost_bytes or 0)]
    pieces = [document[start:stop] for start, stop in itertools.pairwise(places)]
    opened, *events, ended = passed(pieces, PARTS_MIN_BYTES, is_complete=lost_bytes is None)
    assert opened == Opened()
    if events and isinstance(events[0], Arrived):
        assert events == [Arrived(document)] and ended == DONE
        return
    sent = [event for event in events if isinstance(event, Piece)]
    assert [Begun(document[:EDGE_BYTES], PARTS_MIN_BYTES), *sent] == events
    assert len(sent) <= len(pieces)
    if lost_bytes is None:
        assert b"".join(piece.data for piece in sent) == document
        assert [piece.is_last for piece in sent] == [False] * (len(sent) - 1) + [True] and ended == DONE
    else:
        assert document.startswith(b"".join(piece.data for piece in sent))
        assert not any(piece.is_last for piece in sent)
        assert cause_of([ended]) == Cause(End.BROKEN, "the connection ended within the response")


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (JSON, Limits()),
        ([*JSON, (b"content-length", b"%d" % (PARTS_MIN_BYTES - 1))], Limits()),
        ([*JSON, (b"content-length", b"+%d" % PARTS_MIN_BYTES)], Limits()),
        ([*LARGE, (b"transfer-encoding", b"chunked")], Limits()),
        (LARGE, Limits(reply_size_max_bytes=PARTS_MIN_BYTES - 1)),
        ([(b"content-type", b"text/event-stream"), LARGE[-1]], Limits()),
    ],
)
def test_a_body_not_known_to_be_large_is_gathered(headers: list[tuple[bytes, bytes]], limits: Limits) -> None:
    reader = ResponseReader(POST, limits)
    reader.receive_head(200, headers)
    assert reader.receive_body(b"x" * EDGE_BYTES) == []
    with pytest.raises(LocalProtocolError):
        reader.pass_on()


def test_a_document_that_is_not_passed_on_arrives_whole() -> None:
    events = feed((200, LARGE), [b"x" * EDGE_BYTES, b"y" * (PARTS_MIN_BYTES - EDGE_BYTES)], limits=Limits())
    document = b"x" * EDGE_BYTES + b"y" * (PARTS_MIN_BYTES - EDGE_BYTES)
    assert events == [Opened(), Begun(b"x" * EDGE_BYTES, PARTS_MIN_BYTES), Arrived(document), DONE]


def test_a_document_is_passed_on_from_its_beginning_only() -> None:
    reader = ResponseReader(POST, Limits())
    reader.receive_head(200, LARGE)
    reader.receive_body(b"x" * EDGE_BYTES)
    reader.receive_body(b"x")
    with pytest.raises(LocalProtocolError):
        reader.pass_on()


@each_row("message", [encode_notification("m", None), encode_result(b'"a\\",b"', b"{}"), encode_error(b"1", 2, "x")])
@each_row("type", [b"text/plain", b"text/html; charset=utf-8", b"text/event-stream", b"application/json", None])
@each_row("status", [200, 202, 299])
def test_the_body_of_a_success_to_what_is_no_request_does_not_matter(
    message: bytes, type: bytes | None, status: int
) -> None:
    reader = ResponseReader(Post("s", message), Limits())
    fields = [] if type is None else [(b"content-type", type)]
    assert reader.receive_head(status, [*fields, (b"content-encoding", b"gzip")]) == [Opened(status=status), DONE]


def test_the_body_of_a_success_to_a_request_matters() -> None:
    reader = ResponseReader(Post("s", encode_request(b'"a\\",b"', "m", None)), Limits())
    [ended] = reader.receive_head(200, [(b"content-type", b"text/plain")])
    assert isinstance(ended, Ended)
    assert ended.cause.end is End.BROKEN


def test_sizes_at_and_over_the_limit() -> None:
    assert feed((200, JSON), [b"x" * 100]) == [Opened(), Arrived(b"x" * 100), DONE]
    for pieces in ([b"x" * 101], [b"x" * 100, b"x"]):
        opened, event, ended = feed((200, JSON), pieces)
        assert (opened, refused(event)) == (Opened(), (None, "the server's answer is over the limit of 100 bytes"))
        assert cause_of([ended]) == Cause(End.BROKEN, "got a reply over the limit of 100 bytes")
    small = b"data: " + b"x" * 94 + b"\n\n"
    assert feed((200, EVENTS), [small, small]) == [Opened(), Arrived(b"x" * 94), Arrived(b"x" * 94), DONE]
    *events, ended = feed((200, EVENTS), [small, b"data: " + b"x" * 95 + b"\n"])  # one that never ends
    assert events == [Opened(), Arrived(b"x" * 94)]
    assert cause_of([ended]) == Cause(End.BROKEN, "got an event of 101 bytes, over the limit of 100 bytes")


def refused(event: ReplyEvent) -> tuple[object, str]:
    """The id of the oversize answer, and the message of the error in its place."""
    assert isinstance(event, Arrived)
    answer = json.loads(event.message)
    assert answer["error"]["code"] == OVERLOADED
    return answer["id"], answer["error"]["message"]


PAYLOAD = b'{"x":"' + b"x" * 100 + b'"}'
TOO_BIG = [
    (b'{"jsonrpc":"2.0","id":7,"result":%b}' % PAYLOAD, 7),
    (b'{"jsonrpc":"2.0","id":"7","error":%b}' % PAYLOAD, "7"),
    (b'{"result":%b,"jsonrpc":"2.0","id":8}' % PAYLOAD, 8),
    (b'{"jsonrpc":"2.0","result":%b,"id":9}' % PAYLOAD, 9),
    (b'{"jsonrpc":"2.0","result":%b,"x":1,"id":9,"y":1}' % PAYLOAD, None),
]


@each_row(("message", "id"), TOO_BIG)
@each_row("target", [POST, LISTEN])
@each_row("end", [b"\n", b"\r\n", b"\r"])
def test_an_answer_over_the_limit_is_an_error_for_its_owner(
    target: Post | Listen, message: bytes, id: object, end: bytes
) -> None:
    """The stream goes on. An answer whose id is not found is left to the owner of the stream."""
    stream = b"id: a\ndata: 1\n\nid: b\ndata: %b\n\ndata: 2\n\n" % message
    opened, first, dropped, error, second, ended = feed((200, EVENTS), [stream.replace(b"\n", end)], target=target)
    assert (opened, first, second) == (Opened(), Arrived(b"1"), Arrived(b"2"))
    size_bytes = 5 + 6 + len(message)
    assert dropped == Dropped(f"got an event of {size_bytes} bytes, over the limit of 100 bytes")
    assert refused(error) == (id, f"the server's answer has {size_bytes} bytes, over the limit of 100 bytes")
    assert ended == Ended(Cause(End.DONE, last_event_id="b"))


@pytest.mark.parametrize(
    "message", [b'{"jsonrpc":"2.0","method":"m","params":%b}' % PAYLOAD, PAYLOAD, b"[%b]" % PAYLOAD]
)
def test_an_oversize_event_that_may_be_no_answer_is_dropped(message: bytes) -> None:
    """The end reports it, in case it was the answer."""
    opened, dropped, arrived, ended = feed((200, EVENTS), [b"data: %b\n\ndata: 2\n\n" % message])
    assert (opened, arrived) == (Opened(), Arrived(b"2"))
    assert isinstance(dropped, Dropped)
    assert cause_of([ended]) == Cause(End.DONE, dropped.detail)


def test_an_extensions_event_over_the_limit_is_ignored_like_any() -> None:
    stream = b"id: a\nevent: ping\ndata: %b\n\n" % TOO_BIG[0][0]
    assert feed((200, EVENTS), [stream]) == [Opened(), Primed(), Ended(Cause(End.DONE, last_event_id="a"))]


def test_64_kib_of_a_refusal_are_kept() -> None:
    body = bytes(range(256)) * 300
    assert cause_of(feed((500, []), [body])).body == body[:REFUSAL_BODY_MAX_BYTES]
    assert cause_of(feed((500, []), [body[:-1], body])).body == body[:REFUSAL_BODY_MAX_BYTES]
    assert cause_of(feed((500, []), [body[:9], body[9:20]], is_complete=False)).body == body[:20]


def test_a_connection_that_ends_early_is_broken() -> None:
    reader = ResponseReader(POST, SMALL)
    assert cause_of(reader.receive_eof(False)).end is End.BROKEN
    assert feed((200, JSON), [b'{"a"'], is_complete=False)[1:] == [
        Ended(Cause(End.BROKEN, "the connection ended within the response"))
    ]
    *events, ended = feed((200, EVENTS), [b"data: 1\n\nda"], is_complete=False)
    assert events == [Opened(), Arrived(b"1")]
    assert cause_of([ended]) == Cause(End.BROKEN, "the connection ended within the event stream")


# --- Resumption -----------------------------------------------------------------------------------------------------


@each_row(
    ("stream", "expected", "last_event_id", "retry_ms"),
    [
        (b"data: 1\n\n", [Arrived(b"1")], None, None),
        (b"id: a\ndata:\n\ndata: 1\n\n", [Primed(), Arrived(b"1")], "a", None),
        (b"id: a\n\nid: b\n\n", [Primed()], "b", None),
        (b"id: a\nevent: ping\ndata: 1\n\n", [Primed()], "a", None),
        (b"id\n\n", [], "", None),
        (b"id\n\nid: a\n\n", [Primed()], "a", None),
        (b"id: a\ndata: 1\n\n", [Arrived(b"1")], "a", None),
        (b"data: 1\n\nid: a\n\n", [Arrived(b"1")], "a", None),
        (b"id: a\ndata: 1\n\nid\n\n", [Arrived(b"1")], "", None),
        (b"retry: 5\nid: a\n\nretry: 7\n\n", [Primed()], "a", 7),
        (b"retry: 5\n", [], None, 5),
        (b"id: a\n\nid: b\ndata: 1\n", [Primed()], "a", None),  # an event cut off names nothing
        (b"id: \x07\n\n", [], "", None),  # what no header can carry is as good as withdrawn
        (b"id: " + b"x" * 90 + b"\n\n", [Primed()], "x" * 90, None),
        (
            b"id: a\ndata: 1\n\nid: b\x01\ndata: 2\n\ndata: 3\n\n",
            [Arrived(b"1"), Arrived(b"2"), Arrived(b"3")],
            "",
            None,
        ),
    ],
)
@each_row("is_complete", [False, True])
def test_the_end_has_the_resumption_point(
    stream: bytes, expected: list[ReplyEvent], last_event_id: str | None, retry_ms: int | None, is_complete: bool
) -> None:
    opened, *events, ended = feed((200, EVENTS), [stream], is_complete=is_complete)
    assert (opened, events) == (Opened(), expected)
    cause = cause_of([ended])
    assert cause.end is (End.DONE if is_complete else End.BROKEN)
    assert (cause.last_event_id, cause.retry_ms) == (last_event_id, retry_ms)
    events = feed((200, EVENTS), [stream], is_complete=is_complete, target=LISTEN)
    assert events == [opened, *(event for event in expected if event != Primed()), ended]  # only requests are primed


def test_an_event_id_too_long_for_a_header_is_not_kept() -> None:
    for size in (EVENT_ID_MAX_BYTES, EVENT_ID_MAX_BYTES + 1):
        stream = b"id: " + b"x" * size + b"\n\n"
        cause = cause_of(feed((200, EVENTS), [stream], limits=Limits()))
        assert cause.last_event_id == ("x" * size if size == EVENT_ID_MAX_BYTES else "")


def test_an_event_over_the_limit_is_not_resumed_from_before() -> None:
    """The event's own id counts, not that of an event that arrived with it."""
    stream = b"id: a\ndata: 1\n\nid: b\ndata: " + b"x" * 100 + b"\n\nid: c\ndata: 2\n\n"
    for cut in range(len(stream)):
        reader = ResponseReader(POST, SMALL)
        events = [*reader.receive_head(200, EVENTS), *reader.receive_body(stream[:cut]), *reader.receive_eof(False)]
        assert cause_of(events).last_event_id == [None, "a", "b", "c"][stream[:cut].count(b"\n\n")]
    assert cause_of(feed((200, EVENTS), [stream])).last_event_id == "c"


def test_the_cause_of_a_broken_response_is_named() -> None:
    reader = ResponseReader(POST, SMALL)
    reader.receive_head(200, EVENTS)
    reader.receive_body(b"id: a\n\n")
    assert reader.receive_eof(False, "got nonsense") == [Ended(Cause(End.BROKEN, "got nonsense", last_event_id="a"))]


@st.composite
def responses(draw: st.DrawFn) -> tuple[tuple[int, list[tuple[bytes, bytes]]], bytes]:
    kind = draw(st.sampled_from(["json", "events", "refusal"]))
    if kind == "json":
        return (200, JSON), draw(st.binary(max_size=130))
    if kind == "refusal":
        return (draw(st.sampled_from([302, 404, 500])), JSON), draw(st.binary(max_size=130))
    blocks = st.sampled_from(
        [
            b"data: {}\n\n",
            b"event: ping\ndata: 1\n\n",
            b": hi\r\n\r\n",
            b"id: 7\ndata:\n\n",
            b"retry: 5\n\n",
            b"id: 8\ndata: 2\n\n",
            b"id: 9\nevent: ping\ndata: 2\n\n",
            b"id\n\n",
            b"id: 10\ndata: " + b"z" * 120 + b"\n\n",
            b"event: message\r\ndata: [1,\r\ndata: 2]\r\n\r\n",
            b"data: " + b"y" * 120 + b"\n\n",
            *(b"event: message\ndata: " + message + b"\n\n" for message, _ in TOO_BIG),
            b"data: cut",
            b"\r",
        ]
    )
    return (200, EVENTS), b"".join(draw(st.lists(blocks, max_size=8)))


@given(response=responses(), cuts=st.lists(st.integers(0, 500), max_size=12), is_complete=st.booleans())
def test_the_events_do_not_depend_on_cuts(
    response: tuple[tuple[int, list[tuple[bytes, bytes]]], bytes], cuts: list[int], is_complete: bool
) -> None:
    """The events depend on the bytes, not on how they arrived."""
    head, body = response
    borders = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[start:stop] for start, stop in itertools.pairwise(borders)]
    assert feed(head, pieces, is_complete=is_complete) == feed(head, [body], is_complete=is_complete)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=2), max_size=5))
def test_each_message_of_a_stream_arrives_once_and_in_order(messages: list[dict[str, int]]) -> None:
    sent = [json.dumps(message).encode() for message in messages]
    stream = b"".join(b"event: message\ndata: " + message + b"\n\nevent: other\ndata: 1\n\n" for message in sent)
    assert feed((200, EVENTS), [stream], limits=Limits()) == [Opened(), *(Arrived(message) for message in sent), DONE]


@pytest.mark.parametrize(("digits", "is_large"), [(15, True), (16, False)])
def test_a_length_with_leading_zeros_is_read_up_to_a_bound(digits: int, is_large: bool) -> None:
    """A number of more digits is not computed."""
    head = [*JSON, (b"content-length", (b"%d" % PARTS_MIN_BYTES).zfill(digits))]
    reader = ResponseReader(POST, Limits())
    reader.receive_head(200, head)
    events = [Begun(b"x" * EDGE_BYTES, PARTS_MIN_BYTES)] if is_large else []
    assert reader.receive_body(b"x" * EDGE_BYTES) == events


@pytest.mark.parametrize(("seen", "shown"), [(b"~\x7f\x80", "~??"), (b"a \x1f!", "a ?!"), (b"a" * 101, "a" * 100)])
def test_a_quoted_header_is_short_and_visible(seen: bytes, shown: str) -> None:
    detail = cause_of(feed((200, [(b"content-type", seen)]), [])).detail
    assert detail == f"got Content-Type {shown}, expected application/json or text/event-stream; is this the MCP URL?"


OF_JSON, LENGTH = (b"content-type", b"application/json"), (b"content-length", b"9")


@pytest.mark.parametrize(
    "headers",
    [
        [OF_JSON],
        [LENGTH],
        [OF_JSON, (b"content-length", b"00")],
        [OF_JSON, (b"content-length", b"11")],
        [OF_JSON, (b"content-length", b"+9")],
        [(b"content-type", b"text/event-stream"), LENGTH],
        [OF_JSON, LENGTH, (b"set-cookie", b"a=b")],
        [OF_JSON, LENGTH, (b"content-encoding", b"gzip")],
        [(b"content-type", b"text/plain"), OF_JSON, LENGTH],
    ],
)
def test_only_a_plain_document_of_a_known_length_is_promised(headers: list[tuple[bytes, bytes]]) -> None:
    """All other heads go to a reader. The first of a repeated field counts."""
    assert promise_of(200, headers, size_max_bytes=10) is None


def test_a_promise_of_a_document_names_its_session() -> None:
    plain = [OF_JSON, (b"content-length", b"10"), (b"mcp-session-id", b"S1")]
    assert promise_of(200, plain, size_max_bytes=10) == Connected(session="S1", status=200)
    assert promise_of(200, plain[:2], size_max_bytes=10) == Connected(status=200)
    assert promise_of(202, plain, size_max_bytes=10) is None
    assert promise_of(200, plain, size_max_bytes=9) is None


@each_row("status", [200, 201, 202, 204, 205, 301, 404])
@each_row("length", [b"0", b"00", b"1", None])
@each_row("others", [[], [OF_JSON], [(b"mcp-session-id", b"S1")], [(b"set-cookie", b"a=b")]])
def test_where_nothing_is_promised_the_message_was_taken(
    status: int, length: bytes | None, others: list[tuple[bytes, bytes]]
) -> None:
    """The reader comes to the same result at the head."""
    headers = others if length is None else [*others, (b"content-length", length)]
    promised = promise_of(status, headers, size_max_bytes=10)
    events = ResponseReader(POST, Limits()).receive_head(status, headers)
    if length == b"0" and promised is not None:
        assert events == [Opened(promised.session, promised.status), DONE]
    elif promised is not None:
        assert events == [Opened(promised.session, promised.status)]
    is_looked_at = others == [(b"set-cookie", b"a=b")]
    assert (promised is not None) >= (status in (200, 202) and length == b"0" and not is_looked_at)
