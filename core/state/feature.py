"""Features: rooms that add an ability to the engine, and may be left out of a copy.

`core/features.py` lists them. The engine asks each for its interceptors, its timers and its channels, and tells it of
sessions that end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.events import Cause
from ..base.ids import ChannelId
from .context import ChannelRole
from .interceptor import Interceptor
from .session import Session

TimerHandler = Callable[..., None]
"""Handles a timer. It is called with the rest of the timer's key: the members of a tuple, or the one value."""
OpeningHandler = Callable[[ChannelId, Any], None]
"""Handles the opening of a channel."""


class ChannelHandler:
    """Handles the events of channels with one kind of role.

    Attributes:
        reads_late: it takes messages after the last message to the channel, too.
    """

    reads_late = False

    def receive_message(self, role: Any, channel: ChannelId, message: bytes) -> None:
        """Handles one message. By default it is dropped: the channel carries none."""

    def receive_close(self, role: Any, channel: ChannelId, cause: Cause) -> None:
        """Handles the end of the channel, which is not in the table any more."""

    def stop(self, role: Any, channel: ChannelId) -> None:
        """Handles the end of the proxy."""


class Feature:
    """One feature. A subclass sets what it has.

    Attributes:
        interceptors: its interceptors, in any order.
        timers: the handler of each of its timers, by purpose.
        openings: the handler of each of its kinds of openings.
        channels: the handler of the channels with each of its roles.
    """

    interceptors: Sequence[Interceptor] = ()
    timers: Mapping[str, TimerHandler] = {}
    openings: Mapping[type, OpeningHandler] = {}
    channels: Mapping[type[ChannelRole], ChannelHandler] = {}

    def receive_stop(self) -> None:
        """Handles the end of the proxy, before its sessions end."""

    def receive_stopped(self) -> None:
        """Handles the end of the proxy, after its sessions have ended."""

    @property
    def request_count(self) -> int:
        """The number of requests of clients, beside those of sessions, that wait for their response."""
        return 0

    def is_used(self, session: Session) -> bool:
        """True if it works for a session that seems idle."""
        return False

    def receive_closing(self, session: Session) -> None:
        """Handles the coming end of a session, whose requests are still open."""

    def receive_closed(self, session: Session) -> None:
        """Handles the end of a session. No request of it is open any more."""

    def receive_left(self, session: Session) -> None:
        """Handles the end of the last process of a session that is over."""

    def receive_record(self, key: str, value: bytes | None) -> None:
        """Handles a record that another replica has written, or, if `value` is None, removed."""

    def owes(self, channel: ChannelId) -> bool:
        """True if a client on that pipe waits for something that is no response to an open request."""
        return False
