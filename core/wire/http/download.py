"""Plans the response to a download: ranges, conditions, and the headers that keep a file from running as a web page.

The files come from tools, and their authors are unknown, so no code in them may run with the rights of this origin.
Only types that browsers show without running anything are shown inline, and even those are sandboxed.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

import msgspec

from ...base.lazy_regex import Pattern
from ...base.storage import Serve
from ..headers import Headers
from .conditional import Validators
from .ranges import parse_ranges

INLINE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})

_MEDIA_TYPE: Final = Pattern(r"([a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+)(; ?[a-z0-9-]+=[A-Za-z0-9._-]+)*", re.I)
_ATTR_CHARS: Final = "!#$&+-.^_`|~"  # RFC 5987, attr-char, besides letters and digits


class Part(msgspec.Struct, frozen=True):
    """A part of a response body: first `head`, then the bytes `start:stop` of the file."""

    start: int
    stop: int
    head: bytes = b""


class Download(msgspec.Struct, frozen=True):
    """A planned response: status, headers, and a body made of the parts, none of them empty, followed by `tail`."""

    status: int
    headers: Headers
    parts: tuple[Part, ...] = ()
    tail: bytes = b""


def plan_download(order: Serve, headers: Headers, *, head_only: bool = False) -> Download:
    """Decides the response to a GET or HEAD of a file.

    Args:
        headers: the headers of the request, names in lower case.
        head_only: the request is a HEAD. Its response has the same head and no body; ranges are ignored (RFC 9110,
            14.2).
    """
    size = order.size_bytes
    validators = Validators(f'"{order.sha256}"'.encode(), int(order.stored_at_unix))
    common = (
        *validators.headers,
        (b"cache-control", b"private"),
        (b"accept-ranges", b"bytes"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox"),
    )
    judged = validators.judge(headers)
    if judged == 304:
        return Download(304, common)
    if judged is not None:
        return Download(judged, (*common, (b"content-length", b"0")))

    chosen = None if head_only else _chosen_ranges(headers, validators, size)
    if chosen is not None and not chosen:
        unsatisfied = ((b"content-range", b"bytes */%d" % size), (b"content-length", b"0"))
        return Download(416, (*common, *unsatisfied))

    mime_type = _media_type(order.mime_type).encode()
    described = (*common, (b"content-disposition", _disposition(order.mime_type, order.filename).encode()))
    if chosen is not None and len(chosen) > 1:
        several = _multipart(order, described, mime_type, chosen)
        if several is not None:
            return several
        chosen = None
    described = (*described, (b"content-type", mime_type))
    if chosen is None:
        parts = (Part(0, size),) if size and not head_only else ()
        return Download(200, (*described, (b"content-length", b"%d" % size)), parts)
    (one,) = chosen
    part = ((b"content-range", _content_range(one, size)), (b"content-length", b"%d" % len(one)))
    return Download(206, (*described, *part), (Part(one.start, one.stop),))


def _chosen_ranges(headers: Headers, validators: Validators, size: int) -> list[range] | None:
    """Returns the ranges to send; None for the whole file."""
    ranges = [value for name, value in headers if name == b"range"]
    if len(ranges) != 1 or not validators.allow_range(headers):
        return None
    return parse_ranges(ranges[0], size)


def _multipart(order: Serve, described: Headers, mime_type: bytes, chosen: list[range]) -> Download | None:
    """Returns several ranges as one multipart body (RFC 9110, 14.6); None if the whole file is not longer than that."""
    # The boundary must not occur in the file. It is a hash of the file's hash, and no file can be made to hold that.
    boundary = hashlib.sha256(f"parts of {order.sha256}".encode()).hexdigest()[:32].encode()
    parts: list[Part] = []
    for one in chosen:
        lines = (
            b"\r\n--" + boundary if parts else b"--" + boundary,
            b"Content-Type: " + mime_type,
            b"Content-Range: " + _content_range(one, order.size_bytes),
            b"\r\n",
        )
        parts.append(Part(one.start, one.stop, b"\r\n".join(lines)))
    tail = b"\r\n--" + boundary + b"--\r\n"
    length = sum(len(part.head) + part.stop - part.start for part in parts) + len(tail)
    if length >= order.size_bytes:
        return None
    framed = ((b"content-type", b"multipart/byteranges; boundary=" + boundary), (b"content-length", b"%d" % length))
    return Download(206, (*described, *framed), tuple(parts), tail)


def _content_range(one: range, size: int) -> bytes:
    return b"bytes %d-%d/%d" % (one.start, one.stop - 1, size)


def _media_type(mime_type: str) -> str:
    """Returns a type that a header can carry: a malformed one becomes `application/octet-stream`."""
    return mime_type if _MEDIA_TYPE.fullmatch(mime_type) else "application/octet-stream"


def _disposition(mime_type: str, filename: str) -> str:
    """Returns `Content-Disposition`, with the name in ASCII for old clients and in UTF-8 (RFC 5987) for all others."""
    essence = _media_type(mime_type).partition(";")[0].lower()
    kind = "inline" if essence in INLINE_TYPES else "attachment"
    plain = "".join(char if " " <= char <= "~" and char not in '"\\%' else "_" for char in filename)
    full = quote(filename, safe=_ATTR_CHARS, encoding="utf-8", errors="replace")
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{full}"
