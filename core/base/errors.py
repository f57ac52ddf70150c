"""Whose fault it was: ours, our caller's or the peer's; and what the peer is told.

`AssertionError` means this package is wrong, `LocalProtocolError` that its caller is, and `RemoteProtocolError` that
the peer on the wire is. The numbers are those of JSON-RPC 2.0, of the MCP specification, and our own from -31001 down
(outside the range JSON-RPC reserves, as the 2026-07-28 specification asks of applications).
"""

from __future__ import annotations

from typing import Final, Literal

Shape = Literal["call", "reply", ""]
"""A request or notification; a response; or neither can be told."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002  # 2024-11-05 … 2025-11-25, server/resources, "Error Handling"

URL_REQUIRED: Final = -32042  # 2025-11-25 client/elicitation, "URL Elicitation Required Error"; never since

HEADER_MISMATCH: Final = -32020  # 2026-07-28 basic/transports/streamable-http: headers and body disagree
MISSING_CAPABILITY: Final = -32021  # 2026-07-28 basic, "Error Codes": the request's client cannot do what it takes
UNSUPPORTED_VERSION: Final = -32022  # 2026-07-28 basic/versioning: `data.supported` says what would be

CANCELLED: Final = -32800  # what SDKs answer a cancelled request with

OUTCOME_UNKNOWN: Final = -31001  # the upstream was lost after the request was written: it may have run
UPSTREAM_UNAVAILABLE: Final = -31004  # the upstream could not be reached, or refused; the request did not run
INPUT_REFUSED: Final = -31005  # whoever was asked in the course of the request declined; it did not go on
TOO_MANY_ROUNDS: Final = -31006  # the server asked more often than our limit allows; the request did not go on
OVERLOADED: Final = -31007  # one of our own limits was reached; the request did not run
TIMED_OUT: Final = -31008  # no answer within the time limit; the request may have run


class LocalProtocolError(Exception):
    """Our caller broke a rule. Raised at the call; the object is as it was before."""


class RemoteProtocolError(Exception):
    """The peer broke a rule.

    Args:
        message: what was seen and what would have been right.
        rpc_code: the JSON-RPC error code that says so.
        http_status: the status an HTTP transport answers with.
        clause: the part of the specification it rests on.
        id_raw: the JSON of the offending message's id, if it could be read, so that its sender can be answered.
        data: what the error's `data` says.
        shape: what the message was, as far as that could be told. A reply is not answered, and a call, whatever its id,
            settles no request.
    """

    def __init__(
        self,
        message: str,
        *,
        rpc_code: int = INVALID_REQUEST,
        http_status: int = 400,
        clause: str = "",
        id_raw: bytes | None = None,
        shape: Shape = "",
        data: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rpc_code = rpc_code
        self.http_status = http_status
        self.clause = clause
        self.id_raw = id_raw
        self.shape: Shape = shape
        self.data = data
