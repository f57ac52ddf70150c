"""Refusals that may mean that a session is forgotten, and when two of them are alike."""

from __future__ import annotations

import pytest
from isthmus.core.base.events import Cause, End
from isthmus.core.wire.http.session_refusal import Refusal, is_alike, refusal_in, refusal_of

ERROR = b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"%b"}}'


@pytest.mark.parametrize(
    ("status", "body", "challenge", "refusal"),
    [
        (400, b"", "", (400, None, "")),
        (400, b"Invalid session ID", "", (400, None, "invalid session id")),
        (404, ERROR % (b"7", -32601, b"no tool 12"), "", (404, -32601, "no tool ")),
        (410, b"<html>gone</html>", "", (410, None, "")),
        (401, b'{"error":"invalid_session"}', "", (401, None, '{"error":"invalid_session"}')),
        (401, b"", "Bearer", None),
        (403, b"", "", None),
        (403, b"Unknown session 's1' for tools/call", "", (403, None, "unknown session 's' for ")),
        (500, ERROR % (b"null", -32603, b"Not Initialised"), "", (500, -32603, "not initialised")),
        (500, b"oops", "", None),
        (429, b"", "", None),
    ],
)
def test_a_refusal_is_read_if_it_could_mean_that_the_session_is_forgotten(
    status: int, body: bytes, challenge: str, refusal: tuple[int, int | None, str] | None
) -> None:
    cause = Cause(End.REFUSED, status=status, body=body, challenge=challenge)
    assert refusal_of(cause, "tools/call", names_session=True) == refusal


def test_without_a_session_only_words_count() -> None:
    bare = Cause(End.REFUSED, status=400, body=b"")
    assert refusal_of(bare, "", names_session=False) is None
    told = Cause(End.REFUSED, status=400, body=b"Server not initialized")
    assert refusal_of(told, "", names_session=False) == (400, None, "server not initialized")
    assert refusal_of(Cause(End.BROKEN, status=404), "", names_session=True) is None


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (b'{"code":-32600,"message":"Session not found"}', (200, -32600, "session not found")),
        (b'{"code":-32002,"message":"Server not initialized"}', (200, -32002, "server not initialized")),
        (b'{"code":-32602,"message":"Unknown tool"}', None),
        (b'{"code":-32602,"message":""}', None),
    ],
)
def test_an_error_in_a_response_counts_if_it_speaks_of_the_session(
    error: bytes, refusal: tuple[int, int | None, str] | None
) -> None:
    assert refusal_in(error, "tools/call") == refusal


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (Refusal(400, None, ""), Refusal(400, None, ""), True),
        (Refusal(400, None, "bad request"), Refusal(400, None, "bad request"), True),
        (Refusal(400, None, "bad request"), Refusal(400, None, "no ping here"), False),
        (Refusal(400, -32600, "unknown session x"), Refusal(400, -32600, "session of ping is unknown"), True),
        (Refusal(400, -32600, "unknown session"), Refusal(400, -32601, "unknown session"), False),
        (Refusal(400, -32600, "unknown session"), Refusal(400, -32600, "no such method"), False),
        (Refusal(400, None, ""), Refusal(401, None, ""), False),
        (Refusal(200, -32602, "no session"), Refusal(400, -32602, "no session"), False),
    ],
)
def test_refusals_are_alike(first: Refusal, second: Refusal, alike: bool) -> None:
    assert is_alike(first, second) is is_alike(second, first) is alike
