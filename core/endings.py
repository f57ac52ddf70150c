"""What the end of an upstream channel says: why, whether the session was forgotten, and an error in its body."""

from __future__ import annotations

import re
from typing import Final

from . import jsonrpc
from .effects import Cause, End
from .errors import RemoteProtocolError

BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404

SESSION_UNKNOWN: Final = re.compile(rb"session|not initialized", re.IGNORECASE)
"""Found in the errors of servers that answer a session they do not know with 400: those made after the official
TypeScript examples say "No valid session ID provided", others "Server not initialized"."""

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


def is_forgotten(cause: Cause, *, names_session: bool) -> bool:
    """Whether the refusal says that the upstream does not know our session, and so did not run the request. It should
    be 404 (2025-03-26 basic/transports, "Session Management"); where it is 400, the error's words decide.

    Args:
        cause: the end of a POST or of a stream.
        names_session: whether the request named a session.
    """
    if cause.end is not End.REFUSED or not names_session:
        return False
    error = error_in(cause) if cause.status == BAD_REQUEST else None
    return cause.status == NOT_FOUND or (error is not None and SESSION_UNKNOWN.search(error) is not None)


def error_in(cause: Cause) -> bytes | None:
    """The JSON-RPC error in a refusing response's body, if it holds one. Its id is not looked at: servers put null,
    "server-error" or the request's own there."""
    if cause.end is not End.REFUSED or not cause.body.lstrip().startswith(b"{"):
        return None
    try:
        error = jsonrpc.member_of(cause.body.strip(), "error")
        return None if error is None or not error.startswith(b"{") else jsonrpc.usable_error(error)
    except RemoteProtocolError:
        return None
