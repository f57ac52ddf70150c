"""The errors of the engine: whose fault one was, and the JSON-RPC error codes that peers receive.

`AssertionError` means that this package is wrong, `LocalProtocolError` that its caller is, and `RemoteProtocolError`
that the peer on the wire is. The codes are those of JSON-RPC 2.0 and of the MCP specification, and our own from -31001
down (outside the range JSON-RPC reserves, as the 2026-07-28 specification asks of applications).
"""

from __future__ import annotations

from typing import Final, Literal, Self

Shape = Literal["call", "reply", ""]
"""The kind of an unreadable message: "call" is a request or notification, "reply" a response, "" unknown."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002  # 2024-11-05 … 2025-11-25, server/resources, "Error Handling"

URL_REQUIRED: Final = -32042  # 2025-11-25 client/elicitation, "URL Elicitation Required Error"; never since

HEADER_MISMATCH: Final = -32020  # 2026-07-28 basic/transports/streamable-http: headers and body disagree
MISSING_CAPABILITY: Final = -32021  # 2026-07-28 basic, "Error Codes": the client did not declare a capability it needs
UNSUPPORTED_VERSION: Final = -32022  # 2026-07-28 basic/versioning: `data.supported` lists the revisions served

CANCELLED: Final = -32800  # the code with which SDKs answer a cancelled request

OUTCOME_UNKNOWN: Final = -31001  # the upstream was lost after the request was written: it may have run
UPSTREAM_UNAVAILABLE: Final = -31004  # the upstream could not be reached, or refused; the request did not run
INPUT_REFUSED: Final = -31005  # a question asked in the course of the request was declined; it did not go on
TOO_MANY_ROUNDS: Final = -31006  # the server asked more often than our limit allows; the request did not go on
OVERLOADED: Final = -31007  # a limit of the proxy was reached; the request did not run
TIMED_OUT: Final = -31008  # no answer within the time limit; the request may have run
DENIED: Final = -31009  # the driver did not allow the request, which did not run (`ServerPlan.decides`)

OUT_OF_MEMORY: Final = (MemoryError, SystemError)
"""The exceptions of exhausted memory. CPython 3.11 raises `SystemError` where a deeper call finds no memory for its
frame."""


class LocalProtocolError(Exception):
    """The caller of this package broke a rule. Raised at the call; the object is as it was before."""


class RemoteProtocolError(Exception):
    """The peer broke a rule.

    Args:
        message: what was received and what was expected.
        rpc_code: the JSON-RPC error code for it.
        http_status: the status an HTTP transport answers with.
        clause: the part of the specification that the rule is in.
        id_raw: the JSON of the offending message's id, if it could be read, so that its sender can be answered.
        data: the `data` member of the error.
        shape: the kind of the message, as far as it is known. A reply is not answered, and a call, whatever its id,
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

    def recognize(self, id_raw: bytes | None, shape: Shape) -> None:
        """Adds what was found out about the offending message."""
        self.id_raw, self.shape = id_raw, shape

    def without_frames(self) -> Self:
        """Drops the frames that the error was raised in, and returns it. An error that is kept must not keep them: they
        hold the message, and where they hold the error too, both stay until the collector runs."""
        self.__context__ = None
        return self.with_traceback(None)

    def blame(self, rpc_code: int, clause: str = "") -> None:
        """Replaces the code, and the clause if one is given: only the caller knows what the text that was read is."""
        self.rpc_code = rpc_code
        self.clause = clause or self.clause
