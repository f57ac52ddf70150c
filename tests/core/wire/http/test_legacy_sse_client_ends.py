"""The ends of a session with an HTTP+SSE server: inputs after an end, and the words of refusals."""

from __future__ import annotations

import json

import pytest
from isthmus.core.base.errors import OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, LocalProtocolError
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.legacy_sse_client import SseSession, SseSessionState, Undelivered
from isthmus.core.wire.http.response import Arrived, Ended, Opened

HEAD = [(b"content-type", b"text/event-stream")]
JOINS = b"event: endpoint\ndata: /messages\n\n"
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/progress"}'


def session(stream: bytes = JOINS) -> SseSession:
    made = SseSession("http://h/sse", Limits())
    assert made.receive_head(200, HEAD) == []
    made.receive_body(stream)
    return made


def ended() -> list[SseSession]:
    """Returns one session for each way to end apart from the stream, or while it goes on."""
    misnamed = session(b"event: endpoint\ndata: http://elsewhere/\n\n")
    too_soon = session(b"data: {}\n\n")
    forgotten = session()
    forgotten.receive_untaken(NOTIFICATION, Cause(End.REFUSED, status=410))
    closed = session()
    closed.receive_eof(True)
    return [misnamed, too_soon, forgotten, closed]


@pytest.mark.parametrize("at", range(4))
def test_a_session_that_is_over_takes_no_input(at: int) -> None:
    """Feeding more of its stream is the caller's mistake."""
    made = ended()[at]
    assert made.is_ended
    with pytest.raises(LocalProtocolError, match="more of an event stream while ended"):
        made.receive_head(200, HEAD)
    with pytest.raises(LocalProtocolError, match="more of an event stream while ended"):
        made.receive_body(b"data: 1\n\n")
    with pytest.raises(LocalProtocolError, match="more of an event stream while ended"):
        made.receive_eof(True)
    assert made.receive_untaken(CALL, Cause(End.BROKEN)) == []
    assert made.state is SseSessionState.ENDED


def test_events_after_the_end_in_the_same_piece_are_dropped() -> None:
    made = SseSession("http://h/sse", Limits())
    made.receive_head(200, HEAD)
    events = made.receive_body(b"event: endpoint\ndata: http://elsewhere/\n\n" + JOINS + b"data: 1\n\n")
    (last,) = events
    assert isinstance(last, Ended)
    assert made.endpoint is None


def test_a_stream_is_never_gathered() -> None:
    made = SseSession("http://h/sse", Limits())
    assert not made.is_gathering
    made.receive_head(200, HEAD)
    assert not made.is_gathering
    assert made.receive_body(JOINS) == [Opened()]
    assert not made.is_gathering


def test_a_refusing_head_ends_the_session() -> None:
    made = SseSession("http://h/sse", Limits())
    assert made.receive_head(404, []) == []
    (last,) = made.receive_eof(True)
    assert last == Ended(
        Cause(End.REFUSED, "got HTTP status 404, expected success; is the path of its URL right?", 404)
    )
    broken = SseSession("http://h/sse", Limits())
    assert broken.receive_eof(False, "too slow") == [Ended(Cause(End.BROKEN, "too slow"))]


def test_a_resumption_point_is_ignored() -> None:
    made = session(b"retry: 5\nid: 3\n" + JOINS)
    assert made.receive_eof(False) == [Ended(Cause(End.BROKEN, "the connection ended within the event stream"))]


@pytest.mark.parametrize("state", [404, 410])
def test_a_session_without_an_endpoint_cannot_be_forgotten(state: int) -> None:
    made = session(b"")
    (event,) = made.receive_untaken(NOTIFICATION, Cause(End.REFUSED, "no", status=state))
    assert event == Undelivered("a notification or answer did not arrive: no")
    assert made.state is SseSessionState.JOINING


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize(
    ("body", "shown"), [(b"x" * 201, "x" * 200), (b"a\xffb", "a\ufffdb"), (b"", ""), (b"{}", "{}"), (b"{", "{")]
)
def test_the_beginning_of_a_refusal_is_shown(status: int, body: bytes, shown: str) -> None:
    (answer,) = session().receive_untaken(CALL, Cause(End.REFUSED, "no", status, body))
    assert isinstance(answer, Arrived)
    frame = json.loads(answer.message)
    is_unknown = status == 500
    unknown = "the server failed: no. tools/call may have run; it is not repeated"
    assert frame == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {
            "code": OUTCOME_UNKNOWN if is_unknown else UPSTREAM_UNAVAILABLE,
            "message": unknown if is_unknown else "the server could not be asked: no",
            "data": {"outcome": "unknown" if is_unknown else "not_executed", "httpStatus": status, "body": shown},
        },
    }


@pytest.mark.parametrize(
    ("cause", "is_unknown"),
    [
        (Cause(End.BROKEN, "no", unsent=True), False),
        (Cause(End.UNREACHABLE, "no"), False),
        (Cause(End.TIMED_OUT, "no", unsent=True), False),
        (Cause(End.TIMED_OUT, "no"), True),
        (Cause(End.BROKEN, "no"), True),
        (Cause(End.GONE, "no"), True),
    ],
)
def test_a_request_that_may_have_arrived_may_have_run(cause: Cause, is_unknown: bool) -> None:
    (answer,) = session().receive_untaken(CALL, cause, is_repeated=True)
    assert isinstance(answer, Arrived)
    lost = "the server was lost before it took the request: no. tools/call may have run; it is not repeated"
    assert json.loads(answer.message)["error"] == {
        "code": OUTCOME_UNKNOWN if is_unknown else UPSTREAM_UNAVAILABLE,
        "message": lost if is_unknown else "the server could not be asked: no",
        "data": {"outcome": "unknown" if is_unknown else "not_executed"},
    }


@pytest.mark.parametrize(
    ("reference", "endpoint"),
    [
        (b"/" + b"m" * 8191, b"/" + b"m" * 8191),
        (b"/" + b"m" * 8192, None),
        (b" /m ", b"/m"),
        (b"/m n", None),
        (b"/m\x7f", None),
        (b"/m\xe9", None),
        (b"/m\tn", None),
    ],
    ids=["longest", "longer", "blanks", "blank", "delete", "latin", "tab"],
)
def test_an_address_is_printable_and_no_longer_than_a_request_line(reference: bytes, endpoint: bytes | None) -> None:
    made = SseSession("http://h/sse", Limits())
    made.receive_head(200, HEAD)
    (event,) = made.receive_body(b"event: endpoint\ndata: " + reference + b"\n\n")
    assert made.endpoint == endpoint
    if endpoint is None:
        assert isinstance(event, Ended)
        assert event.cause.end is End.BROKEN
        assert event.cause.detail.startswith("the server named no usable endpoint for messages: got ")
