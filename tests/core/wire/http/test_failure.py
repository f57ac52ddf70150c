"""The end of an upstream channel in words, and the error in a refusing response's body."""

from __future__ import annotations

import pytest
from isthmus.core.base.events import Cause, End
from isthmus.core.wire.http.failure import denies_session, describe, error_in, id_in, may_have_run

ERROR = b'{"code":-32000,"message":"m"}'
BODY = b'{"jsonrpc":"2.0","id":7,"error":%b}' % ERROR


def refused(body: bytes, status: int = 400) -> Cause:
    return Cause(End.REFUSED, status=status, body=body)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (Cause(End.DONE), "its reply ended without an answer"),
        (Cause(End.GONE), "it hung up"),
        (Cause(End.UNREACHABLE), "it cannot be reached"),
        (Cause(End.BROKEN), "the connection broke"),
        (Cause(End.TIMED_OUT), "it took too long"),
        (Cause(End.REFUSED, status=418), "it answered with HTTP status 418"),
        (Cause(End.GONE, "exited with code 1"), "exited with code 1"),
        (Cause(End.REFUSED, "redirected", status=302), "redirected"),
    ],
)
def test_every_end_has_its_words_unless_it_has_a_detail(cause: Cause, text: str) -> None:
    assert describe(cause) == text


@pytest.mark.parametrize(
    ("status", "may"),
    [
        (400, False),
        (404, False),
        (499, False),
        (500, True),
        (501, False),
        (502, True),
        (503, False),
        (504, True),
        (505, False),
        (506, True),
    ],
)
def test_a_request_refused_with_a_server_error_may_have_run(status: int, may: bool) -> None:
    assert may_have_run(status) is may


@pytest.mark.parametrize(
    ("cause", "error", "id_raw"),
    [
        (refused(BODY), ERROR, b"7"),
        (refused(b" \n" + BODY + b"\r\n "), ERROR, b"7"),
        (refused(b'{"error":%b}' % ERROR), ERROR, None),
        (refused(b'{"id":"server-error","error":%b}' % ERROR), ERROR, b'"server-error"'),
        (refused(b'{"id":null}'), None, b"null"),
        (refused(b'{"id":7,"error":"no"}'), None, b"7"),
        (refused(b'{"id":7,"id":8,"error":%b}' % ERROR), None, None),
        (refused(BODY[:-1]), None, None),
        (refused(b"<html>"), None, None),
        (refused(b""), None, None),
        (Cause(End.DONE, body=BODY), None, b"7"),
    ],
)
def test_the_error_and_the_id_in_a_readable_body(cause: Cause, error: bytes | None, id_raw: bytes | None) -> None:
    assert (error_in(cause), id_in(cause)) == (error, id_raw)


UNKNOWN = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32000,"message":"%b"}}'
DENIAL = b"Bad Request: No valid session ID provided"


@pytest.mark.parametrize(
    ("status", "body", "is_denied"),
    [
        (404, b"", True),
        (404, b'{"jsonrpc":"2.0","id":7}', True),
        (404, UNKNOWN % (b"null", b"no such thing"), True),
        (404, UNKNOWN % (b"7", DENIAL), True),
        (404, UNKNOWN % (b"7", b"no such tool"), False),
        (400, b"", False),
        (400, UNKNOWN % (b"null", DENIAL), False),
        (401, UNKNOWN % (b"null", DENIAL), False),
    ],
)
def test_a_session_is_denied_by_404_but_for_an_error_of_the_request(status: int, body: bytes, is_denied: bool) -> None:
    assert denies_session(refused(body, status), names_session=True) is is_denied
    assert not denies_session(refused(body, status), names_session=False)
    assert not denies_session(Cause(End.BROKEN, status=status, body=body), names_session=True)
