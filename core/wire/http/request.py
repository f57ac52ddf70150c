"""Builds requests to servers of Streamable HTTP: method, headers and body.

Source: 2025-03-26 to 2026-07-28, basic/transports, "Streamable HTTP", "Sending Messages to the Server".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...base.effects import Delete, Listen, Post
from ...base.errors import LocalProtocolError
from ...base.events import Cause
from ...base.events import Headers as Pairs
from ..http1.heads import PostHead
from .cookies import cookie_header
from .withheld import withhold

PROTOCOL_HEADERS: Final = frozenset(
    {b"accept", b"accept-encoding", b"content-type", b"last-event-id", b"mcp-session-id", b"mcp-protocol-version"}
)
"""The headers, in lower case, that `request_for` sets itself. Neither the configuration nor a client may set them, nor
those that mirror a part of the body (`MIRRORING`)."""

MIRRORING: Final = (b"mcp-method", b"mcp-name", b"mcp-param-")
"""The prefixes of headers that mirror a part of the body (2026-07-28 basic/transports/streamable-http)."""

FRAMING_HEADERS: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"expect", b"upgrade", b"te"}
    | {b"sec-websocket-" + name for name in (b"key", b"version", b"protocol", b"extensions", b"accept")}
)
"""The headers that belong to the connection. Only its driver may set them."""

EVENT_ID_MAX_BYTES: Final = 8 * 1024
"""The longest event id. No server takes a header with a longer one. At it: an event of a server with a longer id is no
place to resume from."""

FORMS_MAX: Final = 1024
"""The most heads of POSTs to one URL that are cached, by session and mirrored headers; less than 1 KB each."""

_VISIBLE: Final = re.compile(rb"[!-~]+")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"([!-~\x80-\xff]([ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?")


def request_for(
    target: Post | Listen | Delete, own: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[str, list[tuple[bytes, bytes]], bytes]:
    """Returns the method, the headers (names in lower case) and the body of the request for `target`.

    Args:
        own: headers, checked and in lower case, that every request to this server has. A header forwarded from a client
            (`target.headers`) replaces none of them. Cookies that the server has set are appended to a `Cookie` header,
            except those whose names it has already.

    Raises:
        LocalProtocolError: a session or revision has other than visible ASCII characters, an event id or a forwarded
            header cannot be carried in a header, or a forwarded header is one that a client may not set.
    """
    headers = [*own, (b"accept-encoding", b"identity")]
    body = b""
    match target:
        case Post():
            method, body = "POST", target.message
            headers.append((b"content-type", b"application/json"))
            headers.append((b"accept", b"application/json, text/event-stream"))
        case Listen():
            method = "GET"
            headers.append((b"accept", b"text/event-stream"))
            if target.last_event_id:  # "" means that the server withdrew it
                headers.append((b"last-event-id", _encode_event_id(target.last_event_id)))
        case Delete():
            method = "DELETE"
    if target.session is not None:
        headers.append((b"mcp-session-id", _encode_visible(target.session, "session id")))
    if target.revision is not None:
        headers.append((b"mcp-protocol-version", _encode_visible(target.revision, "revision")))
    if isinstance(target, Post):
        headers += _encode_mirrored(target)
    if target.headers:
        taken = {name for name, _ in own}
        headers += [field for field in map(_encode_pair, target.headers) if field[0] not in taken]
    if target.cookies:
        # RFC 6265, 5.4: "the user agent MUST NOT attach more than one Cookie header field".
        line = cookie_header([value for name, value in headers if name == b"cookie"], target.cookies)
        headers = [field for field in headers if field[0] != b"cookie"] + [(b"cookie", line)]
    return method, headers, body


class RequestForms:
    """Builds the requests to one URL. The head that POSTs of one session share is checked and encoded once.

    Args:
        own: see `request_for`.
    """

    def __init__(self, own: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._own = own
        self._posts: dict[tuple[str | None, str | None, Pairs], PostHead | None] = {}

    def post_head(self, target: Post) -> PostHead | None:
        """Returns the cached head of a POST. None if the POST has headers or cookies of its own, or is the first with
        its session, revision and mirrored headers: many sessions send only one. The caller then uses `fill`.

        The head depends on that key alone, so it equals what `request_for` returns, which
        `tests/core/wire/http1/test_heads.py` checks.

        Raises:
            LocalProtocolError: see `request_for`.
        """
        if target.headers or target.cookies:
            return None
        key = target.session, target.revision, target.mirrored
        head = self._posts.get(key)
        if head is None:
            is_known = key in self._posts
            if not is_known and len(self._posts) >= FORMS_MAX:
                self._posts.clear()
            head = self._posts[key] = PostHead(tuple(request_for(target, self._own)[1])) if is_known else None
        return head

    def fill(self, target: Post | Listen | Delete) -> tuple[str, list[tuple[bytes, bytes]], bytes]:
        """Returns `request_for` with the headers of this URL."""
        return request_for(target, self._own)

    def withhold(self, cause: Cause) -> Cause:
        """Returns the end of such a request without what a server said of the headers of this URL."""
        return withhold(cause, self._own)


def _encode_mirrored(target: Post) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in target.mirrored]


def encode_header(name: str, value: str) -> tuple[bytes, bytes]:
    """Checks and encodes a header that is sent besides those of the protocol. Its name becomes lower case.

    Raises:
        LocalProtocolError: the header cannot be sent, or is one of the protocol or the connection. The message does not
            repeat the value.
    """
    encoded_name = name.encode("utf-8", "surrogatepass")
    if _NAME.fullmatch(encoded_name) is None:
        raise LocalProtocolError(f"got header name {name!r}, expected letters, digits and hyphens")
    encoded_name = encoded_name.lower()
    if encoded_name in PROTOCOL_HEADERS | FRAMING_HEADERS or encoded_name.startswith(MIRRORING):
        raise LocalProtocolError(f"got header {name}, which is set for each request; leave it out")
    try:
        encoded = value.encode("latin-1")
    except UnicodeEncodeError:
        encoded = b"\n"  # refused below
    if _VALUE.fullmatch(encoded) is None:
        raise LocalProtocolError(f"the value of header {name} has characters that no header can carry")
    return encoded_name, encoded


def is_value(value: bytes) -> bool:
    """True if a header can carry `value`."""
    return _VALUE.fullmatch(value) is not None


def can_be_named(event_id: str | None) -> bool:
    """True if a stream can be resumed after that event: the id fits into a `Last-Event-ID` header, or there is none."""
    try:
        return not event_id or bool(_encode_event_id(event_id))
    except LocalProtocolError:
        return False


def _encode_visible(value: str, name: str) -> bytes:
    encoded = value.encode("utf-8", "surrogatepass")
    if _VISIBLE.fullmatch(encoded) is None:
        raise LocalProtocolError(f"got a {name} that is no visible ASCII, expected only characters 0x21 to 0x7E")
    return encoded


def _encode_event_id(event_id: str) -> bytes:
    """Encodes an event id for `Last-Event-ID`. Source: WHATWG HTML, "Server-sent events", "The `Last-Event-ID` header":
    "encoded as UTF-8"."""
    encoded = event_id.encode("utf-8", "surrogatepass")
    if len(encoded) > EVENT_ID_MAX_BYTES or _VALUE.fullmatch(encoded) is None:
        seen = f"an event id of {len(encoded)} bytes" if len(encoded) > EVENT_ID_MAX_BYTES else "an event id"
        raise LocalProtocolError(
            f"got {seen} that no header can carry, expected {EVENT_ID_MAX_BYTES} bytes at most, no control characters"
        )
    return encoded


def _encode_pair(header: tuple[str, str]) -> tuple[bytes, bytes]:
    return encode_header(*header)
