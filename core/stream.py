"""One way down to a client: a pipe, the reply to a POST, or a GET stream; and what of it can be had again.

An event stream can outlive its connection. Each of its events has an id, `STREAM-EVENT` in decimal numbers, and is kept
for a while, so that a client that was cut off says which it has seen last and is given the rest, then what comes. The
numbers mean something within their session only, and whoever uses them has proved to be its owner.

Source: 2025-03-26 to 2025-11-25 basic/transports, "Resumability and Redelivery".
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

from .ids import ChannelId

_EVENT_ID: Final = re.compile(r"([1-9][0-9]{0,14})-([1-9][0-9]{0,14})", re.ASCII)


class Kept(NamedTuple):
    """An event that may be asked for again. One that is lossy may be dropped to make room: a notification."""

    ordinal: int
    message: bytes
    is_last: bool
    is_lossy: bool


class Stream:
    """
    Attributes:
        channel: the connection it travels on; None while there is none.
        number: its name within the session, once an event with an id was sent; None before, and for what has no ids.
        may_resume: whether its events have ids.
        last_ordinal: of the event that was added last.
        is_listening: it is a GET stream of the session's own, which has no last event.
        is_over: its last event was added.
        kept_bytes: the messages kept, together.
    """

    __slots__ = ("_kept", "channel", "is_listening", "is_over", "kept_bytes", "last_ordinal", "may_resume", "number")

    def __init__(self, channel: ChannelId, *, may_resume: bool = False, is_listening: bool = False) -> None:
        self.channel: ChannelId | None = channel
        self.is_listening = is_listening
        self.may_resume = may_resume
        self.number: int | None = None
        self.last_ordinal = 0
        self.is_over = False
        self.kept_bytes = 0
        self._kept: deque[Kept] = deque()

    @property
    def kept_count(self) -> int:
        return len(self._kept)

    def next_event_id(self) -> str:
        """Name an event that is not kept: one that only says where to resume."""
        assert self.number is not None
        self.last_ordinal += 1
        return f"{self.number}-{self.last_ordinal}"

    def keep(self, message: bytes, *, is_last: bool, is_lossy: bool) -> str:
        """Add an event. Returns its id."""
        assert not self.is_over
        event_id = self.next_event_id()
        self._kept.append(Kept(self.last_ordinal, message, is_last, is_lossy))
        self.kept_bytes += len(message)
        self.is_over = is_last
        return event_id

    def drop_one(self) -> Kept:
        """Make room: the oldest lossy event goes, be it the newest of all, else the oldest."""
        victim = next((kept for kept in self._kept if kept.is_lossy), self._kept[0])
        self._kept.remove(victim)
        self.kept_bytes -= len(victim.message)
        return victim

    def keeps(self, ordinal: int) -> bool:
        """Whether an event can still be had."""
        return any(kept.ordinal == ordinal for kept in self._kept)

    def after(self, ordinal: int) -> list[tuple[str, Kept]]:
        """What is kept of the events that followed, oldest first, with their ids."""
        return [(f"{self.number}-{kept.ordinal}", kept) for kept in self._kept if kept.ordinal > ordinal]


def parse_event_id(text: str) -> tuple[int, int] | None:
    """(stream, event) of an id that `Stream` made; None for any other text."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))
