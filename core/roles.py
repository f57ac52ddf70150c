"""What downstream channels are for."""

from __future__ import annotations

from .desk import Role
from .effects import PipeOpening, PostOpening
from .session import Session


class PostRole(Role):
    """A POST.

    Attributes:
        session: the one it opened, if it did.
    """

    __slots__ = ("has_body", "opening", "session")

    def __init__(self, opening: PostOpening) -> None:
        self.opening = opening
        self.has_body = False
        self.session: Session | None = None


class StreamRole(Role):
    """A session's GET stream."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session


class PipeRole(Role):
    __slots__ = ("last_ordinal", "opening", "session")

    def __init__(self, opening: PipeOpening) -> None:
        self.opening = opening
        self.session: Session | None = None
        self.last_ordinal = 0


class RefusedRole(Role):
    """A channel that was answered at once."""

    __slots__ = ()
