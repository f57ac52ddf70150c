"""How a stored file is handed to a browser or a program: ranges, conditions, and the headers that keep it harmless.

The files come from tools and their authors are unknown, so nothing of them may run with the rights of this origin:
only types that browsers show without running anything are shown inline, and even those are sandboxed.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import msgspec

from ..effects import Serve
from .http_headers import Headers

INLINE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})

_MEDIA_TYPE: Final = re.compile(r"([a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+)(; ?[a-z0-9-]+=[A-Za-z0-9._-]+)*", re.I)
_RANGE: Final = re.compile(rb"bytes[ \t]*=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.I)
_ATTR_CHARS: Final = "!#$&+-.^_`|~"  # RFC 5987, attr-char, besides letters and digits


class Download(msgspec.Struct, frozen=True):
    """A response: after `status` and `headers`, the bytes `start:stop` of the file (none when they are equal)."""

    status: int
    headers: Headers
    start: int
    stop: int


def plan_download(order: Serve, headers: Headers, *, head_only: bool = False) -> Download:
    """Decide the response to a GET or HEAD of a file.

    Args:
        headers: the request's, names in lower case.
        head_only: the request was HEAD: the same head, no bytes. Ranges have no meaning there (RFC 9110, 14.2).
    """
    size = order.size_bytes
    etag = f'"{order.sha256}"'.encode()
    common = (
        (b"etag", etag),
        (b"cache-control", b"private"),
        (b"accept-ranges", b"bytes"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox"),
    )
    if _is_known(headers, etag):
        return Download(304, common, 0, 0)

    chosen = None if head_only else _chosen_range(headers, etag, size)
    if chosen is not None and chosen.start >= chosen.stop:
        unsatisfied = ((b"content-range", b"bytes */%d" % size), (b"content-length", b"0"))
        return Download(416, (*common, *unsatisfied), 0, 0)

    described = (
        *common,
        (b"content-type", _media_type(order.mime_type).encode()),
        (b"content-disposition", _disposition(order.mime_type, order.filename).encode()),
    )
    if chosen is None:
        return Download(200, (*described, (b"content-length", b"%d" % size)), 0, 0 if head_only else size)
    part = (
        (b"content-range", b"bytes %d-%d/%d" % (chosen.start, chosen.stop - 1, size)),
        (b"content-length", b"%d" % (chosen.stop - chosen.start)),
    )
    return Download(206, (*described, *part), chosen.start, chosen.stop)


def _is_known(headers: Headers, etag: bytes) -> bool:
    """Whether If-None-Match names what we have; compared weakly (RFC 9110, 13.1.2)."""
    for name, value in headers:
        if name == b"if-none-match":
            tags = [tag.strip().removeprefix(b"W/") for tag in value.split(b",")]
            if etag in tags or b"*" in tags:
                return True
    return False


def _chosen_range(headers: Headers, etag: bytes, size: int) -> range | None:
    """The one range to send: None for the whole file, an empty one if it lies outside.

    Several ranges, and what is not a range of bytes, are ignored, as RFC 9110, 14.2 allows: the client gets the whole.
    """
    ranges = [value for name, value in headers if name == b"range"]
    validators = [value for name, value in headers if name == b"if-range"]
    if len(ranges) != 1 or any(validator != etag for validator in validators):
        return None
    matched = _RANGE.fullmatch(ranges[0])
    if matched is None or len(ranges[0]) > 64:
        return None
    first, last = matched[1], matched[2]
    if first:
        start = int(first)
        if last and int(last) < start:
            return None
        return range(min(start, size), min(int(last) + 1, size) if last else size)
    if last:
        return range(max(0, size - int(last)), size)
    return None


def _media_type(mime_type: str) -> str:
    """The type as it may stand in a header. What is none is bytes of no known kind."""
    return mime_type if _MEDIA_TYPE.fullmatch(mime_type) else "application/octet-stream"


def _disposition(mime_type: str, filename: str) -> str:
    """Content-Disposition with the name twice: plain for old readers, in UTF-8 (RFC 5987) for all others."""
    essence = _media_type(mime_type).partition(";")[0].lower()
    kind = "inline" if essence in INLINE_TYPES else "attachment"
    plain = "".join(char if " " <= char <= "~" and char not in '"\\%' else "_" for char in filename)
    full = quote(filename, safe=_ATTR_CHARS, encoding="utf-8", errors="replace")
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{full}"
