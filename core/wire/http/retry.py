"""What may be sent a second time, when its connection was found closed by the server, or could not be made.

Servers close connections that were idle, and sometimes just as a request is on its way. Then nobody knows whether it
was looked at. What is proved not to have arrived whole may be sent again, once, and so may what means no more when it
arrives twice.
"""

from __future__ import annotations

from typing import Final

from ...base.effects import Cause, End
from ...base.errors import RemoteProtocolError
from ...base.methods import SAFE_TO_REPEAT
from ...jsonrpc import envelope

SAFE_NOTICES: Final = frozenset(
    {"notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"}
)
"""Notifications that mean no more when they are said twice. Progress must increase, and is not among them."""


def may_send_again(cause: Cause, message: bytes, *, has_session: bool = True) -> bool:
    """Whether one JSON-RPC message may be sent once more on another connection, its own having ended with `cause`.

    Args:
        has_session: it was sent in a session with the server. Without, `initialize` begins one; a second one then means
            nothing to whoever has the first.
    """
    is_unsent = cause.unsent or cause.end is End.UNREACHABLE
    if not cause.stale and not is_unsent:
        return False
    if cause.stale and cause.unsent:
        return True
    try:
        frame = envelope.decode(message)
    except RemoteProtocolError:  # not ours to judge
        return False
    if frame.method is None:
        return True  # an answer: of two the first counts, and nobody would miss it and ask again
    if not cause.stale:
        return False  # whoever asked is told, or it is tried in its own time
    if not frame.is_request:
        return frame.method in SAFE_NOTICES
    return frame.method in SAFE_TO_REPEAT or (frame.method == "initialize" and not has_session)
