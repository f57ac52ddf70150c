"""The ends of a session with an HTTP+SSE server: what is still taken after one, and what is shown of a refusal."""

from __future__ import annotations

import json

import pytest
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.errors import OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, LocalProtocolError
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.legacy_sse_client import SseSession, State, Unheard
from isthmus.core.wire.http.response import Arrived, Ended, Opened

HEAD = [(b"content-type", b"text/event-stream")]
JOINS = b"event: endpoint\ndata: /messages\n\n"
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}'
NOTICE = b'{"jsonrpc":"2.0","method":"notifications/progress"}'


def session(stream: bytes = JOINS) -> SseSession:
    made = SseSession("http://h/sse", Limits())
    assert made.receive_head(200, HEAD) == []
    made.receive_body(stream)
    return made


def ended() -> list[SseSession]:
    """One for each way to end that the stream itself has no part in, or goes on after."""
    misnamed = session(b"event: endpoint\ndata: http://elsewhere/\n\n")
    too_soon = session(b"data: {}\n\n")
    forgotten = session()
    forgotten.receive_untaken(NOTICE, Cause(End.REFUSED, status=410))
    closed = session()
    closed.receive_eof(True)
    return [misnamed, too_soon, forgotten, closed]


@pytest.mark.parametrize("at", range(4))
def test_nothing_more_is_taken_of_a_session_that_is_over(at: int) -> None:
    """However much more its stream has to say: to feed that is our caller's mistake."""
    made = ended()[at]
    assert made.is_ended
    with pytest.raises(LocalProtocolError, match="more of an event stream while ended"):
        made.receive_head(200, HEAD)
    with pytest.raises(LocalProtocolError, match="more of an event stream while ended"):
        made.receive_body(b"data: 1\n\n")
    with pytest.raises(LocalProtocolError, match="more of an event stream while ended"):
        made.receive_eof(True)
    assert made.receive_untaken(CALL, Cause(End.BROKEN)) == []
    assert made.state is State.ENDED


def test_what_comes_after_the_end_in_one_piece_is_not_told() -> None:
    made = SseSession("http://h/sse", Limits())
    made.receive_head(200, HEAD)
    told = made.receive_body(b"event: endpoint\ndata: http://elsewhere/\n\n" + JOINS + b"data: 1\n\n")
    (last,) = told
    assert isinstance(last, Ended)
    assert made.endpoint is None


def test_a_stream_is_never_one_document() -> None:
    made = SseSession("http://h/sse", Limits())
    assert not made.is_gathering
    made.receive_head(200, HEAD)
    assert not made.is_gathering
    assert made.receive_body(JOINS) == [Opened()]
    assert not made.is_gathering


def test_a_head_that_tells_a_reason_ends_it() -> None:
    made = SseSession("http://h/sse", Limits())
    assert made.receive_head(404, []) == []
    (last,) = made.receive_eof(True)
    assert last == Ended(
        Cause(End.REFUSED, "got HTTP status 404, expected success; is the path of its URL right?", 404)
    )
    broken = SseSession("http://h/sse", Limits())
    assert broken.receive_eof(False, "too slow") == [Ended(Cause(End.BROKEN, "too slow"))]


def test_where_a_stream_could_go_on_means_nothing_here() -> None:
    made = session(b"retry: 5\nid: 3\n" + JOINS)
    assert made.receive_eof(False) == [Ended(Cause(End.BROKEN, "the connection ended within the event stream"))]


@pytest.mark.parametrize("state", [404, 410])
def test_before_it_is_joined_there_is_nothing_to_forget(state: int) -> None:
    made = session(b"")
    (told,) = made.receive_untaken(NOTICE, Cause(End.REFUSED, "no", status=state))
    assert told == Unheard("a notification or answer did not arrive: no")
    assert made.state is State.JOINING


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize(
    ("body", "shown"), [(b"x" * 201, "x" * 200), (b"a\xffb", "a\ufffdb"), (b"", ""), (b"{}", "{}"), (b"{", "{")]
)
def test_the_beginning_of_a_refusal_is_shown(status: int, body: bytes, shown: str) -> None:
    (answer,) = session().receive_untaken(CALL, Cause(End.REFUSED, "no", status, body))
    assert isinstance(answer, Arrived)
    frame = json.loads(answer.message)
    is_unknown = status == 500
    why = "the server failed: no. tools/call may have run; it is not repeated"
    assert frame == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {
            "code": OUTCOME_UNKNOWN if is_unknown else UPSTREAM_UNAVAILABLE,
            "message": why if is_unknown else "the server could not be asked: no",
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
    (told,) = made.receive_body(b"event: endpoint\ndata: " + reference + b"\n\n")
    assert made.endpoint == endpoint
    if endpoint is None:
        assert isinstance(told, Ended)
        assert told.cause.end is End.BROKEN
        assert told.cause.detail.startswith("the server named no usable endpoint for messages: got ")
