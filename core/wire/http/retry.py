"""The rule for sending a message again after its connection could not be made or was closed by the server.

Servers close idle connections, sometimes just as a request is sent. The client then cannot know whether the server read
the request. A message that provably did not arrive whole may be sent again, once. So may a message that has the same
effect if it arrives twice.
"""

from __future__ import annotations

from typing import Final

from ...base.errors import RemoteProtocolError
from ...base.events import Cause, End
from ...base.methods import SAFE_TO_REPEAT
from ...jsonrpc import envelope

SAFE_NOTIFICATIONS: Final = frozenset(
    {"notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"}
)
"""Notifications that have the same effect if they arrive twice. Progress is not among them, as it must increase."""


def may_send_again(cause: Cause, message: bytes, *, has_session: bool = True) -> bool:
    """True if one JSON-RPC message may be sent once more on another connection, after its own ended with `cause`.

    Args:
        has_session: the message was sent in a session with the server. Outside of one, `initialize` may be repeated: it
            begins a session of its own, which does not affect another.
    """
    is_unsent = cause.unsent or cause.end is End.UNREACHABLE
    if not cause.stale and not is_unsent:
        return False
    if cause.stale and cause.unsent:
        return True
    try:
        frame = envelope.decode(message)
    except RemoteProtocolError:  # malformed: the server was to judge it
        return False
    if frame.method is None:
        return True  # a response: a second one is ignored, and the server would not ask again for a lost one
    if not cause.stale:
        return False  # never sent: the client gets an error, or the caller retries later
    if not frame.is_request:
        return frame.method in SAFE_NOTIFICATIONS
    return frame.method in SAFE_TO_REPEAT or (frame.method == "initialize" and not has_session)
