"""The request headers that decide the handling of a request, each read once and checked for its form.

Every function raises `RemoteProtocolError` for a mistake of the client, with the HTTP status to respond with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ..base.errors import LocalProtocolError, RemoteProtocolError

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
USUAL_ACCEPT: Final = f"{JSON}, {EVENTS}"
SESSION_ID_MAX_CHARS: Final = 256
"""Longest `Mcp-Session-Id`. SDKs use UUIDs. At it: 400."""

TRANSPORTS: Final = "2025-11-25 basic/transports"

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, values without edge blanks."""

# A second line of one of these is refused: two readers could each go by a different one.
_SINGLE: Final = {
    b"host": "Host",
    b"origin": "Origin",
    b"content-type": "Content-Type",
    b"content-encoding": "Content-Encoding",
    b"content-length": "Content-Length",
    b"mcp-session-id": "Mcp-Session-Id",
    b"mcp-protocol-version": "MCP-Protocol-Version",
    b"last-event-id": "Last-Event-ID",
}
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


def check_form(headers: Iterable[object]) -> None:
    """Checks headers that come from another library.

    Raises:
        LocalProtocolError: one is no pair of bytes, or its name is not in lower case. Values are not repeated.
    """
    for pair in headers:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise LocalProtocolError(f"got a header of type {type(pair).__name__}, expected a pair of bytes")
        name, value = pair
        if not (isinstance(name, bytes) and isinstance(value, bytes)):
            seen = f"{name!r} with a value of type {type(value).__name__}"
            raise LocalProtocolError(f"got the header {seen}, expected name and value as bytes: encode them")
        if name != name.lower():
            raise LocalProtocolError(f"got the header name {name!r}, expected it in lower case")


def body_size(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Returns the length of the body in bytes, of a head whose framing was checked; None for a chunked body."""
    size = 0
    for name, value in headers:
        if name == b"content-length":
            size = int(value)
        elif name == b"transfer-encoding":
            return None
    return size


def read_fields(headers: Headers) -> dict[bytes, str]:
    """Returns the headers that decide anything, by name. Several lines of `Accept` are joined.

    Raises:
        RemoteProtocolError: a header that must be single occurs twice; both `Content-Length` and `Transfer-Encoding`;
            an `Expect` other than 100-continue (417); a `Last-Event-ID` that is not UTF-8.
    """
    fields: dict[bytes, str] = {}
    is_chunked = False
    for name, value in headers:
        if name in _SINGLE:
            if name in fields:
                raise RemoteProtocolError(f"got two {_SINGLE[name]} headers, expected one")
            fields[name] = value.decode("latin-1")
        elif name == b"accept":
            text = value.decode("latin-1")
            fields[name] = f"{fields[name]}, {text}" if name in fields else text
        elif name == b"transfer-encoding":
            is_chunked = True
        elif name == b"expect" and any(item.strip().lower() != b"100-continue" for item in value.split(b",")):
            seen = value[:64].decode("latin-1")
            raise RemoteProtocolError(f"got Expect {seen!r}, expected none other than 100-continue", http_status=417)
    if is_chunked and b"content-length" in fields:
        # RFC 9112, 6.1: this "might indicate an attempt to perform request smuggling".
        raise RemoteProtocolError("got both Content-Length and Transfer-Encoding, expected one of them")
    if (event_id := fields.get(b"last-event-id")) is not None:
        try:
            fields[b"last-event-id"] = event_id.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("got a Last-Event-ID that is not UTF-8, expected an id this server sent")
    return fields


def read_session(fields: dict[bytes, str]) -> str | None:
    """Returns the `Mcp-Session-Id`, if there is one: visible ASCII, at most `SESSION_ID_MAX_CHARS`."""
    session = read_visible(fields, b"mcp-session-id", "Mcp-Session-Id")
    if session is not None and len(session) > SESSION_ID_MAX_CHARS:
        raise RemoteProtocolError(
            f"got an Mcp-Session-Id of {len(session)} characters, expected at most {SESSION_ID_MAX_CHARS}"
        )
    return session


def read_visible(fields: dict[bytes, str], name: bytes, label: str) -> str | None:
    """Returns a header that must consist of visible ASCII, or None if it is missing. `label` is its name in errors.

    Source: 2025-11-25 basic/transports, "Session Management": "The session ID MUST only contain visible ASCII
    characters (ranging from 0x21 to 0x7E)".
    """
    value = fields.get(name)
    if value is not None and _VISIBLE.fullmatch(value) is None:
        raise RemoteProtocolError(
            f"got {label} {value[:64]!r}, expected visible ASCII characters only",
            clause=f'{TRANSPORTS}, "Session Management"',
        )
    return value


def accepts(accept: str, media: str) -> bool:
    """True if an `Accept` header allows `media`. An empty header allows everything.

    The most specific of the matching ranges decides (RFC 9110, 12.5.1). A weight that cannot be read counts as 1.
    """
    if accept in ("", USUAL_ACCEPT):
        return True
    ranks = {media: 3, media.partition("/")[0] + "/*": 2, "*/*": 1}
    best, is_accepted = 0, False
    for item in accept.split(","):
        essence, *parameters = item.split(";")
        rank = ranks.get(essence.strip().lower(), 0)
        if rank < max(best, 1):  # does not match, or a more specific range was seen
            continue
        is_wanted = _weight(parameters) > 0
        is_accepted = is_wanted if rank > best else is_accepted or is_wanted
        best = rank
    return is_accepted


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0
