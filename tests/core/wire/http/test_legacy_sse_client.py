"""A session with an HTTP+SSE server: its endpoint, its messages, and the meaning of refused ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.base.errors import OUTCOME_UNKNOWN, OVERLOADED, UPSTREAM_UNAVAILABLE, LocalProtocolError
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.jsonrpc import envelope
from isthmus.core.wire.http.legacy_sse_client import (
    ENDPOINT_MAX_BYTES,
    TRANSITIONS,
    SendAgain,
    SseSession,
    SseSessionInput,
    SseSessionState,
    Undelivered,
)
from isthmus.core.wire.http.response import Arrived, Dropped, Ended, Opened, ReplyEvent
from isthmus.core.wire.http.url import parse_url
from isthmus.core.wire.sse import encode_event

URL = "http://host:81/a/sse?key=secret#part"
EVENTS = [(b"content-type", b"text/event-stream")]
ENDED = Ended(Cause(End.BROKEN, "the event stream ended"))
REQUEST = b'{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{}}'
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{}}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
LIMITS = Limits(reply_size_max_bytes=200)


def endpoint(reference: bytes = b"/messages?s=1") -> bytes:
    return b"event: endpoint\ndata: " + reference + b"\n\n"


def session(*pieces: bytes, url: str = URL) -> SseSession:
    """A session whose stream began with these bytes."""
    made = SseSession(url, LIMITS)
    feed(made, *pieces)
    return made


def feed(session: SseSession, *pieces: bytes, is_complete: bool | None = None) -> list[ReplyEvent]:
    """The events of a stream in these pieces; with `is_complete`, its end as well."""
    out = session.receive_head(200, EVENTS)
    for piece in pieces:
        if not session.is_ended:
            out += session.receive_body(piece)
    if is_complete is not None and not session.is_ended:
        out += session.receive_eof(is_complete)
    return out


def cause_of(events: list[Any]) -> Cause:
    last = events[-1]
    assert isinstance(last, Ended)
    return last.cause


# --- The table --------------------------------------------------------------------------------------------------------

ACTS: dict[SseSessionInput, Callable[[SseSession], object]] = {
    SseSessionInput.NAMED: lambda session: session.receive_body(endpoint()),
    SseSessionInput.MISNAMED: lambda session: session.receive_body(endpoint(b"http://elsewhere/")),
    SseSessionInput.TOLD: lambda session: session.receive_body(b"data: {}\n\n"),
    SseSessionInput.FORGOTTEN: lambda session: session.receive_untaken(NOTIFICATION, Cause(End.REFUSED, status=404)),
    SseSessionInput.LOST: lambda session: session.receive_eof(True),
}
FOLLOWING = {(state, given): following for state, row in TRANSITIONS.items() for given, following in row.items()}


@pytest.mark.parametrize(("state", "given_input"), list(itertools.product(SseSessionState, SseSessionInput)))
def test_the_session_moves_along_the_table(state: SseSessionState, given_input: SseSessionInput) -> None:
    """An input without a place in a state changes nothing; going on with a stream that is over is the caller's
    mistake."""
    made = session(*([] if state is SseSessionState.JOINING else [endpoint()]))
    if state is SseSessionState.ENDED:
        made.receive_eof(False)
    is_stream = given_input is not SseSessionInput.FORGOTTEN
    if state is SseSessionState.ENDED and is_stream:
        with pytest.raises(LocalProtocolError, match="ended"):
            ACTS[given_input](made)
    else:
        ACTS[given_input](made)
    assert made.state is FOLLOWING.get((state, given_input), state)
    assert (made.endpoint is not None) == (state is not SseSessionState.JOINING or given_input is SseSessionInput.NAMED)


# --- The stream -------------------------------------------------------------------------------------------------------


def test_a_session_delivers_its_messages_until_it_ends() -> None:
    """Other events, comments, and a second endpoint are ignored."""
    made = SseSession(URL, LIMITS)
    noise = b": hi\n\nevent: ping\ndata: 1\n\nid: 3\n\nretry: 5\n\n"
    stream = noise + endpoint() + noise + b"event: message\ndata: 1\n\n" + endpoint(b"/other") + b"data: 2\n\n" + noise
    events = [Opened(), Arrived(b"1"), Arrived(b"2"), ENDED]
    assert feed(made, stream, is_complete=True) == events
    assert made.endpoint == b"/messages?s=1"


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        (b"/messages?session_id=1%20", b"/messages?session_id=1%20"),
        (b"messages/", b"/a/messages/"),
        (b"../m?x", b"/m?x"),
        (b"?session=1", b"/a/sse?session=1"),
        (b"http://host:81/m#part", b"/m"),
        (b"HTTP://HOST:81/m", b"/m"),
        (b"//host:81?x", b"/?x"),
        (b" /m ", b"/m"),
        (b"/m?next=http://elsewhere/", b"/m?next=http://elsewhere/"),
        (b"/" + b"x" * (ENDPOINT_MAX_BYTES - 1), b"/" + b"x" * (ENDPOINT_MAX_BYTES - 1)),
    ],
)
def test_the_endpoint_is_resolved_against_the_stream(reference: bytes, target: bytes) -> None:
    made = SseSession(URL, Limits())
    assert feed(made, endpoint(reference)) == [Opened()]
    assert made.endpoint == target


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (b"http://elsewhere:81/?s=hidden", "at http://elsewhere:81, expected one at http://host:81"),
        (b"//elsewhere/hidden", "at http://elsewhere, expected one at http://host:81"),
        (b"http://host/hidden", "at http://host, expected one at http://host:81"),
        (b"https://host:81/hidden", "at https://host:81, expected one at http://host:81"),
        (b"ws://host:81/hidden", "at ws://host:81, expected one at http://host:81"),
        (b"http://host:81@elsewhere/hidden", "user-info"),
        (b"http://[hidden", "Invalid IPv6 URL"),
        (b"http://:81/hidden", "expected HOST or HOST:PORT"),
        (b"javascript:hidden", "of another kind"),
        (b"/hid\tden", "control or non-ASCII"),
        (b"/hidden\xc3\xa9", "control or non-ASCII"),
        (b"/hid den", "percent-encoded"),
        (b"/hid\ndata: den", "control or non-ASCII"),
        (b"/" + b"x" * ENDPOINT_MAX_BYTES, f"expected at most {ENDPOINT_MAX_BYTES}"),
    ],
)
def test_messages_are_sent_to_the_streams_own_origin_only(reference: bytes, words: str) -> None:
    """SDKs enforce it as well. The shown URL holds nothing that identifies a session."""
    made = SseSession(URL, Limits())
    events = feed(made, endpoint(reference) + b"data: 1\n\n")
    assert made.endpoint is None
    assert len(events) == 1
    cause = cause_of(events)
    assert cause.end is End.BROKEN and "endpoint" in cause.detail and words in cause.detail
    assert "hidden" not in cause.detail and "secret" not in cause.detail


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
@example(b"//elsewhere/")
@example(b"\\\\elsewhere/")
@example(b"http:\\\\elsewhere/")
def test_any_usable_endpoint_is_a_path_at_the_streams_origin(reference: bytes) -> None:
    made = SseSession(URL, Limits())
    events = feed(made, endpoint(reference))
    assert (made.endpoint is None) == (Opened() not in events)
    if made.endpoint is not None:
        assert parse_url("http://host:81" + made.endpoint.decode()).target == made.endpoint
        assert made.endpoint.startswith(b"/")


def test_a_message_before_the_endpoint_ends_it() -> None:
    events = feed(SseSession(URL, LIMITS), b"data: 1\n\n" + endpoint())
    assert events == [Ended(Cause(End.BROKEN, "got a message, expected the endpoint event before it"))]


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_stream_that_ends_has_broken_the_session(is_complete: bool) -> None:
    """A stream cannot be resumed, whatever ids its events had."""
    before = cause_of(feed(SseSession(URL, LIMITS), b"id: 1\n\nretry: 5\n\n", is_complete=is_complete))
    after = cause_of(feed(SseSession(URL, LIMITS), endpoint() + b"id: 1\ndata: 1\n\n", is_complete=is_complete))
    if is_complete:
        assert before == Cause(End.BROKEN, "the event stream ended before the endpoint event")
        assert after == Cause(End.BROKEN, "the event stream ended")
    else:
        assert before == after == Cause(End.BROKEN, "the connection ended within the event stream")


@pytest.mark.parametrize(
    ("status", "headers", "end"),
    [
        (404, EVENTS, End.REFUSED),
        (405, [], End.REFUSED),
        (307, [(b"location", b"/")], End.REFUSED),
        (200, [(b"content-type", b"text/html")], End.BROKEN),
        (202, [], End.BROKEN),
    ],
)
def test_a_response_without_an_event_stream_is_no_session(
    status: int, headers: list[tuple[bytes, bytes]], end: End
) -> None:
    made = SseSession(URL, LIMITS)
    out = made.receive_head(status, headers)
    if not made.is_ended:
        out += made.receive_eof(True)
    cause = cause_of(out)
    assert out == [Ended(cause)]
    assert (cause.end, cause.status) == (end, status if end is End.REFUSED else 0)


def test_an_answer_over_the_limit_is_an_error_for_its_owner() -> None:
    """The session goes on, though this transport cannot resume."""
    large = b'data: {"jsonrpc":"2.0","id":7,"result":{"x":"%b"}}\n\n' % (b"x" * 200)
    opened, dropped, error, arrived, ended = feed(
        SseSession(URL, LIMITS), endpoint() + large + b"data: 1\n\n", is_complete=True
    )
    assert (opened, arrived, ended) == (Opened(), Arrived(b"1"), ENDED)
    assert isinstance(dropped, Dropped) and "limit of 200 bytes" in dropped.detail
    assert isinstance(error, Arrived)
    assert json.loads(error.message)["id"] == 7
    assert json.loads(error.message)["error"]["code"] == OVERLOADED


def test_a_notification_over_the_limit_is_dropped() -> None:
    stream = endpoint() + b"data: " + b"x" * 200 + b"\n\n" + endpoint(b"/" + b"x" * 200) + b"data: 1\n\n"
    opened, dropped, arrived = feed(SseSession(URL, LIMITS), stream)
    assert (opened, arrived) == (Opened(), Arrived(b"1"))
    assert isinstance(dropped, Dropped)


@pytest.mark.parametrize("kind", [b"event: endpoint\n", b"event: message\n", b""])
def test_a_session_does_not_begin_with_an_event_over_the_limit(kind: bytes) -> None:
    (ended,) = feed(SseSession(URL, LIMITS), kind + b"data: /" + b"x" * 200 + b"\n\n" + endpoint())
    expected = "over the limit of 200 bytes" if b"endpoint" in kind else "expected the endpoint event"
    assert cause_of([ended]).end is End.BROKEN
    assert expected in cause_of([ended]).detail


@pytest.mark.parametrize("url", ["", "host/sse", "http://", "http://a@host/sse"])
def test_a_session_needs_a_url(url: str) -> None:
    with pytest.raises(ValueError):
        SseSession(url, LIMITS)


BLOCKS = st.sampled_from(
    [
        endpoint(),
        endpoint(b"http://elsewhere/"),
        b"event: endpoint\r\ndata: m\r\n\r\n",
        b"data: {}\n\n",
        b"event: message\ndata: [1]\n\n",
        b"event: ping\ndata: 1\n\n",
        b"id: 1\n\n",
        b"retry: 3\n",
        b": \r",
        b"data: " + b"x" * 200 + b"\n\n",
        b'data: {"jsonrpc":"2.0","id":7,"result":{"x":"' + b"x" * 200 + b'"}}\n\n',
        endpoint(b"/" + b"x" * 200),
        b"event: endpoint\ndata",
    ]
)


@given(
    blocks=st.lists(BLOCKS, max_size=6),
    is_joined=st.booleans(),
    cuts=st.lists(st.integers(0, 500), max_size=9),
    is_complete=st.booleans(),
)
def test_the_events_do_not_depend_on_cuts(
    blocks: list[bytes], is_joined: bool, cuts: list[int], is_complete: bool
) -> None:
    """The events depend on the bytes only, and there is one end, at the last place."""
    stream = endpoint() * is_joined + b"".join(blocks)
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:stop] for start, stop in itertools.pairwise(borders)]
    whole = feed(SseSession(URL, LIMITS), stream, is_complete=is_complete)
    assert feed(SseSession(URL, LIMITS), *pieces, is_complete=is_complete) == whole
    assert [isinstance(event, Ended) for event in whole] == [False] * (len(whole) - 1) + [True]
    assert all(isinstance(event, Arrived | Dropped) for event in whole[1:-1])
    assert len(whole) == 1 or whole[0] == Opened()


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=2), max_size=5))
def test_each_message_arrives_once_and_in_order(messages: list[dict[str, int]]) -> None:
    sent = [json.dumps(message).encode() for message in messages]
    stream = endpoint() + b"".join(encode_event(message, event="message") for message in sent)
    assert feed(SseSession(URL, Limits()), stream, is_complete=True) == [Opened(), *map(Arrived, sent), ENDED]


# --- Messages that were refused ---------------------------------------------------------------------------------------


def refused(status: int, body: bytes = b"") -> Cause:
    return Cause(End.REFUSED, f"got HTTP status {status}, expected success", status, body)


LOST = Cause(End.BROKEN, "the connection ended before a response")
UNSENT = Cause(End.BROKEN, "h closed the connection at once", unsent=True)
UNREACHABLE = Cause(End.UNREACHABLE, "connection refused by h")


@pytest.mark.parametrize("message", [REQUEST, NOTIFICATION, ANSWER, b"nonsense"])
@pytest.mark.parametrize("status", [404, 410])
def test_an_unknown_session_is_over(message: bytes, status: int) -> None:
    made = session(endpoint())
    cause = cause_of(made.receive_untaken(message, refused(status)))
    assert cause == Cause(End.BROKEN, f"the server forgot the session: a message got HTTP status {status}")
    assert made.is_ended
    assert made.receive_untaken(message, refused(status)) == made.receive_untaken(message, LOST) == []


@pytest.mark.parametrize("status", [300, 307, 400, 401, 403, 405, 413, 415, 429, 500, 501, 502, 503, 504, 505])
def test_a_refused_request_is_answered_and_nothing_else_happens(status: int) -> None:
    made = session(endpoint())
    [answer] = made.receive_untaken(REQUEST, refused(status, b"<p>because</p>"))
    assert isinstance(answer, Arrived) and made.state is SseSessionState.JOINED
    frame = json.loads(answer.message)
    assert (frame["jsonrpc"], frame["id"]) == ("2.0", "7")
    may_have_run = status in (500, 502, 504)
    assert frame["error"]["code"] == (OUTCOME_UNKNOWN if may_have_run else UPSTREAM_UNAVAILABLE)
    assert frame["error"]["data"] == {
        "outcome": "unknown" if may_have_run else "not_executed",
        "httpStatus": status,
        "body": "<p>because</p>",
    }
    assert str(status) in frame["error"]["message"]
    assert ("tools/call may have run" in frame["error"]["message"]) == may_have_run


@pytest.mark.parametrize(
    ("cause", "outcome"), [(LOST, "unknown"), (UNSENT, "not_executed"), (UNREACHABLE, "not_executed")]
)
def test_a_request_that_was_not_delivered_is_answered(cause: Cause, outcome: str) -> None:
    [answer] = session(endpoint()).receive_untaken(REQUEST, cause)
    assert isinstance(answer, Arrived)
    error = json.loads(answer.message)["error"]
    assert error["code"] == (OUTCOME_UNKNOWN if outcome == "unknown" else UPSTREAM_UNAVAILABLE)
    assert error["data"] == {"outcome": outcome}
    assert cause.detail in error["message"]


@pytest.mark.parametrize("id_in_body", ['"id":null,', '"id":"server-error",', ""])
def test_the_servers_own_error_is_the_answer(id_in_body: str) -> None:
    """The error gets the request's id, whatever id the server put there."""
    body = b'{"jsonrpc":"2.0",%b"error":{"code":-32600,"message":"Bad"}}' % id_in_body.encode()
    [answer] = session(endpoint()).receive_untaken(REQUEST, refused(400, body))
    assert answer == Arrived(b'{"jsonrpc":"2.0","id":"7","error":{"code":-32600,"message":"Bad"}}')


@pytest.mark.parametrize("cause", [refused(400), refused(500), LOST, UNSENT, UNREACHABLE])
@pytest.mark.parametrize("message", [NOTIFICATION, ANSWER, b"nonsense", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'])
def test_a_lost_notification_or_answer_is_logged(message: bytes, cause: Cause) -> None:
    made = session(endpoint())
    if message == ANSWER and cause in (UNSENT, UNREACHABLE):  # nobody would ask for it again
        assert made.receive_untaken(message, cause) == [SendAgain()]
    events = made.receive_untaken(message, cause, is_repeated=True)
    assert events == [Undelivered(f"a notification or answer did not arrive: {cause.detail}")]
    assert made.state is SseSessionState.JOINED


@given(id_raw=st.integers().map(lambda n: b"%d" % n) | st.text(max_size=9).map(lambda text: json.dumps(text).encode()))
def test_the_answer_has_the_requests_id(id_raw: bytes) -> None:
    [answer] = session(endpoint()).receive_untaken(envelope.encode_request(id_raw, "ping", None), LOST)
    assert isinstance(answer, Arrived)
    frame = envelope.decode(answer.message)
    assert frame.id_raw == id_raw and frame.error is not None


STALE = Cause(End.BROKEN, "the connection ended before a response", stale=True)


@pytest.mark.parametrize("message", [NOTIFICATION, ANSWER, envelope.encode_request(b"7", "tools/list", None)])
def test_a_message_on_a_stale_connection_is_sent_again_once(message: bytes) -> None:
    """A tool call is not sent again, nor is `initialize` in a session that exists."""
    made = session(endpoint())
    assert made.receive_untaken(message, STALE) == [SendAgain()]
    (event,) = made.receive_untaken(message, STALE, is_repeated=True)
    assert isinstance(event, Arrived | Undelivered)
    for method in ("tools/call", "initialize"):
        (event,) = made.receive_untaken(envelope.encode_request(b"7", method, None), STALE)
        assert isinstance(event, Arrived)
    assert made.receive_untaken(REQUEST, msgspec.structs.replace(STALE, unsent=True)) == [SendAgain()]
