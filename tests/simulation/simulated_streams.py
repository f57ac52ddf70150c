"""The event streams of a server with sessions over HTTP: replies, and the stream that a GET opens for all other
messages.

If events have ids, the messages of a stream are stored. A client that names the last event that arrived gets the rest
on another connection, and the server itself may end a connection early, so that the client reconnects.

Source: 2025-11-25 basic/transports, "Resumability and Redelivery".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from isthmus.core.base.effects import Listen
from isthmus.core.base.events import Cause, Connected, End
from manners import NEVER
from simulated_network import Channel

if TYPE_CHECKING:
    from simulated_servers import Server, Session

PRIMING: Final = "2025-11-25"
OWN: Final = "own"
KEPT_MAX: Final = 2000
"""The bound on stored messages of one stream, far more than any has."""


class EventStream:
    """One stream, over as many connections as it takes.

    Attributes:
        channel: its present connection, if any.
        log: all its messages.
        sent_count: the number of messages that were put on a connection.
        is_done: True if the last message is the answer.
    """

    def __init__(self, name: str, *, has_ids: bool) -> None:
        self.name, self.has_ids = name, has_ids
        self.channel: Channel | None = None
        self.log: list[bytes] = []
        self.sent_count = 0
        self.is_done = False

    @property
    def is_read(self) -> bool:
        """True as far as the server can tell that what it sends now arrives."""
        return self.channel is not None and self.channel.is_open

    def id_at(self, count: int) -> str | None:
        """Returns the id of the event after which `count` messages have been sent."""
        return f"{self.name}-{count}" if self.has_ids else None


class Streams:
    """The streams of one server. A message for a channel goes to the stream that began there."""

    def __init__(self, server: Server) -> None:
        self._server, self._network = server, server.network
        self._rng = server.network.rng_of(f"{server.name} streams")
        self.has_ids, self.has_own = self._rng.random() < 0.5, self._rng.random() < 0.7
        self._by_channel: dict[Channel, EventStream] = {}
        self._never = self._rng.choice(NEVER if "shy" in server.network.manners_of(server.name) else NEVER[1:])
        self._last = 0

    def of(self, channel: Channel) -> EventStream | None:
        """Returns the stream of a channel, or None if it has none."""
        return self._by_channel.get(channel)

    def begin(self, channel: Channel, session: Session) -> None:
        """Begins a reply. Without event ids it has no stream."""
        if not self.has_ids:
            return
        self._last += 1
        stream = EventStream(f"r{self._last}", has_ids=True)
        session.streams[stream.name] = self._by_channel[channel] = stream
        stream.channel = channel
        if session.revision >= PRIMING:
            self._network.prime(channel, f"{stream.name}-0")

    def listen(self, channel: Channel, session: Session, listen: Listen) -> None:
        """Opens the session's own stream, or resumes any stream."""
        name, _, count = (listen.last_event_id or "").rpartition("-")
        stream = session.streams.get(name or OWN)
        if stream is None or not (self.has_own or name):
            self._network.end(channel, Cause(End.REFUSED, status=self._never if not name else 400))
            return
        self._network.connect(channel, Connected())
        stream.channel = channel
        stream.sent_count = int(count) if name else stream.sent_count
        self._go_on(stream)

    def put(self, stream: EventStream, messages: Sequence[bytes]) -> None:
        stream.log += messages
        if len(stream.log) > KEPT_MAX:
            raise AssertionError(f"{len(stream.log)} messages are on one stream")
        self._go_on(stream)

    def finish(self, stream: EventStream) -> None:
        stream.is_done = True
        self._go_on(stream)

    def part(self, session: Session) -> None:
        """Ends the session. Some servers end its stream with it, others leave it open."""
        own = session.streams.get(OWN)
        if own is not None and own.channel is not None and not self.has_ids:
            self.finish(own)

    def receive_end(self, channel: Channel) -> None:
        """Takes the loss of a connection. Its stream continues."""
        for stream in (self._by_channel.get(channel), *self._own_streams()):
            if stream is not None and stream.channel is channel:
                stream.channel = None

    def _own_streams(self) -> list[EventStream]:
        return [session.streams[OWN] for session in self._server.sessions.values() if OWN in session.streams]

    def _go_on(self, stream: EventStream) -> None:
        channel = stream.channel
        if channel is None or not channel.is_open:
            return
        messages, stream.sent_count = stream.log[stream.sent_count :], len(stream.log)
        if messages:
            self._network.send_many(channel, messages, stream.id_at(stream.sent_count))
        if stream.is_done:
            self._leave(stream, channel, Cause(End.DONE))
        elif messages and stream.has_ids and self._rng.random() < 0.05:
            self._leave(stream, channel, Cause(End.DONE, retry_ms=self._rng.choice((None, 100, 3000))))

    def _leave(self, stream: EventStream, channel: Channel, cause: Cause) -> None:
        stream.channel = None
        self._server.posts.pop(channel, None)
        self._network.end(channel, cause)
