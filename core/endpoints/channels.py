"""What downstream channels are for."""

from __future__ import annotations

from ..base.effects import EventPipeOpening, MessageOpening, PipeOpening, PostOpening
from ..base.ids import ChannelId
from ..state.context import Role
from ..state.exchange import Exchange, Reply
from ..state.session import Session
from ..state.stream import Stream
from .pipe_requests import Legs


class PostRole(Role):
    """A POST.

    Attributes:
        session: the one it opened, if it did.
        stream: its reply, once it is known to belong to a session.
        leg: the call it is a request of, with its reply, where the client has no session.
    """

    has_body = False
    session: Session | None = None
    stream: Stream | None = None
    leg: tuple[Session, Exchange, Reply] | None = None

    def __init__(self, opening: PostOpening) -> None:
        self.opening = opening


class StreamRole(Role):
    """A GET of a stream: the session's own, or the rest of another."""

    __slots__ = ("session", "stream")

    def __init__(self, session: Session, stream: Stream) -> None:
        self.session = session
        self.stream = stream


class PipeRole(Role):
    """A two-way stream.

    Attributes:
        token: what POSTs of its other half name it by, if it is an event pipe.
        legs: its open requests that belong to no session.
    """

    __slots__ = ("last_ordinal", "legs", "opening", "session", "token")

    def __init__(self, opening: PipeOpening | EventPipeOpening, token: str | None = None) -> None:
        self.opening = opening
        self.session: Session | None = None
        self.last_ordinal = 0
        self.legs = Legs()
        self.token = token


class MessageRole(Role):
    """A POST of the other half of an event pipe."""

    __slots__ = ("opening", "pipe")

    def __init__(self, opening: MessageOpening, pipe: ChannelId) -> None:
        self.opening = opening
        self.pipe = pipe


class RefusedRole(Role):
    """A channel that was answered at once."""

    __slots__ = ()
