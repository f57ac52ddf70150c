"""The responses of the proxy itself: errors in the form that clients of each path expect, and the admin pages."""

from __future__ import annotations

import json
from typing import Final

import msgspec

from ...base.errors import INVALID_REQUEST
from ..headers import JSON, Headers
from .admin_routes import USE, find_page
from .routes import Refused, Surface

_CODES: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "timed_out",
    413: "request_too_large",
    414: "uri_too_long",
    415: "unsupported_media_type",
    426: "upgrade_required",
    417: "expectation_failed",
    431: "head_too_large",
    500: "internal_error",
    501: "not_implemented",
    503: "overloaded",
    505: "version_not_supported",
}


def refusal(status: int, message: str, *, is_mcp: bool = False, code: str = "", extra: Headers = ()) -> Refused:
    """Returns an error response: a JSON-RPC error with id null on the MCP endpoint, `{"detail", "code"}` elsewhere.

    Source: 2025-11-25 basic/transports, "Sending Messages to the Server": the body MAY be "a JSON-RPC error response
    that has no id".
    """
    if is_mcp:
        return _refused(
            status, {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": message}}, extra
        )
    return _refused(status, {"detail": message, "code": code or _CODES.get(status, "refused")}, extra)


def is_mcp(path: str) -> bool:
    """True if errors under this path are JSON-RPC errors."""
    return path[1:].partition("/")[0] in ("mcp", "sse", "messages")


def not_found(path: str, surface: Surface, root: str = "") -> Refused:
    """Returns a 404 for `path` below `root`, which names the paths that exist."""
    served = [area for area in ("mcp", "sse", "ws", "upload") if area in surface.areas]
    endpoints: list[str] = []
    if surface.default:
        endpoints += [f"/{area}" for area in served if area != "upload"]
    elif len(surface.servers) == 1:
        endpoints += [f"/{area}" for area in served if area == "mcp" or (area != "upload" and not surface.transparent)]
    for server in surface.servers:
        endpoints += [f"/{area}/{server}" for area in served if area == "mcp" or server not in surface.transparent]
    endpoints += [f"/{area}/{profile}" for profile in surface.profiles for area in served if area != "upload"]
    if "pages" in surface.areas:
        endpoints.append("/healthz")
    endpoints = [root + endpoint for endpoint in endpoints]
    message = f"got path {(root + path)[:200]!r}, expected one of {', '.join(endpoints)}"
    found = find_page(path)
    if found is not None and found[0] in USE:
        return page_error(404, message)
    if is_mcp(path):
        return refusal(404, message, is_mcp=True)
    return _refused(404, {"detail": message, "code": "not_found", "endpoints": endpoints}, ())


def page_answer(status: int, body: bytes, extra: Headers = (), *, content_type: str = JSON) -> Refused:
    """Returns the response of an admin page, which is not to be cached."""
    common = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
    return _answer(status, body, (*common, *extra), content_type)


def page_error(status: int, message: str, extra: Headers = (), **members: object) -> Refused:
    """Returns the error response of an admin page: `{"error", "code"}` and `members`."""
    return page_answer(status, msgspec.json.encode({"error": message, "code": status, **members}), extra)


def refusal_at(path: str, status: int, message: str, extra: Headers = ()) -> Refused:
    """Returns an error response in the form that clients of `path` expect."""
    if find_page(path) is not None:
        return page_error(status, message, extra)
    return refusal(status, message, is_mcp=is_mcp(path), extra=extra)


def _refused(status: int, body: dict[str, object], extra: Headers) -> Refused:
    return _answer(status, json.dumps(body).encode(), extra, JSON)


def _answer(status: int, body: bytes, extra: Headers, content_type: str) -> Refused:
    described = ((b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()))
    return Refused(status, body, (*described, *extra))
