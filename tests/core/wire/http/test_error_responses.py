"""Error responses and pages, to the byte, and the form that each path gets."""

from __future__ import annotations

import json

import pytest
from isthmus.core.wire.http.error_responses import (
    CANDIDATES_MAX,
    is_mcp,
    not_found,
    page_answer,
    page_error,
    refusal,
    refusal_at,
)
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Surface

EXTRA = ((b"allow", b"GET"),)
SAFE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def described(body: bytes, content_type: bytes = b"application/json") -> tuple[tuple[bytes, bytes], ...]:
    return ((b"content-type", content_type), (b"content-length", b"%d" % len(body)))


def surface(*servers: str, transparent: tuple[str, ...] = ()) -> Surface:
    targets = {server: ForwardTarget(server, "http://up.example/", b"key") for server in transparent}
    return Surface(servers, frozenset(), frozenset(), transparent=targets)


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
    """Programs tell errors apart by the code. "refused" stands for a status without a code of its own; an explicit code
    is used as given."""
    answer = refusal(status, "why", extra=EXTRA)
    assert json.loads(answer.body) == {"detail": "why", "code": code}
    assert (answer.status, answer.headers) == (status, (*described(answer.body), *EXTRA))
    assert json.loads(refusal(status, "why", code="special").body) == {"detail": "why", "code": "special"}


def test_an_error_at_the_endpoint_is_a_json_rpc_error_without_an_id() -> None:
    answer = refusal(406, "why", is_mcp=True, code="unused", extra=EXTRA)
    assert json.loads(answer.body) == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "why"}}
    assert (answer.status, answer.headers) == (406, (*described(answer.body), *EXTRA))


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
def test_paths_that_take_messages_have_json_rpc_errors(path: str, is_one: bool) -> None:
    assert is_mcp(path) is is_one
    assert ("jsonrpc" in json.loads(refusal_at(path, 400, "why").body)) is is_one


def test_a_page_is_neither_cached_nor_sniffed() -> None:
    answer = page_answer(200, b"a 1\n", EXTRA, content_type="text/plain")
    assert (answer.status, answer.body) == (200, b"a 1\n")
    assert answer.headers == (*described(b"a 1\n", b"text/plain"), *SAFE, *EXTRA)
    assert page_answer(200, b"{}").headers == (*described(b"{}"), *SAFE)


def test_an_error_of_a_page_has_its_status_and_further_members() -> None:
    answer = page_error(409, "why", EXTRA, state="stopped")
    assert json.loads(answer.body) == {"error": "why", "code": 409, "state": "stopped"}
    assert (answer.status, answer.headers) == (409, (*described(answer.body), *SAFE, *EXTRA))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/info", {"error": "why", "code": 405}),
        ("/mcp/a/tools", {"error": "why", "code": 405}),
        ("/mcp/a", {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "why"}}),
        ("/upload/a", {"detail": "why", "code": "method_not_allowed"}),
    ],
)
def test_each_path_has_its_form_of_error(path: str, body: object) -> None:
    answer = refusal_at(path, 405, "why", EXTRA)
    lasting = SAFE if "error" in json.loads(answer.body) and "jsonrpc" not in json.loads(answer.body) else ()
    assert json.loads(answer.body) == body
    assert (answer.status, answer.headers) == (405, (*described(answer.body), *lasting, *EXTRA))


MANY = tuple(f"server-{n}" for n in range(29))
PROFILED = Surface(("time", "git"), frozenset(), frozenset(), profiles={"dev": ("git",), "all": ()}, default="all")


@pytest.mark.parametrize(
    ("known", "path", "expected"),
    [
        (surface(), "/mcp", "expected /healthz"),
        (surface(), "/mcp/x", "expected /healthz"),
        (surface("a"), "/", "expected /mcp"),
        (surface("a"), "/mpc", "expected /mcp"),
        (surface("a"), "/mcp/b", "expected /mcp"),
        (surface("a"), "/wss", "expected /mcp; did you mean /ws?"),
        (surface("a"), "/helthz", "expected /mcp; did you mean /healthz?"),
        (surface("time", "git"), "/mcp", "expected /mcp/ID with ID one of time, git"),
        (surface("time", "git"), "/mpc", "expected /mcp/ID with ID one of time, git"),
        (surface("time", "git"), "/mcp/tiem", "expected /mcp/ID with ID one of time, git; did you mean time?"),
        (surface("time", "git"), "/tiem/sse", "expected /sse/ID with ID one of time, git; did you mean time?"),
        (surface("time", "git"), "/messages/tiem", "expected /sse/ID with ID one of time, git; did you mean time?"),
        (surface("time", "git"), "/time/mpc", "expected /mcp/ID with ID one of time, git; did you mean /time/mcp?"),
        (surface("time", "git"), "/time", "expected /mcp/ID with ID one of time, git; did you mean /time/mcp?"),
        (surface("time", "git"), "/mpc/time", "expected /mcp/ID with ID one of time, git; did you mean /mcp/time?"),
        (surface("time", "git"), "/upload/gti", "expected /upload/ID with ID one of time, git; did you mean git?"),
        (PROFILED, "/mcp/dve", "expected /mcp or /mcp/ID with ID one of time, git, dev, all; did you mean dev?"),
        (PROFILED, "/upload", "expected /upload/ID with ID one of time, git"),
        (surface("a", transparent=("a",)), "/sse", "expected /healthz"),
        (surface("a", "b", transparent=("a",)), "/ws/a", "expected /ws/ID with ID one of b"),
    ],
)
def test_an_unknown_path_is_answered_with_those_that_there_are(known: Surface, path: str, expected: str) -> None:
    """The answer is one line."""
    answer = not_found(path, known)
    body = json.loads(answer.body)
    message = f"got path {path!r}, {expected}"
    assert body.get("detail") == message or body["error"] == {"code": -32600, "message": message}, body
    assert (answer.status, answer.headers) == (404, described(answer.body))


def test_so_many_ids_are_compared_with_an_unknown_path() -> None:
    known = surface(*(f"server-{n}" for n in range(CANDIDATES_MAX)), "time")
    assert b"nearest" not in not_found("/mcp/tiem", known).body
    assert b"did you mean server-31?" in not_found("/mcp/sever-31", known).body


def test_an_unknown_path_is_answered_in_a_line_whatever_it_is() -> None:
    for path in ("/" + "x" * 300, "/mcp/server", "/" + "/mcp" * 100):
        message = not_found(path, surface(*MANY)).body.decode()
        assert len(message) < 400 and "server-0, server-1" in message and " and 19 more" in message
    known = surface("a", "b")
    right = "expected /mcp/ID with ID one of a, b"
    of_page = not_found("/mcp/x/tools", known)
    assert json.loads(of_page.body) == {"error": f"got path '/mcp/x/tools', {right}", "code": 404}
    of_operators = not_found("/servers/x", known)
    assert json.loads(of_operators.body)["code"] == "not_found", "hidden pages are like any that there is not"
