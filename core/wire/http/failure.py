"""What the end of an upstream channel says: why, whether the session was forgotten, and an error in its body."""

from __future__ import annotations

import re
from typing import Final

from ...base.effects import Cause, End
from ...base.errors import RemoteProtocolError
from ...jsonrpc import envelope

NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405

SESSION_UNKNOWN: Final = re.compile(
    r"(bad request: )?(no valid session id provided|(invalid|unknown|missing) session( id)?|session (id )?not found"
    r"|(server|session) not initialized|mcp-session-id header is required)[.!]?",
    re.IGNORECASE,
)
"""Whole messages of servers that answer a session they do not know with 400: those made after the official TypeScript
examples say "Bad Request: No valid session ID provided", others "Bad Request: Server not initialized"."""

_REASONS: Final = {
    End.DONE: "its reply ended without an answer",
    End.GONE: "it hung up",
    End.UNREACHABLE: "it cannot be reached",
    End.BROKEN: "the connection broke",
    End.TIMED_OUT: "it took too long",
}


def describe(cause: Cause) -> str:
    """The end of a request, or of a server, in words."""
    if cause.detail:
        return cause.detail
    return f"it answered with HTTP status {cause.status}" if cause.end is End.REFUSED else _REASONS[cause.end]


def denies_session(cause: Cause, *, names_session: bool) -> bool:
    """Whether the refusal says that the upstream does not know our session, and so did not run the request. It should
    be 404 (2025-03-26 basic/transports, "Session Management"); where it is 400, the error must say exactly that.

    Args:
        cause: the end of a POST or of a stream.
        names_session: whether the request named a session.
    """
    if cause.end is not End.REFUSED or not names_session:
        return False
    return cause.status == NOT_FOUND or (cause.status == BAD_REQUEST and is_about_session(cause.body))


def is_about_session(body: bytes) -> bool:
    """Whether the body is an error about the session, not about a request: that would have the request's id."""
    try:
        frame = envelope.decode(body)
        message = envelope.text_of(envelope.member_of(frame.error, "message"))
    except RemoteProtocolError:
        return False
    is_of_request = frame.id_raw is not None and envelope.number_of(frame.id_raw) is not None
    return message is not None and not is_of_request and SESSION_UNKNOWN.fullmatch(message.strip()) is not None


def may_have_run(status: int) -> bool:
    """Whether a request refused with this HTTP status may have run all the same. 501 and 503 say that it did not."""
    return status >= 500 and status not in (501, 503, 505)


def error_in(cause: Cause) -> bytes | None:
    """The JSON-RPC error in a refusing response's body, if it holds one. Its id is not looked at: servers put null,
    "server-error" or the request's own there."""
    if cause.end is not End.REFUSED or not cause.body.lstrip().startswith(b"{"):
        return None
    try:
        error = envelope.member_of(cause.body.strip(), "error")
        return None if error is None or not error.startswith(b"{") else envelope.usable_error(error)
    except RemoteProtocolError:
        return None


def id_in(cause: Cause) -> bytes | None:
    """The JSON of the id in such a body."""
    try:
        return envelope.member_of(cause.body.strip(), "id")
    except RemoteProtocolError:
        return None
