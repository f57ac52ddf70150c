"""What browsers are told so that web pages of acceptable origins may call: the server's part of the CORS protocol.

A browser asks before a page's call (the *preflight*), and lets the page read a response only if the response names the
page's origin. Whether an origin is acceptable is `http_headers.allows_origin`'s to say; who is not acceptable, or sends
no Origin, is told nothing here. Credentials in the browser's keeping (cookies) are never asked for.

Source: WHATWG Fetch, "CORS protocol".
"""

from __future__ import annotations

import re
from typing import Final

from ..headers import Headers, allows_origin

MAX_AGE_S: Final = 600
"""How long a browser may remember what a preflight was answered: some cap it at that."""
NAMES_MAX: Final = 64
"""Requested header names that are allowed by name; `Access-Control-Allow-Headers` is bounded by it."""
NAME_MAX_CHARS: Final = 64

ALLOWED_HEADERS: Final = (
    "content-type, accept, authorization, mcp-session-id, mcp-protocol-version, last-event-id, mcp-method, mcp-name, "
    "x-filename, x-content-sha256, tus-resumable, upload-length, upload-offset, upload-metadata, upload-checksum, range"
)
"""What a preflight is told that names no headers itself."""
EXPOSED_HEADERS: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"
"""What a page may read of a response, besides what it always may."""

EXPOSED_FILE_HEADERS: Final = (
    b"Location, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Expires, Upload-Handle, Tus-Resumable, "
    b"Tus-Version, Tus-Max-Size, Tus-Extension, Tus-Checksum-Algorithm, ETag, Accept-Ranges, Content-Range, "
    b"Content-Disposition"
)
"""The same for uploads and downloads."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def response_headers(
    headers: Headers, hosts: frozenset[str], origins: frozenset[str], *, exposed: bytes = EXPOSED_HEADERS
) -> Headers:
    """What every response to a request with these headers carries: nothing without an acceptable Origin."""
    found = [value for name, value in headers if name == b"origin"]
    if len(found) != 1 or not allows_origin(found[0].decode("latin-1"), hosts, origins):
        return ()
    return (
        (b"access-control-allow-origin", found[0]),
        (b"vary", b"Origin"),
        (b"access-control-expose-headers", exposed),
    )


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks on behalf of a page. The request itself comes later, if it may."""
    names = {name for name, _ in headers}
    return method == "OPTIONS" and b"origin" in names and b"access-control-request-method" in names


def preflight_headers(headers: Headers, methods: tuple[str, ...]) -> Headers:
    """What the answer to a preflight says, besides `response_headers`: its status is 204.

    Args:
        methods: those of what was asked for.
    """
    lines = (value.decode("latin-1") for name, value in headers if name == b"access-control-request-headers")
    asked = (name.strip().lower() for line in lines for name in line.split(","))
    # A bare * is a token, too, but to a browser it means all names.
    tokens = [name for name in asked if name != "*" and len(name) <= NAME_MAX_CHARS and _TOKEN.fullmatch(name)]
    allowed = ", ".join(tokens[:NAMES_MAX]) or ALLOWED_HEADERS
    return (
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", allowed.encode()),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
    )
