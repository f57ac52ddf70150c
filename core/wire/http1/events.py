"""The events of an HTTP/1.1 codec: heads, pieces of bodies, and the signals between them.

`transports.http1.server` and `transports.http1.client` produce and consume them. The constructors check nothing: a
codec checks the bytes before it makes an event.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from ..headers import Headers


class RequestHead(msgspec.Struct, frozen=True):
    """A request line and its headers.

    Attributes:
        target: the request target as it was sent.
        body_size: the length of the body in bytes; None for a chunked body.
    """

    method: str
    target: str
    headers: Headers
    version: str = "1.1"
    body_size: int | None = 0


class ResponseHead(msgspec.Struct, frozen=True):
    """The status line and the headers of a final response."""

    status: int
    headers: Headers
    version: str = "1.1"


class InformationalHead(msgspec.Struct, frozen=True):
    """The head of a 1xx response. A final response follows, except after a 101."""

    status: int
    headers: Headers


class Data(msgspec.Struct, frozen=True, gc=False):
    """A piece of the body, never empty. The boundaries between pieces have no meaning."""

    data: bytes


class Signal(enum.Enum):
    END = "end"  # the message is complete
    NEED_DATA = "need data"  # no event until more bytes arrive
    PAUSED = "paused"  # the bytes left belong to the next message, or to another protocol
    CLOSED = "closed"  # the stream ended between two messages


END: Final = Signal.END
NEED_DATA: Final = Signal.NEED_DATA
PAUSED: Final = Signal.PAUSED
CLOSED: Final = Signal.CLOSED

ServerEvent = RequestHead | Data | Signal
ClientEvent = ResponseHead | InformationalHead | Data | Signal

BODILESS: Final = frozenset((204, 304))
"""Statuses whose responses have no body, whatever their headers say. Source: RFC 9112, 6.3."""

REASONS: Final = {
    100: b"Continue",
    101: b"Switching Protocols",
    102: b"Processing",
    103: b"Early Hints",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    203: b"Non-Authoritative Information",
    204: b"No Content",
    205: b"Reset Content",
    206: b"Partial Content",
    207: b"Multi-Status",
    208: b"Already Reported",
    226: b"IM Used",
    300: b"Multiple Choices",
    301: b"Moved Permanently",
    302: b"Found",
    303: b"See Other",
    304: b"Not Modified",
    305: b"Use Proxy",
    307: b"Temporary Redirect",
    308: b"Permanent Redirect",
    400: b"Bad Request",
    401: b"Unauthorized",
    402: b"Payment Required",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    407: b"Proxy Authentication Required",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    411: b"Length Required",
    412: b"Precondition Failed",
    413: b"Content Too Large",
    414: b"URI Too Long",
    415: b"Unsupported Media Type",
    416: b"Range Not Satisfiable",
    417: b"Expectation Failed",
    418: b"I'm a Teapot",
    421: b"Misdirected Request",
    422: b"Unprocessable Content",
    423: b"Locked",
    424: b"Failed Dependency",
    425: b"Too Early",
    426: b"Upgrade Required",
    428: b"Precondition Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    451: b"Unavailable For Legal Reasons",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
    506: b"Variant Also Negotiates",
    507: b"Insufficient Storage",
    508: b"Loop Detected",
    510: b"Not Extended",
    511: b"Network Authentication Required",
}
"""Reason phrases by status. A status that is missing is sent without a phrase. Source: RFC 9110, 15, and the IANA
registry of status codes."""
