"""The GET stream of an upstream session over HTTP, over all its connections.

Source: 2025-11-25 basic/transports, "Listening for Messages from the Server".
"""

from __future__ import annotations

from ..base.ids import ChannelId


class GetStream:
    """The stream, whether it is open or not.

    Attributes:
        channel: its connection; None while there is none.
        was_granted: this upstream session has granted one, of its own or for the rest of a reply.
        last_event_id: its last event id; None: it cannot be resumed.
        failures: connections lost since one was granted.
        idle: connections in a row that brought no message.
    """

    __slots__ = ("channel", "failures", "idle", "last_event_id", "was_granted")

    def __init__(self) -> None:
        self.channel: ChannelId | None = None
        self.was_granted = False
        self.last_event_id: str | None = None
        self.failures = 0
        self.idle = 0

    def receive_session(self) -> None:
        """Handles the beginning of an upstream session: it has granted no stream yet."""
        self.was_granted = False
        self.last_event_id = None

    def open(self, channel: ChannelId) -> None:
        """Opens a connection."""
        self.channel = channel

    def receive_granted(self, *, is_own: bool = True) -> None:
        """Handles a GET that the server has answered with a stream. `is_own` is False for the rest of a reply."""
        self.was_granted = True
        if is_own:
            self.failures = 0

    def receive_renewed(self) -> None:
        """Handles a subscription that stands in for the stream, with a stateless server: it was acknowledged."""
        self.failures = 0

    def take_channel(self) -> ChannelId | None:
        """Gives up the connection, if there is one. Returns it."""
        channel, self.channel = self.channel, None
        return channel

    def receive_declined(self) -> bool:
        """Handles the refusal of a GET. True if the server may grant a new stream, in place of the one that could not
        be resumed."""
        was_resumed, self.last_event_id = bool(self.last_event_id), None
        return was_resumed

    def receive_closed(self, last_event_id: str | None, *, has_spoken: bool, failures_max: int) -> int:
        """Handles the end of a connection. Returns the number of failures before it.

        Args:
            last_event_id: the last event id that came; None: none came.
            has_spoken: a message came.
            failures_max: failures after which the stream is not resumed, but opened anew: resuming may be their reason.
        """
        if last_event_id is not None:
            self.last_event_id = last_event_id
        self.idle = 0 if has_spoken else self.idle + 1
        before = self.failures
        self.failures += 1
        if self.failures > failures_max:
            self.last_event_id = None
        return before

    def count_failure(self) -> int:
        """Counts the end of a subscription that stands in for the stream. Returns the number of failures before it."""
        self.failures += 1
        return self.failures - 1
