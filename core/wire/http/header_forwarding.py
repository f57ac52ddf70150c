"""Forwards headers of a client's request to the server, and checks for those that the request must have.

No header is forwarded unless the configuration names it, and the name it gets upstream. Credentials that a client sends
to this proxy therefore stop here unless the configuration forwards them.

Every function raises `RemoteProtocolError` for a mistake of the client; no message repeats a header's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...base import events
from ...base.errors import LocalProtocolError, RemoteProtocolError
from ..headers import Headers
from .request import FRAMING_HEADERS, MIRRORING, PROTOCOL_HEADERS, encode_header

ForwardedNames = tuple[tuple[str, str], ...]
"""Pairs of the name of a header in the client's request, in any case, and the name it gets upstream."""

AUTHORIZATION: Final = "authorization"

_HOP_BY_HOP: Final = frozenset(
    {b"http2-settings", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"trailer"}
)
_REPRESENTATION: Final = frozenset({b"content-encoding", b"content-range", b"content-digest", b"content-md5", b"range"})
_TRACING: Final = frozenset({b"traceparent", b"tracestate", b"baggage"})
_HANDSHAKE: Final = b"sec-websocket-"


def may_pass(name: str) -> bool:
    """True if a header of that name can be forwarded. Excluded are hop-by-hop headers (RFC 9110, 7.6.1), headers that
    describe the bytes of one body, and those of the protocol, which each side sets for itself."""
    encoded = name.lower().encode(errors="replace")
    own = PROTOCOL_HEADERS | FRAMING_HEADERS | _HOP_BY_HOP | _REPRESENTATION
    return encoded not in own and not encoded.startswith((_HANDSHAKE, *MIRRORING))


def passed_headers(headers: Headers, passes: ForwardedNames) -> events.Headers:
    """Returns the headers to forward. Several lines of one name are joined (RFC 9110, 5.3; RFC 6265, 5.4). An empty
    header counts as missing.

    Raises:
        RemoteProtocolError: a value that cannot be forwarded, or two `Authorization` headers.
    """
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


def trace_context_of(headers: Headers) -> events.Headers:
    """Returns the lines that describe the trace of a request (W3C Trace Context, Baggage). Others judge what they
    say."""
    return tuple((name.decode(), value.decode("latin-1")) for name, value in headers if name in _TRACING)


def check_required(headers: Headers, required: Sequence[str]) -> None:
    """Refuses a request that lacks one of the `required` headers. An empty header counts as missing."""
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
