"""The end of a channel on which a message came for which there was no memory.

What the message had begun ends with its channel. Nobody else is disturbed.
"""

from __future__ import annotations

from ..base.errors import OVERLOADED
from ..base.events import Cause, End
from ..base.ids import ChannelId
from ..jsonrpc import envelope
from ..state.context import ChannelRole, Context
from ..wire.websocket import TRY_AGAIN_LATER
from .channels import MessageRole, PostRole

_TEXT = "there is no memory for the message: try again later"


def end_exhausted(context: Context, channel: ChannelId, role: ChannelRole | None) -> Cause:
    """Orders the end of the channel. A client is told to try again. Returns the cause, as if the channel had ended by
    itself: a server that is lost so is used again when it is needed."""
    context.note("error", f"a message was dropped, and its channel closed: {_TEXT}")
    if isinstance(role, PostRole | MessageRole) and not role.is_ending:
        context.send(channel, envelope.encode_error(None, OVERLOADED, _TEXT), is_last=True, status=503)
    else:
        context.close(channel, reason=_TEXT, code=TRY_AGAIN_LATER)
    return Cause(End.BROKEN, _TEXT, is_ours=True)
