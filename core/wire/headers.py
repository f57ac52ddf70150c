"""The request headers that decide anything here: each read once, with the form it must have.

Every function raises `RemoteProtocolError` for what a client got wrong, with the status to answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..base.errors import RemoteProtocolError

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
USUAL_ACCEPT: Final = f"{JSON}, {EVENTS}"
SESSION_ID_MAX_CHARS: Final = 256

TRANSPORTS: Final = "2025-11-25 basic/transports"

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, values without edge blanks."""

# A second line of one of these is refused: two readers could each believe another one.
_SINGLE: Final = {
    b"host": "Host",
    b"origin": "Origin",
    b"content-type": "Content-Type",
    b"content-length": "Content-Length",
    b"mcp-session-id": "Mcp-Session-Id",
    b"mcp-protocol-version": "MCP-Protocol-Version",
    b"last-event-id": "Last-Event-ID",
}
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::[0-9]{1,5})?")


def body_size(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """How many bytes of body follow a head whose framing is sound; None when it is chunked."""
    size = 0
    for name, value in headers:
        if name == b"content-length":
            size = int(value)
        elif name == b"transfer-encoding":
            return None
    return size


def read_fields(headers: Headers) -> dict[bytes, str]:
    """The headers that matter here, by name; the lines of Accept joined."""
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
        # RFC 9112, 6.1: what "might indicate an attempt to perform request smuggling".
        raise RemoteProtocolError("got both Content-Length and Transfer-Encoding, expected one of them")
    if (event_id := fields.get(b"last-event-id")) is not None:
        try:
            fields[b"last-event-id"] = event_id.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("got a Last-Event-ID that is not UTF-8, expected an id this server sent")
    return fields


def check_host(host: str | None, hosts: frozenset[str], *, any_host: bool) -> str:
    """The Host header in lower case, port included, if it names us.

    A page that makes a browser resolve its own name to this machine sends that name here: refusing it is what stops
    DNS rebinding. Source: 2025-11-25 basic/transports, "Security Warning".
    """
    matched = None if host is None else _HOST.fullmatch(host.lower())
    if matched is None or not (any_host or matched[1] in hosts):
        seen = "no Host header" if host is None else f"Host {host[:200]!r}"
        names = ", ".join(sorted(hosts))
        raise RemoteProtocolError(
            f"got {seen}, expected one of {names}; more can be allowed in the configuration",
            http_status=403,
            clause=f'{TRANSPORTS}, "Security Warning"',
        )
    return matched[0]


def is_loopback(host: str) -> bool:
    """Whether a Host, with or without its port, is a name of this machine that no other machine has."""
    return _LOOPBACK.fullmatch(host.lower()) is not None


def check_origin(origin: str | None, hosts: frozenset[str], origins: frozenset[str]) -> None:
    """Refuse a foreign Origin. Only browsers send one."""
    if origin is not None and not allows_origin(origin, hosts, origins):
        raise RemoteProtocolError(
            f"got Origin {origin[:200]!r}, expected none, or one that the configuration allows",
            http_status=403,
            clause=f'{TRANSPORTS}, "Security Warning"',
        )


def allows_origin(origin: str, hosts: frozenset[str], origins: frozenset[str]) -> bool:
    """Whether web pages of `origin` may call: it is named in `origins`, or its host is one of ours."""
    if origin.lower() in origins:
        return True
    matched = _ORIGIN.fullmatch(origin.lower())
    return matched is not None and matched[1] in hosts


def read_session(fields: dict[bytes, str]) -> str | None:
    """The `Mcp-Session-Id`, if there is one: visible ASCII, at most `SESSION_ID_MAX_CHARS`."""
    session = read_visible(fields, b"mcp-session-id", "Mcp-Session-Id")
    if session is not None and len(session) > SESSION_ID_MAX_CHARS:
        raise RemoteProtocolError(
            f"got an Mcp-Session-Id of {len(session)} characters, expected at most {SESSION_ID_MAX_CHARS}"
        )
    return session


def read_visible(fields: dict[bytes, str], name: bytes, label: str) -> str | None:
    """A header that consists of visible ASCII.

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
    """Whether an Accept header allows `media`. An empty one allows everything.

    Of the ranges that match, the most specific decides (RFC 9110, 12.5.1). A weight that cannot be read counts as 1.
    """
    if accept in ("", USUAL_ACCEPT):
        return True
    ranks = {media: 3, media.partition("/")[0] + "/*": 2, "*/*": 1}
    best, verdict = 0, False
    for item in accept.split(","):
        essence, *parameters = item.split(";")
        rank = ranks.get(essence.strip().lower(), 0)
        if rank < max(best, 1):
            continue
        wanted = _weight(parameters) > 0
        verdict = wanted if rank > best else verdict or wanted
        best = rank
    return verdict


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0
