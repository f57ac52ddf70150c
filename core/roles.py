"""What downstream channels are for."""

from __future__ import annotations

from .desk import Role
from .effects import EventPipeOpening, MessageOpening, PipeOpening, PostOpening
from .ids import ChannelId
from .session import Session
from .stream import Stream


class PostRole(Role):
    """A POST.

    Attributes:
        session: the one it opened, if it did.
        stream: its reply, once it is known to belong to a session.
    """

    __slots__ = ("has_body", "opening", "session", "stream")

    def __init__(self, opening: PostOpening) -> None:
        self.opening = opening
        self.has_body = False
        self.session: Session | None = None
        self.stream: Stream | None = None


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
    """

    __slots__ = ("last_ordinal", "opening", "session", "token")

    def __init__(self, opening: PipeOpening | EventPipeOpening, token: str | None = None) -> None:
        self.opening = opening
        self.session: Session | None = None
        self.last_ordinal = 0
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
