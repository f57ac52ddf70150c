"""The rules of WebSocket that need no stream: the opening handshake, the negotiation of compression, and closing.

One text message carries one JSON-RPC message, and the subprotocol is `mcp`. No revision of the specification defines
this transport; the official Python SDK does it this way. A handshake is judged by its headers alone. Frames are neither
encoded nor parsed here.

Source: RFC 6455, and RFC 7692 for `permessage-deflate`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ..base.errors import RemoteProtocolError
from .headers import Headers

SUBPROTOCOL: Final = "mcp"
VERSION: Final = "13"

GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
INVALID_DATA: Final = 1007
TOO_BIG: Final = 1009
POLICY_VIOLATION: Final = 1008
INTERNAL_ERROR: Final = 1011
TRY_AGAIN_LATER: Final = 1013
"""The server is overloaded. Source: the IANA registry of WebSocket close codes."""

REASON_MAX_BYTES: Final = 123
"""The payload of a control frame has at most 125 bytes, and the code takes two of them (RFC 6455, 5.5)."""

_KEY_BYTES: Final = 16
_ACCEPT_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

_DEFLATE: Final = "permessage-deflate"
_WINDOW_BITS: Final = re.compile(r"[89]|1[0-5]")
_WINDOW_BITS_MIN: Final = 9
"""zlib makes no smaller window, though a peer may ask for 8."""

_SWITCH: Final = ((b"upgrade", b"websocket"), (b"connection", b"Upgrade"))
# A quote that is never closed separates, as a comma does. Every quote behind it has a backslash before it, so none of
# them is closed either, and no search for an end needs to begin at them.
_QUOTED: Final = r'"(?:[^"\\]++|\\.)*+"'
_CLOSED: Final = re.compile(rf'(?:[^"]++|{_QUOTED})*+')
_ELEMENT: Final = re.compile(rf'(?:[^,"]++|{_QUOTED})++')
_UNQUOTED: Final = re.compile(r'[^,"]++')


class UpgradeRefused(RemoteProtocolError):
    """A request to upgrade is refused. `headers` are those of the response: they name what would be accepted."""

    def __init__(self, message: str, *, http_status: int, clause: str = "", headers: Headers = ()) -> None:
        super().__init__(message, http_status=http_status, clause=clause)
        self.headers = headers


class SocketError(RemoteProtocolError):
    """The peer broke a rule of WebSocket. The connection is to be closed with `code`."""

    def __init__(self, message: str, *, code: int = PROTOCOL_ERROR, clause: str = "") -> None:
        super().__init__(message, clause=clause)
        self.code = code


class Deflate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agreed parameters of `permessage-deflate`. This side never refers to an earlier message when it compresses.

    Attributes:
        window_bits: the largest window this side may compress with, as zlib counts it.
        peer_keeps_window: the peer's compressed messages may refer to its earlier ones.
    """

    window_bits: int = 15
    peer_keeps_window: bool = False


class Upgrade(msgspec.Struct, frozen=True):
    """A granted upgrade: the headers of the 101 response, and the agreed compression, if any."""

    headers: Headers
    deflate: Deflate | None


# --- The server's side of the handshake ------------------------------------------------------------------------------


def accept_upgrade(headers: Headers) -> Upgrade:
    """Grants the upgrade that a GET with these `headers` asks for.

    Raises:
        UpgradeRefused: 426 if the request asks for no upgrade, or for another version; 400 if it is malformed, or if
            every subprotocol that the client offers is unknown.
    """
    if not _switches(headers):
        message = "got no Connection: Upgrade with Upgrade: websocket, expected both: this is a WebSocket's address"
        raise UpgradeRefused(message, http_status=426, clause="RFC 6455, 4.2.1", headers=_SWITCH)
    version = _single(headers, b"sec-websocket-version")
    if version != VERSION:
        seen = "no Sec-WebSocket-Version" if version is None else f"Sec-WebSocket-Version {version[:32]!r}"
        known = (b"sec-websocket-version", VERSION.encode())
        raise UpgradeRefused(
            f"got {seen}, expected {VERSION}", http_status=426, clause="RFC 6455, 4.4", headers=(*_SWITCH, known)
        )
    key = _single(headers, b"sec-websocket-key")
    if key is None or not _is_key(key):
        seen = "no Sec-WebSocket-Key" if key is None else f"Sec-WebSocket-Key {key[:64]!r}"
        message = f"got {seen}, expected {_KEY_BYTES} bytes in base64"
        raise UpgradeRefused(message, http_status=400, clause="RFC 6455, 4.2.1")
    answer = [*_SWITCH, (b"sec-websocket-accept", accept_token(key.encode()))]
    offered = _tokens(headers, b"sec-websocket-protocol")
    if SUBPROTOCOL in offered:
        answer.append((b"sec-websocket-protocol", SUBPROTOCOL.encode()))
    elif offered:
        seen = ", ".join(offered)[:200]
        message = f"got Sec-WebSocket-Protocol {seen!r}, expected {SUBPROTOCOL} among them, or no such header"
        raise UpgradeRefused(message, http_status=400, clause="RFC 6455, 4.2.2")
    deflate = None
    for name, parameters in _extensions(headers):
        if name == _DEFLATE and (deflate := _accept_deflate(parameters)) is not None:
            text = f"{_DEFLATE}; server_no_context_takeover; client_no_context_takeover"
            if "server_max_window_bits" in parameters:
                text += f"; server_max_window_bits={deflate.window_bits}"
            answer.append((b"sec-websocket-extensions", text.encode()))
            break
    return Upgrade(tuple(answer), deflate)


def accept_token(key: bytes) -> bytes:
    """Returns the `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID, usedforsecurity=False).digest())


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _accept_deflate(parameters: dict[str, str | None]) -> Deflate | None:
    """Accepts an offer of compression, without context takeover on either side. Returns None if it is not acceptable.

    A window kept between messages takes 300 KB for each connection. The server "MAY" demand that there is none whatever
    the client offered (RFC 7692, 7.1.1).
    """
    bits = 15
    for name, value in parameters.items():
        if name in ("server_no_context_takeover", "client_no_context_takeover"):
            if value is not None:
                return None
        elif name in ("server_max_window_bits", "client_max_window_bits"):
            if value is None and name == "client_max_window_bits":
                continue
            if value is None or _WINDOW_BITS.fullmatch(value) is None:
                return None
            if name == "server_max_window_bits":
                bits = int(value)
        else:
            return None
    return Deflate(bits) if bits >= _WINDOW_BITS_MIN else None


# --- The client's side of the handshake -------------------------------------------------------------------------------


def request_headers(nonce: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a request to upgrade, except `Host`.

    Args:
        nonce: 16 random bytes.
    """
    assert len(nonce) == _KEY_BYTES
    return [
        *_SWITCH,
        (b"sec-websocket-key", base64.b64encode(nonce)),
        (b"sec-websocket-version", VERSION.encode()),
        (b"sec-websocket-protocol", SUBPROTOCOL.encode()),
        (b"sec-websocket-extensions", f"{_DEFLATE}; server_no_context_takeover; client_no_context_takeover".encode()),
    ]


def check_accepted(headers: Headers, nonce: bytes) -> Deflate | None:
    """Checks the `headers` of a 101 response to a request with this `nonce`. Returns the agreed compression, if any.

    Raises:
        RemoteProtocolError: the response does not match the request.
    """
    if not _switches(headers):
        raise RemoteProtocolError("got HTTP status 101 that switches to something else, expected a WebSocket")
    token = _single(headers, b"sec-websocket-accept")
    if token is None or token.encode("latin-1") != accept_token(base64.b64encode(nonce)):
        raise RemoteProtocolError(
            "got a Sec-WebSocket-Accept that does not fit the request, expected the one that does"
        )
    protocols = _tokens(headers, b"sec-websocket-protocol")
    if protocols not in ([], [SUBPROTOCOL]):
        seen = ", ".join(protocols)[:200]
        raise RemoteProtocolError(f"got Sec-WebSocket-Protocol {seen!r}, expected {SUBPROTOCOL} or none")
    extensions = _extensions(headers)
    if not extensions:
        return None
    name, parameters = extensions[0]
    flags = ("server_no_context_takeover", "client_no_context_takeover")
    is_right = name == _DEFLATE and len(extensions) == 1
    for parameter, value in parameters.items():
        is_bits = parameter == "server_max_window_bits" and value is not None and _WINDOW_BITS.fullmatch(value)
        is_right = is_right and bool(is_bits or (parameter in flags and value is None))
    if not is_right:
        raise RemoteProtocolError("got Sec-WebSocket-Extensions that were not offered, expected those that were")
    return Deflate(peer_keeps_window="server_no_context_takeover" not in parameters)


# --- Closing ----------------------------------------------------------------------------------------------------------


def parse_close(payload: bytes) -> tuple[int | None, str]:
    """Returns code and reason from the payload of a Close frame; the code is None if the payload is empty.

    Raises:
        SocketError: the payload is malformed, or has a code that may not be sent (RFC 6455, 7.4).
    """
    if not payload:
        return None, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not may_close_with(code):
        seen = "of one byte" if len(payload) == 1 else f"with code {code}"
        raise SocketError(f"got a Close frame {seen}, expected one without a code, or with one that may be sent")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        raise SocketError("got a close reason that is not UTF-8, expected UTF-8", code=INVALID_DATA)


def may_close_with(code: int) -> bool:
    """True if a Close frame may carry `code`. 1004, 1005, 1006 and 1015 are never sent."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def truncate_reason(reason: str) -> str:
    """Shortens a close reason to what a Close frame can carry, cut between characters."""
    return reason.encode()[:REASON_MAX_BYTES].decode(errors="ignore")


def describe_close(code: int | None, reason: str) -> str:
    """Describes a received Close frame for people: `closed with 1008: policy`."""
    if code is None:
        return "closed without a code"
    shown = "".join(char if char.isprintable() else "?" for char in reason)
    return f"closed with {code}: {shown}" if shown else f"closed with {code}"


def end_of_part(message: bytes, start: int, size_max_bytes: int) -> int:
    """Returns the end of the part of a UTF-8 text that begins at `start`: at most `size_max_bytes` later, between two
    characters. `size_max_bytes` is at least 4, the longest character."""
    assert size_max_bytes >= 4
    end = start + size_max_bytes
    if end >= len(message):
        return len(message)
    while message[end] & 0xC0 == 0x80:
        end -= 1
    return end


# --- Headers ----------------------------------------------------------------------------------------------------------


def _switches(headers: Headers) -> bool:
    connection = (token.lower() for token in _tokens(headers, b"connection"))
    upgrade = (token.lower() for token in _tokens(headers, b"upgrade"))
    return "upgrade" in connection and "websocket" in upgrade


def _lines(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for each, value in headers if each == name]


def _single(headers: Headers, name: bytes) -> str | None:
    """Returns a header that may occur once. Two of it are joined by a comma, which no valid value has."""
    lines = _lines(headers, name)
    return ", ".join(line.strip() for line in lines) if lines else None


def _tokens(headers: Headers, name: bytes) -> list[str]:
    parts = ",".join(_lines(headers, name)).split(",")
    return [token for part in parts if (token := part.strip())]


def _extensions(headers: Headers) -> list[tuple[str, dict[str, str | None]]]:
    """Returns the names and parameters of the extensions, in order. An extension that names a parameter twice gets an
    empty name, so that it is treated as unknown."""
    found = []
    for element in _elements(",".join(_lines(headers, b"sec-websocket-extensions"))):
        name, *parts = (part.strip() for part in element.split(";"))
        parameters = dict(_parameters(parts))
        if name:
            found.append((name if len(parameters) == len(parts) else "", parameters))
    return found


def _elements(text: str) -> list[str]:
    closed = _CLOSED.match(text)
    assert closed is not None, "it matches the empty text"
    return [*_ELEMENT.findall(text, 0, closed.end()), *_UNQUOTED.findall(text, closed.end())]


def _parameters(parts: Iterable[str]) -> Iterable[tuple[str, str | None]]:
    for part in parts:
        name, equals, value = part.partition("=")
        yield name.strip(), value.strip().strip('"') if equals else None
