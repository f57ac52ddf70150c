"""What a request to a server of Streamable HTTP looks like: its method, its headers and its body.

Source: 2025-03-26 to 2026-07-28, basic/transports, "Streamable HTTP", "Sending Messages to the Server".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...base.effects import Delete, Listen, Post
from ...base.effects import Headers as Pairs
from ...base.errors import LocalProtocolError
from ..http1.heads import PostHead
from .cookies import cookie_header

PROTOCOL_HEADERS: Final = frozenset(
    {b"accept", b"accept-encoding", b"content-type", b"last-event-id", b"mcp-session-id", b"mcp-protocol-version"}
)
"""The names, in lower case, that `request_for` gives by itself. Nobody else may set them, nor those that mirror a part
of the body."""

MIRRORING: Final = (b"mcp-method", b"mcp-name", b"mcp-param-")
"""How the names of those begin (2026-07-28 basic/transports/streamable-http)."""

FRAMING_HEADERS: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"expect", b"upgrade", b"te"}
    | {b"sec-websocket-" + name for name in (b"key", b"version", b"protocol", b"extensions", b"accept")}
)
"""The names that belong to the connection. Nobody but its driver may set them."""

EVENT_ID_MAX_BYTES: Final = 8 * 1024
"""A longer event id fits into no header that a server would take."""

FORMS_MAX: Final = 1024
"""As many heads of POSTs to one URL are kept, of sessions or of what is called: less than a kilobyte each."""

_VISIBLE: Final = re.compile(rb"[!-~]+")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"([!-~\x80-\xff]([ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?")


def request_for(
    target: Post | Listen | Delete, own: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[str, list[tuple[bytes, bytes]], bytes]:
    """The method, the headers (names in lower case) and the body of the request for `target`.

    Args:
        own: headers, checked and in lower case, that every request to this server has. A header carried for a client
            (`target.headers`) takes the place of none of them. Cookies that the server has set stand behind those of a
            `Cookie` header that is there, and give way to its names.

    Raises:
        LocalProtocolError: a session or revision with other than visible ASCII characters, an event id or a carried
            header that no header can carry, or a carried header that is not the client's to set.
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
            if target.last_event_id:  # an empty one was withdrawn
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
    """The requests to one URL. What POSTs of one session have in common is checked and encoded once.

    Args:
        own: see `request_for`.
    """

    def __init__(self, own: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._own = own
        self._posts: dict[tuple[str | None, str | None, Pairs], PostHead | None] = {}

    def post_head(self, target: Post) -> PostHead | None:
        """The head of such a POST; None where it has something of its own, or is the first of its kind: many a session
        posts no second. See `request_for` for what is raised."""
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
        """See `request_for`."""
        return request_for(target, self._own)


def _encode_mirrored(target: Post) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in target.mirrored]


def encode_header(name: str, value: str) -> tuple[bytes, bytes]:
    """A header that goes with requests to a server beside the protocol's own, its name in lower case.

    Raises:
        LocalProtocolError: it cannot be sent, or is not for others to set. The message does not repeat the value.
    """
    encoded_name = name.encode("utf-8", "surrogatepass")
    if _NAME.fullmatch(encoded_name) is None:
        raise LocalProtocolError(f"got header name {name!r}, expected letters, digits and hyphens")
    encoded_name = encoded_name.lower()
    if encoded_name in PROTOCOL_HEADERS | FRAMING_HEADERS or encoded_name.startswith(MIRRORING):
        raise LocalProtocolError(f"got header {name}, which is set for each request; expected others only")
    try:
        encoded = value.encode("latin-1")
    except UnicodeEncodeError:
        encoded = b"\n"
    if _VALUE.fullmatch(encoded) is None:
        raise LocalProtocolError(f"the value of header {name} has characters that no header can carry")
    return encoded_name, encoded


def is_value(value: bytes) -> bool:
    """Whether a header can carry it."""
    return _VALUE.fullmatch(value) is not None


def can_be_named(event_id: str | None) -> bool:
    """Whether a stream can be taken up after that event. If not, it is as good as withdrawn."""
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
    """Source: WHATWG HTML, "Server-sent events", "The `Last-Event-ID` header": "encoded as UTF-8"."""
    encoded = event_id.encode("utf-8", "surrogatepass")
    if len(encoded) > EVENT_ID_MAX_BYTES or _VALUE.fullmatch(encoded) is None:
        seen = f"an event id of {len(encoded)} bytes" if len(encoded) > EVENT_ID_MAX_BYTES else "an event id"
        raise LocalProtocolError(
            f"got {seen} that no header can carry, expected {EVENT_ID_MAX_BYTES} bytes at most, no control characters"
        )
    return encoded


def _encode_pair(header: tuple[str, str]) -> tuple[bytes, bytes]:
    return encode_header(*header)
