"""The roles of channels to clients."""

from __future__ import annotations

import msgspec

from ..base.errors import LocalProtocolError
from ..base.events import EventPipeOpening, Headers, MessageOpening, PipeOpening, PostOpening
from ..base.grants import Grants
from ..base.ids import ChannelId
from ..state.context import ChannelRole
from ..state.exchange import Exchange, Reply
from ..state.session import Session
from ..state.stream import Stream
from .pipe_requests import PipeRequests


class PostRole(ChannelRole):
    """A POST. Its body is still to come until it has a session, a stream or a request.

    Attributes:
        opening: the event that opened it.
        session: the session that it opened, if it did.
        stream: its reply, once that belongs to a session.
        request: the session, the call and the reply of its request, for a client without a session.
    """

    may_be_cut = True
    session: Session | None = None
    stream: Stream | None = None
    request: tuple[Session, Exchange, Reply] | None = None

    def __init__(self, opening: PostOpening) -> None:
        self.opening = opening
        if opening.trace_context:
            self.trace_context = opening.trace_context

    def answer_on(self, stream: Stream) -> None:
        """Takes the stream of the reply."""
        self.stream = stream

    def open_session(self, session: Session) -> None:
        """Takes the session that it has opened."""
        self.session = session

    def receive_request(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """Takes the call of a client without a session."""
        self.request = session, exchange, reply


class StreamRole(ChannelRole):
    """A GET of an event stream: the session's own, or a resumed one."""

    may_be_cut = True
    __slots__ = ("session", "stream")

    def __init__(self, session: Session, stream: Stream) -> None:
        self.session = session
        self.stream = stream


class PipeRole(ChannelRole):
    """A two-way stream.

    Attributes:
        session: the session of its client, once that sent `initialize`.
        last_ordinal: number of requests and notifications so far.
        pipe_requests: its open requests that belong to no session.
        token: the name of an event pipe in the address of its POSTs; None for other pipes.
    """

    may_be_cut = True
    __slots__ = ("last_ordinal", "opening", "pipe_requests", "session", "token")

    def __init__(self, opening: PipeOpening | EventPipeOpening, token: str | None = None) -> None:
        self.opening = opening
        self.session: Session | None = None
        self.last_ordinal = 0
        self.pipe_requests = PipeRequests()
        self.token = token

    def count(self, messages: int = 1) -> int:
        """Counts requests and notifications. Returns the number of the first of them."""
        self.last_ordinal += messages
        return self.last_ordinal - messages + 1

    def receive_grants(self, grants: Grants) -> None:
        """Takes the grants of a POST of its session: the client may have another token now."""
        if grants != self.opening.grants:
            self.opening = msgspec.structs.replace(self.opening, grants=grants)

    def receive_trace_context(self, headers: Headers) -> None:
        """Takes the trace context of a POST of its session."""
        self.trace_context = headers

    def open_session(self, session: Session) -> None:
        """Takes the session that its client has opened."""
        self.session = session


class MessageRole(ChannelRole):
    """A POST to the message endpoint of an event pipe. `pipe` is the channel of that."""

    __slots__ = ("opening", "pipe")

    def __init__(self, opening: MessageOpening, pipe: ChannelId) -> None:
        self.opening = opening
        self.pipe = pipe


class RefusedRole(ChannelRole):
    """A channel that was answered at once, and handles nothing more."""

    __slots__ = ()


def unknown_server(server: str) -> LocalProtocolError:
    """Returns the error of an opening that names no server of the plan."""
    return LocalProtocolError(f"there is no server {server!r} in the plan")
