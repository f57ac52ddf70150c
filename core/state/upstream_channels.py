"""The roles of channels to a server."""

from __future__ import annotations

from ..base.effects import Delete
from ..base.ids import ChannelId
from .context import ChannelRole
from .link import Link, QueuedNotification
from .session import Session


class DuplexRole(ChannelRole):
    """A two-way stream to a server: a process of ours, or a connection.

    Attributes:
        is_repeated: it was dialled again, after an attempt on a connection that was found closed.
        was_spare: the process was started before the link needed one.
    """

    __slots__ = ("is_process", "is_repeated", "link", "was_spare")

    def __init__(self, link: Link, *, is_process: bool, is_repeated: bool = False, was_spare: bool = False) -> None:
        self.link = link
        self.is_process = is_process
        self.is_repeated = is_repeated
        self.was_spare = was_spare

    def receive_message(self) -> None:
        """Handles a message: nothing is recorded of it."""

    @property
    def feeds_many(self) -> bool:
        """True if several sessions share the stream."""
        return self.link.is_shared


class PartialAnswer:
    """A response that is being passed on from a server to a client in parts.

    Attributes:
        sink: the client's channel.
        left_bytes: bytes that are still to come.
        heard_at: time of the latest part.
    """

    __slots__ = ("heard_at", "left_bytes", "session", "sink")

    def __init__(self, sink: ChannelId, session: Session, left_bytes: int, *, heard_at: float) -> None:
        self.sink = sink
        self.session = session
        self.left_bytes = left_bytes
        self.heard_at = heard_at

    def receive_part(self, size_bytes: int, now: float) -> None:
        """Handles a part of that size."""
        self.heard_at = now
        self.left_bytes -= size_bytes
        assert self.left_bytes >= 0


class UpstreamPostRole(ChannelRole):
    """One POST to an upstream, and the stream of its response; or the GET that resumes that stream.

    Attributes:
        number: the id of the request it carries; None for a notification or a response.
        incarnation: the upstream session it belongs to.
        problem: the error of a message on it that could not be read.
        names_session: it was sent in an upstream session, which may since have been lost.
        is_confirmation: it carries `notifications/initialized`.
        is_resumed: it resumes the stream of a reply that was cut off.
        has_begun: the HTTP response had a success status.
        last_event_id: the id to resume from, if it is cut off.
        retry_ms: milliseconds to wait before that, if the server named any.
        failures: connections in a row that failed to resume it.
        idle: connections in a row that resumed it and brought no message.
        dialled_at: time at which this connection was begun, if it resumes one.
        has_spoken: a message came.
        notification: the notification or response that it carries, with its headers; None for requests, which are kept
            in `Link.pending`.
        is_repeated: the message was sent before.
        era: the era in which it was written.
        partial_answer: its response, while that is being passed on.
    """

    problem = ""
    has_begun = False
    has_spoken = False
    dialled_at = float("-inf")
    idle = 0
    last_event_id: str | None = None
    retry_ms: int | None = None
    failures = 0
    partial_answer: PartialAnswer | None = None

    def __init__(
        self,
        link: Link,
        number: int | None,
        *,
        notification: QueuedNotification | None = None,
        is_confirmation: bool = False,
        is_repeated: bool = False,
        is_resumed: bool = False,
    ) -> None:
        upstream = link.upstream
        self.link = link
        self.number = number
        self.incarnation = upstream.incarnation
        self.notification = notification
        self.is_confirmation = is_confirmation
        self.is_repeated = is_repeated
        self.is_resumed = is_resumed
        self.names_session = upstream.session is not None
        self.era = link.era

    @classmethod
    def resuming(cls, cut: UpstreamPostRole, now: float) -> UpstreamPostRole:
        """Returns the role of the GET that resumes a reply."""
        role = cls(cut.link, cut.number, is_resumed=True)
        role.last_event_id, role.retry_ms = cut.last_event_id, cut.retry_ms
        role.failures, role.idle, role.dialled_at = cut.failures, cut.idle, now
        return role

    def receive_success(self) -> None:
        """Handles the head of a response with a success status."""
        self.has_begun = True

    def receive_message(self) -> None:
        """Records that a message came."""
        self.has_spoken = True

    def receive_problem(self, problem: str) -> None:
        """Records the error of a message that could not be read."""
        self.problem = problem

    def receive_event_id(self, last_event_id: str | None) -> None:
        """Handles the end of a connection that named an event id, or none."""
        if last_event_id is not None:
            self.last_event_id = last_event_id

    def receive_cut(self, retry_ms: int | None) -> None:
        """Handles the end of a connection before the response: counts failures, and connections that brought
        nothing."""
        self.failures = 0 if self.has_begun else self.failures + 1
        self.idle = self.idle + 1 if self.is_resumed and not self.has_spoken else 0
        if retry_ms is not None:
            self.retry_ms = retry_ms

    def begin_answer(self, answer: PartialAnswer) -> None:
        """Begins to pass a response on in parts."""
        self.partial_answer = answer

    def end_answer(self) -> None:
        """Ends that."""
        self.partial_answer = None


class UpstreamStreamRole(ChannelRole):
    """A GET stream from an upstream.

    Attributes:
        dialled_at: time at which it was dialled.
        has_spoken: a message came.
        is_open: the server has granted it.
        is_repeated: it was dialled again, after an attempt on a connection that was found closed.
    """

    __slots__ = ("dialled_at", "has_spoken", "incarnation", "is_open", "is_repeated", "link", "names_session")

    def __init__(self, link: Link, dialled_at: float, *, is_repeated: bool = False) -> None:
        self.link = link
        self.dialled_at = dialled_at
        self.has_spoken = False
        self.is_open = False
        self.is_repeated = is_repeated
        self.incarnation = link.upstream.incarnation
        self.names_session = link.upstream.session is not None

    def receive_granted(self) -> None:
        """Records that the server has granted the stream."""
        self.is_open = True

    def receive_message(self) -> None:
        """Records that a message came."""
        self.has_spoken = True


class DeleteRole(ChannelRole):
    """A DELETE, whose response is ignored. `is_repeated` if it was sent again, after an attempt on a connection that
    was found closed."""

    __slots__ = ("is_repeated", "target")

    def __init__(self, target: Delete, *, is_repeated: bool = False) -> None:
        self.target = target
        self.is_repeated = is_repeated
