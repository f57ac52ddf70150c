"""The responses of the proxy itself: errors in the form that clients of each path expect, and the admin pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from ...base.errors import INVALID_REQUEST
from ...base.nearest import nearest
from ..headers import JSON, Headers
from .admin_routes import USE, find_page
from .endpoint_paths import has_second, second_path, usual_path
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

SEEN_MAX_CHARS: Final = 100
"""Characters of an unknown path that a message repeats."""
LISTED_MAX_CHARS: Final = 100
"""Characters of the ids that a message lists."""
CANDIDATES_MAX: Final = 32
"""Ids that an unknown path is compared with, since anybody may send one. At it: later ones are not suggested."""


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
    return usual_path(path.partition("?")[0])[1:].partition("/")[0] in ("mcp", "sse", "messages")


def not_found(path: str, surface: Surface, root: str = "") -> Refused:
    """Returns a 404 for `path` below `root`, which says what paths there are, and which is the nearest."""
    message = f"got path {(root + path)[:SEEN_MAX_CHARS]!r}, {_expected(path, surface, root)}"
    found = find_page(path)
    if found is not None and found[0] in USE:
        return page_error(404, message)
    return refusal(404, message, is_mcp=is_mcp(path))


def _expected(path: str, surface: Surface, root: str) -> str:
    area, *rest = usual_path(path)[1:].split("/")
    areas = [name for name in ("mcp", "sse", "ws", "upload") if name in surface.areas]
    if area == "messages":
        area = "sse"  # which names the paths of messages
    is_area = area in areas
    area = area if is_area or not areas else areas[0]
    opaque = () if area == "mcp" else surface.transparent
    ids = [id for id in surface.servers if id not in opaque]
    if area != "upload":
        ids += surface.profiles
    right = [f"{root}/{area}"] if surface.unnamed and surface.unnamed in ids else []
    if ids and (len(ids) > 1 or not right):
        right.append(f"{root}/{area}/ID with ID one of {_some(ids)}")
    if not right:
        right = [f"{root}/healthz"] if "pages" in surface.areas else ["nothing: there is no server here"]
    if is_area and rest and rest[0]:
        near = nearest(unquote(rest[0])[:64], ids[:CANDIDATES_MAX])
    else:
        candidates = [f"/{name}" for name in areas if surface.unnamed in ids]
        candidates += ["/healthz"] if "pages" in surface.areas else []
        for id in ids[:CANDIDATES_MAX]:
            candidates += [f"/{area}/{id}", *([second_path(area, id)] if has_second(id) else [])]
        found = None if is_area else nearest(path[:64], candidates)
        near = root + found if found else None
    meant = f"; did you mean {near}?" if near and near not in right else ""
    return f"expected {' or '.join(right)}{meant}"


def _some(ids: Sequence[str]) -> str:
    """Joins as many ids as fit into a line."""
    shown = list(ids)
    while len(shown) > 1 and len(", ".join(shown)) > LISTED_MAX_CHARS:
        shown.pop()
    return ", ".join(shown) + (f" and {len(ids) - len(shown)} more" if len(shown) < len(ids) else "")


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
