"""CORS headers: a page of an acceptable origin gets all it needs, and no other page gets any."""

from __future__ import annotations

import msgspec
import pytest
from each_row import each_row
from isthmus.core.wire.http.cors import (
    ALLOWED_HEADERS,
    EXPOSED_FILE_HEADERS,
    EXPOSED_HEADERS,
    NAME_MAX_CHARS,
    NAMES_MAX,
)
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Head, McpRoute, Refused, Route, Surface
from isthmus.core.wire.http.server import judge, shared_headers

SURFACE = Surface(("files",), frozenset({"localhost", "[::1]"}), frozenset({"https://app.example"}))

ORIGINS = {
    "http://localhost": True,
    "https://LOCALHOST:6274": True,
    "http://[::1]:80": True,
    "https://app.example": True,
    "https://app.example:444": False,
    "http://app.example": False,
    "null": False,
    "*": False,
    "": False,
    "https://app.example, https://evil.example": False,
    "http://localhost.evil.example": False,
    "localhost": False,
}
METHODS = {
    "/mcp": b"GET, POST, DELETE",
    "/mcp/files": b"GET, POST, DELETE",
    "/mcp/other": b"GET, POST, DELETE",
    "/sse": b"GET",
    "/sse/files": b"GET",
    "/messages": b"POST",
    "/messages/files?session=1": b"POST",
    "/upload/files?sig=1": b"POST, PUT, HEAD, GET, PATCH, DELETE, OPTIONS",
    "/artifacts/files/s/a/f": b"GET, HEAD",
}


def head(target: str, *extra: tuple[str, str], method: str = "OPTIONS") -> Head:
    headers = [("host", "localhost"), *extra]
    return Head(method, target, tuple((name.encode(), value.encode("latin-1")) for name, value in headers))


def preflight(target: str, *extra: tuple[str, str], origin: str = "https://app.example") -> Route:
    requested = head(target, ("origin", origin), ("access-control-request-method", "POST"), *extra)
    return judge(requested, SURFACE)


@each_row("origin", ORIGINS)
@each_row("target", METHODS)
def test_a_preflight_is_answered_for_acceptable_origins_only(origin: str, target: str) -> None:
    route = preflight(target, origin=origin)
    assert isinstance(route, Refused)
    if not ORIGINS[origin]:
        assert route.status == 403
        return
    assert (route.status, route.body) == (204, b"")
    assert dict(route.headers) == {
        b"access-control-allow-methods": METHODS[target],
        b"access-control-allow-headers": ALLOWED_HEADERS.encode(),
        b"access-control-max-age": b"600",
    }


@each_row("origin", ORIGINS)
@each_row("method", ["GET", "POST", "OPTIONS", "PUT"])
@each_row("target", ["/mcp", "/healthz", "/nothing", "*", "/mcp/far/tools/call", "/more/tools"])
def test_every_response_names_an_acceptable_origin_or_none(origin: str, method: str, target: str) -> None:
    """A response to a command of a page names none. Paths of a transparent server, and aliases, are no pages."""
    rules = {"far": ForwardTarget("far", "http://up.example/base", b"key")}
    surface = msgspec.structs.replace(SURFACE, transparent=rules, aliases={"/mcp/more/tools": "/mcp/more"})
    shared = shared_headers(head(target.replace("/more", "/mcp/more"), ("origin", origin), method=method), surface)
    assert bool(shared) == (ORIGINS[origin] and not (target == "/healthz" and method in ("POST", "PUT")))
    if shared:
        assert dict(shared) == {
            b"access-control-allow-origin": origin.encode(),
            b"vary": b"Origin",
            b"access-control-expose-headers": b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate",
        }


def test_a_request_without_one_origin_gets_no_cors_headers() -> None:
    assert shared_headers(head("/mcp", method="POST"), SURFACE) == ()
    twice = head("/mcp", ("origin", "https://app.example"), ("origin", "https://app.example"), method="POST")
    assert shared_headers(twice, SURFACE) == ()
    refused = judge(twice, SURFACE)
    assert isinstance(refused, Refused) and refused.status == 400


@pytest.mark.parametrize(
    "requested, allowed",
    [
        (("content-type,mcp-session-id",), "content-type, mcp-session-id"),
        (("X-Mine", "Mcp-Param-Region , authorization"), "x-mine, mcp-param-region, authorization"),
        (("*",), ALLOWED_HEADERS),
        (("*, x-mine",), "x-mine"),
        (("",), ALLOWED_HEADERS),
        (("a b, c:d, \xe4, x-mine",), "x-mine"),
        (("x" * (NAME_MAX_CHARS + 1) + ",x",), "x"),
        ((",".join(f"x{n}" for n in range(500)),), ", ".join(f"x{n}" for n in range(NAMES_MAX))),
    ],
)
def test_requested_headers_are_allowed_if_they_are_names(requested: tuple[str, ...], allowed: str) -> None:
    route = preflight("/mcp", *(("access-control-request-headers", line) for line in requested))
    assert isinstance(route, Refused)
    assert dict(route.headers)[b"access-control-allow-headers"] == allowed.encode()


def test_an_incomplete_preflight_is_an_ordinary_request() -> None:
    origin, method = ("origin", "https://app.example"), ("access-control-request-method", "POST")
    for extra in ((origin,), (method,), ()):
        refused = judge(head("/mcp", *extra), SURFACE)
        assert isinstance(refused, Refused) and refused.status == 405
    posted = head("/mcp", origin, method, ("content-type", "application/json"), method="POST")
    assert isinstance(judge(posted, SURFACE), McpRoute)
    page = preflight("/healthz")
    assert isinstance(page, Refused) and page.status == 405


def test_a_preflight_with_a_foreign_host_is_refused() -> None:
    requested = head("/mcp", ("origin", "https://app.example"), ("access-control-request-method", "POST"))
    foreign = Head(requested.method, requested.target, ((b"host", b"evil.example"), *requested.headers[1:]))
    refused = judge(foreign, SURFACE)
    assert isinstance(refused, Refused) and refused.status == 403


def test_the_headers_that_pages_may_read() -> None:
    """Uploads expose all tus response headers, downloads the headers that locate and identify a file or a part of
    it."""
    assert {name.lower() for name in EXPOSED_FILE_HEADERS.split(b", ")} == {
        *(b"upload-offset", b"upload-length", b"upload-metadata", b"upload-expires", b"upload-handle"),
        *(b"tus-resumable", b"tus-version", b"tus-max-size", b"tus-extension", b"tus-checksum-algorithm"),
        *(b"location", b"etag", b"accept-ranges", b"content-range", b"content-disposition"),
    }
    assert EXPOSED_HEADERS.lower().split(b", ") == [b"mcp-session-id", b"mcp-protocol-version", b"www-authenticate"]


@pytest.mark.parametrize("target", ["/servers", "/tasks", "/files/x/content?a=1", "/metrics"])
def test_no_page_of_another_origin_reads_those_of_operators(target: str) -> None:
    lines = ("origin", "http://localhost:1234")
    assert shared_headers(head(target, lines, method="GET"), SURFACE) == ()
    assert shared_headers(head("/mcp/far/tools", lines, method="GET"), SURFACE) != ()
