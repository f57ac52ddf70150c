"""Answers of our own: what errors and pages look like, to the byte, and where which of them is given."""

from __future__ import annotations

import json

import pytest
from isthmus.core.wire.http.error_responses import is_mcp, not_found, page_answer, page_error, refusal, refusal_at
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Surface

EXTRA = ((b"allow", b"GET"),)
SAFE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def described(body: bytes, content_type: bytes = b"application/json") -> tuple[tuple[bytes, bytes], ...]:
    return ((b"content-type", content_type), (b"content-length", b"%d" % len(body)))


def surface(*servers: str, transparent: tuple[str, ...] = ()) -> Surface:
    ways = {server: ForwardTarget(server, "http://up.example/", b"key") for server in transparent}
    return Surface(servers, frozenset(), frozenset(), transparent=ways)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_request"),
        (403, "forbidden"),
        (404, "not_found"),
        (405, "method_not_allowed"),
        (406, "not_acceptable"),
        (408, "timed_out"),
        (413, "request_too_large"),
        (414, "uri_too_long"),
        (415, "unsupported_media_type"),
        (417, "expectation_failed"),
        (426, "upgrade_required"),
        (431, "head_too_large"),
        (500, "internal_error"),
        (501, "not_implemented"),
        (503, "overloaded"),
        (505, "version_not_supported"),
        (412, "refused"),
        (499, "refused"),
    ],
)
def test_every_status_has_its_code(status: int, code: str) -> None:
    """Programs tell errors apart by it: "refused" is what has no word of its own, and a code that is given is taken."""
    said = refusal(status, "why", extra=EXTRA)
    assert json.loads(said.body) == {"detail": "why", "code": code}
    assert (said.status, said.headers) == (status, (*described(said.body), *EXTRA))
    assert json.loads(refusal(status, "why", code="special").body) == {"detail": "why", "code": "special"}


def test_on_the_endpoint_an_error_is_one_of_json_rpc_that_answers_no_request() -> None:
    said = refusal(406, "why", is_mcp=True, code="unused", extra=EXTRA)
    assert json.loads(said.body) == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "why"}}
    assert (said.status, said.headers) == (406, (*described(said.body), *EXTRA))


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/mcp", True),
        ("/mcp/a/b", True),
        ("/sse", True),
        ("/sse/a", True),
        ("/messages", True),
        ("/messages/a", True),
        ("/ws", False),
        ("/upload/mcp", False),
        ("/mcpx", False),
        ("/", False),
        ("", False),
    ],
)
def test_errors_are_those_of_json_rpc_where_messages_are_sent(path: str, is_one: bool) -> None:
    assert is_mcp(path) is is_one
    assert ("jsonrpc" in json.loads(refusal_at(path, 400, "why").body)) is is_one


def test_a_page_is_not_kept_and_not_guessed_at() -> None:
    said = page_answer(200, b"a 1\n", EXTRA, content_type="text/plain")
    assert (said.status, said.body) == (200, b"a 1\n")
    assert said.headers == (*described(b"a 1\n", b"text/plain"), *SAFE, *EXTRA)
    assert page_answer(200, b"{}").headers == (*described(b"{}"), *SAFE)


def test_an_error_of_a_page_says_its_status_and_what_else_there_is_to_say() -> None:
    said = page_error(409, "why", EXTRA, state="stopped")
    assert json.loads(said.body) == {"error": "why", "code": 409, "state": "stopped"}
    assert (said.status, said.headers) == (409, (*described(said.body), *SAFE, *EXTRA))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/info", {"error": "why", "code": 405}),
        ("/mcp/a/tools", {"error": "why", "code": 405}),
        ("/mcp/a", {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "why"}}),
        ("/upload/a", {"detail": "why", "code": "method_not_allowed"}),
    ],
)
def test_an_error_is_as_the_clients_of_its_path_expect_it(path: str, body: object) -> None:
    said = refusal_at(path, 405, "why", EXTRA)
    lasting = SAFE if "error" in json.loads(said.body) and "jsonrpc" not in json.loads(said.body) else ()
    assert json.loads(said.body) == body
    assert (said.status, said.headers) == (405, (*described(said.body), *lasting, *EXTRA))


@pytest.mark.parametrize(
    ("known", "endpoints"),
    [
        (surface(), ["/healthz"]),
        (
            surface("a"),
            ["/mcp", "/sse", "/ws", "/mcp/a", "/sse/a", "/ws/a", "/upload/a", "/healthz"],
        ),
        (surface("a", transparent=("a",)), ["/mcp", "/mcp/a", "/healthz"]),
        (
            surface("a", "b", transparent=("a",)),
            ["/mcp/a", "/mcp/b", "/sse/b", "/ws/b", "/upload/b", "/healthz"],
        ),
    ],
)
def test_whoever_is_lost_is_told_what_there_is(known: Surface, endpoints: list[str]) -> None:
    """The short paths too, where there is one server only; of a transparent one, the endpoint."""
    long = "/" + "x" * 300
    message = f"got path {long[:200]!r}, expected one of {', '.join(endpoints)}"
    said = not_found(long, known)
    assert json.loads(said.body) == {"detail": message, "code": "not_found", "endpoints": endpoints}
    assert (said.status, said.headers) == (404, described(said.body))
    of_endpoint = not_found("/mcp/x/y", known)
    message = f"got path '/mcp/x/y', expected one of {', '.join(endpoints)}"
    assert json.loads(of_endpoint.body)["error"] == {"code": -32600, "message": message}
    assert (of_endpoint.status, of_endpoint.headers) == (404, described(of_endpoint.body))
    of_page = not_found("/mcp/x/tools", known)
    message = f"got path '/mcp/x/tools', expected one of {', '.join(endpoints)}"
    assert json.loads(of_page.body) == {"error": message, "code": 404}
    of_operators = not_found("/servers/x", known)
    assert json.loads(of_operators.body)["code"] == "not_found", "hidden pages are like any that there is not"
