"""One stream of messages to a client: a pipe, the reply to a POST, or a GET stream, with the events kept for
resumption.

An event stream can outlive its connection. Each of its events has an id, `STREAM-EVENT` in decimal numbers, and is kept
for a while. A client that was cut off names the last event it has seen, and is sent the ones after it. The numbers mean
something within their session only, and a client that uses them has proved to be the session's owner.

Source: 2025-03-26 to 2025-11-25 basic/transports, "Resumability and Redelivery".
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, repeat
from typing import Final

import msgspec

from ..base.ids import ChannelId

_EVENT_ID: Final = re.compile(r"([1-9][0-9]{0,14})-([1-9][0-9]{0,14})", re.ASCII)


class EventPlace(enum.Enum):
    """The place of an event's message."""

    HELD = "held"  # in memory
    SAVING = "saving"  # in memory, and being written to the storage
    STORED = "stored"  # in the storage
    GONE = "gone"  # dropped


class Kept(msgspec.Struct, eq=False, gc=False):
    """An event that a client may ask for again. A lossy event (a notification) may be dropped to make room."""

    ordinal: int
    message: bytes | None
    size_bytes: int
    is_last: bool = False
    is_lossy: bool = False
    place: EventPlace = EventPlace.HELD

    def end_saving(self, *, is_saved: bool) -> bool:
        """Frees the message, whose write has ended. True if the event is in the storage and still wanted."""
        self.message = None
        if is_saved and self.place is EventPlace.SAVING:
            self.place = EventPlace.STORED
            return True
        return False

    def forget(self) -> None:
        """Marks the event as dropped. If it is being written, it is deleted when the write ends."""
        self.place = EventPlace.GONE


_NO_EVENTS: Final[deque[Kept]] = deque(maxlen=0)
"""The kept events of most streams, which carry one message. Shared, so never changed but replaced."""


class Replay:
    """The replay of missed events on a resumed stream.

    Attributes:
        channel: the connection that they are sent on.
        seen: the event that was sent last.
        missed: a callback that is given `seen` whenever an event after it may have been dropped.
    """

    __slots__ = ("channel", "missed", "seen")

    def __init__(self, channel: ChannelId, seen: int, missed: Callable[[int], None]) -> None:
        self.channel = channel
        self.seen = seen
        self.missed = missed

    def receive_sent(self, kept: Kept) -> None:
        """Records that an event was sent."""
        self.seen = kept.ordinal


class Stream:
    """One stream of messages to a client.

    Attributes:
        channel: the connection it travels on; None while there is none.
        number: its number within the session, from its first event with an id on; None before, and without ids.
        may_resume: its events have ids.
        last_ordinal: number of the latest event.
        faded_ordinal: number of the latest event that was dropped for its age: a client that has not seen it cannot
            resume.
        is_listening: it is a GET stream of the session's own, which has no last event.
        is_over: its last event was added.
        replay: the client is still being sent missed events; new ones wait.
        held_count: events whose messages are in memory.
        held_bytes: size of those messages.
        stored_count: events whose messages are in the storage, or being written there.
        stored_bytes: size of those messages.
    """

    # Most streams carry one message and keep none: class attributes hold the usual values, to save memory.
    number: int | None = None
    last_ordinal = 0
    faded_ordinal = 0
    is_over = False
    replay: Replay | None = None
    held_count = 0
    held_bytes = 0
    stored_count = 0
    stored_bytes = 0
    _kept = _NO_EVENTS

    def __init__(self, channel: ChannelId | None, *, may_resume: bool = False, is_listening: bool = False) -> None:
        self.channel: ChannelId | None = channel
        self.is_listening = is_listening
        self.may_resume = may_resume

    def begin(self, number: int) -> None:
        """Gives it its number: its events have ids from now on."""
        self.number = number

    def attach(self, channel: ChannelId, replay: Replay) -> None:
        """Continues on another connection, where missed events come first."""
        self.channel, self.replay = channel, replay

    def detach(self, channel: ChannelId) -> None:
        """Handles the loss of a connection. A stream with event ids stays."""
        if self.channel == channel:
            self.channel = self.replay = None

    def end_replay(self) -> None:
        """Ends the replay: the client has what it missed."""
        self.replay = None

    def fade(self) -> None:
        """Refuses clients that have not seen all events so far, which were dropped for their age."""
        self.faded_ordinal = self.last_ordinal

    def forget(self) -> None:
        """Ends what makes it resumable."""
        self.may_resume = False
        self.number = self.replay = None

    @property
    def kept_count(self) -> int:
        """The number of events kept."""
        return len(self._kept)

    def next_event_id(self) -> str:
        """Returns the id for an event that is not kept: one that only tells the client where to resume."""
        assert self.number is not None
        self.last_ordinal += 1
        return self.event_id(self.last_ordinal)

    def event_id(self, ordinal: int) -> str:
        """Returns the id of the event with that number."""
        return f"{self.number}-{ordinal}"

    def keep(self, message: bytes, *, is_last: bool, is_lossy: bool) -> str:
        """Adds an event. Returns its id."""
        assert not self.is_over
        event_id = self.next_event_id()
        if self._kept is _NO_EVENTS:
            self._kept = deque()
        self._kept.append(Kept(self.last_ordinal, message, len(message), is_last, is_lossy))
        self.held_count += 1
        self.held_bytes += len(message)
        self.is_over = is_last
        return event_id

    def keep_lossy(self, messages: Sequence[bytes], size_bytes: int) -> tuple[str, ...]:
        """Adds lossy events, `size_bytes` together. Returns their ids."""
        assert self.number is not None
        assert not self.is_over
        if self._kept is _NO_EVENTS:
            self._kept = deque()
        first = self.last_ordinal + 1
        self.last_ordinal += len(messages)
        ordinals = range(first, self.last_ordinal + 1)
        self._kept.extend(map(Kept, ordinals, messages, map(len, messages), repeat(False), repeat(True)))
        self.held_count += len(messages)
        self.held_bytes += size_bytes
        return tuple(map(f"{self.number}-".__add__, map(str, ordinals)))

    def drop_lossy(self, held_max: int) -> int:
        """Drops events from the front until `held_max` are in memory, or the first one is not lossy or not in memory
        only. Returns the number of bytes freed."""
        kept, before = self._kept, self.held_bytes
        while self.held_count > held_max and kept[0].is_lossy and kept[0].place is EventPlace.HELD:
            self.held_bytes -= kept.popleft().size_bytes
            self.held_count -= 1
        return before - self.held_bytes

    def next_victim(self, *, of_held: bool) -> Kept:
        """Returns the event to drop first: the oldest lossy one, even if it is the newest event, else the oldest.

        Args:
            of_held: only events whose messages are in memory.
        """
        first = len(self._kept) - self.held_count if of_held else 0
        return next((kept for kept in islice(self._kept, first, None) if kept.is_lossy), self._kept[first])

    def drop(self, kept: Kept) -> None:
        """Drops one event. The caller removes its message from the storage."""
        self._kept.remove(kept)
        if kept.place is EventPlace.HELD:
            self.held_count -= 1
            self.held_bytes -= kept.size_bytes
        else:
            self.stored_count -= 1
            self.stored_bytes -= kept.size_bytes

    def oldest_held(self) -> Kept:
        """Returns the first event whose message is in memory. There must be one. All events in the storage are
        older."""
        return self._kept[-self.held_count]

    def store_one(self) -> Kept:
        """Marks the oldest message in memory as being written to the storage. Returns its event."""
        kept = self.oldest_held()
        kept.place = EventPlace.SAVING
        self.held_count -= 1
        self.held_bytes -= kept.size_bytes
        self.stored_count += 1
        self.stored_bytes += kept.size_bytes
        return kept

    def keeps(self, ordinal: int) -> bool:
        """True if the event is still kept."""
        found = self.after(ordinal - 1)
        return found is not None and found.ordinal == ordinal

    def after(self, ordinal: int) -> Kept | None:
        """Returns the first kept event after `ordinal`; None if there is none."""
        place = bisect_right(self._kept, ordinal, key=_ordinal_of)
        return self._kept[place] if place < len(self._kept) else None

    def clear(self) -> list[Kept]:
        """Drops all events. Returns them."""
        gone = list(self._kept)
        self._kept.clear()
        self.held_count = self.held_bytes = self.stored_count = self.stored_bytes = 0
        return gone


def _ordinal_of(kept: Kept) -> int:
    return kept.ordinal


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Returns (stream, event) of an id that `Stream` made; None for any other text."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))
