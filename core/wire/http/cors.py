"""The server's side of the CORS protocol, which lets web pages of acceptable origins call.

A browser asks before a page's request (the *preflight*), and lets the page read a response only if the response names
the origin of the page. `origin.allows_origin` decides whether an origin is acceptable. A request with another origin,
or with none, gets no CORS headers. Credentials that the browser keeps (cookies) are never requested.

Source: WHATWG Fetch, "CORS protocol".
"""

from __future__ import annotations

import re
from typing import Final

from ..headers import Headers
from .origin import allows_origin

MAX_AGE_S: Final = 600
"""The time for which a browser may cache the response to a preflight. Some browsers cap it at this value."""
NAMES_MAX: Final = 64
"""The most requested header names that are allowed; it bounds `Access-Control-Allow-Headers`. At it: further names are
not allowed to the page."""
NAME_MAX_CHARS: Final = 64

ALLOWED_HEADERS: Final = (
    "content-type, accept, authorization, mcp-session-id, mcp-protocol-version, last-event-id, mcp-method, mcp-name, "
    "x-filename, x-content-sha256, tus-resumable, upload-length, upload-offset, upload-metadata, upload-checksum, range"
)
"""The headers allowed to a preflight that names none itself."""
EXPOSED_HEADERS: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"
"""The response headers that a page may read, besides those that CORS always allows."""

EXPOSED_FILE_HEADERS: Final = (
    b"Location, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Expires, Upload-Handle, Tus-Resumable, "
    b"Tus-Version, Tus-Max-Size, Tus-Extension, Tus-Checksum-Algorithm, ETag, Accept-Ranges, Content-Range, "
    b"Content-Disposition"
)
"""The response headers that a page may read of uploads and downloads."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


def response_headers(
    headers: Headers, hosts: frozenset[str], origins: frozenset[str], *, exposed: bytes = EXPOSED_HEADERS
) -> Headers:
    """Returns the CORS headers of every response to a request with these headers; none without an acceptable
    `Origin`."""
    found = [value for name, value in headers if name == b"origin"]
    if len(found) != 1 or not allows_origin(found[0].decode("latin-1"), hosts, origins):
        return ()
    return (
        (b"access-control-allow-origin", found[0]),
        (b"vary", b"Origin"),
        (b"access-control-expose-headers", exposed),
    )


def is_preflight(method: str, headers: Headers) -> bool:
    """True if the request is a preflight. The browser sends the request itself later, if it is allowed."""
    names = {name for name, _ in headers}
    return method == "OPTIONS" and b"origin" in names and b"access-control-request-method" in names


def preflight_headers(headers: Headers, methods: tuple[str, ...]) -> Headers:
    """Returns the headers of the response to a preflight, besides `response_headers`. Its status is 204.

    Args:
        methods: the methods of the requested path.
    """
    lines = (value.decode("latin-1") for name, value in headers if name == b"access-control-request-headers")
    asked = (name.strip().lower() for line in lines for name in line.split(","))
    # A bare * is a valid token, but a browser would read it as all names.
    tokens = [name for name in asked if name != "*" and len(name) <= NAME_MAX_CHARS and _TOKEN.fullmatch(name)]
    allowed = ", ".join(tokens[:NAMES_MAX]) or ALLOWED_HEADERS
    return (
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", allowed.encode()),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
    )
