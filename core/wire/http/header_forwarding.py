"""Which headers of a client's request go on to the server, and which the request must have.

Nothing goes on by itself: a header is handed on where the configuration names it, under the name it is to have there.
So credentials that a client sends to this proxy end here, unless somebody meant them for the server.

Every function raises `RemoteProtocolError` for what a client got wrong; no message repeats a header's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...base import effects
from ...base.errors import LocalProtocolError, RemoteProtocolError
from ..headers import Headers
from .request import FRAMING_HEADERS, MIRRORING, PROTOCOL_HEADERS, encode_header

Passes = tuple[tuple[str, str], ...]
"""The client's name of a header, in any case, and the name it gets upstream."""

AUTHORIZATION: Final = "authorization"

_HOP_BY_HOP: Final = frozenset(
    {b"http2-settings", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"trailer"}
)
_REPRESENTATION: Final = frozenset({b"content-encoding", b"content-range", b"content-digest", b"content-md5", b"range"})
_HANDSHAKE: Final = b"sec-websocket-"


def may_pass(name: str) -> bool:
    """Whether a header of that name can be handed on: not those of one connection (RFC 9110, 7.6.1), of one message's
    bytes, or of the protocol, which each side sets for itself."""
    encoded = name.lower().encode(errors="replace")
    own = PROTOCOL_HEADERS | FRAMING_HEADERS | _HOP_BY_HOP | _REPRESENTATION
    return encoded not in own and not encoded.startswith((_HANDSHAKE, *MIRRORING))


def passed_headers(headers: Headers, passes: Passes) -> effects.Headers:
    """What of a request's headers goes on. Lines of one name become one, as RFC 9110, 5.3 and RFC 6265, 5.4 join them;
    an empty one is as good as none."""
    passed = []
    for name, sent in passes:
        value = _joined(headers, name)
        if value:
            try:
                encode_header(sent, value)
            except LocalProtocolError as error:
                raise RemoteProtocolError(str(error)) from None
            passed.append((sent, value))
    return tuple(passed)


def check_required(headers: Headers, required: Sequence[str]) -> None:
    """Refuse a request that lacks one of the headers it must have."""
    for name in required:
        if not any(value for _, value in _lines(headers, name)):
            raise RemoteProtocolError(f"got no {name} header, expected one: this server's requests must have it")


def _lines(headers: Headers, name: str) -> Headers:
    wanted = name.lower().encode("latin-1")
    return tuple(line for line in headers if line[0] == wanted)


def _joined(headers: Headers, name: str) -> str:
    values = [value.decode("latin-1") for _, value in _lines(headers, name) if value]
    if len(values) > 1 and name.lower() == AUTHORIZATION:
        raise RemoteProtocolError("got two Authorization headers, expected one")
    return ("; " if name.lower() == "cookie" else ", ").join(values)
