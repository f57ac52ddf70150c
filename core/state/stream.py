"""One way down to a client: a pipe, the reply to a POST, or a GET stream; and what of it can be had again.

An event stream can outlive its connection. Each of its events has an id, `STREAM-EVENT` in decimal numbers, and is kept
for a while, so that a client that was cut off says which it has seen last and is given the rest, then what comes. The
numbers mean something within their session only, and whoever uses them has proved to be its owner.

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


class Place(enum.Enum):
    """Where the message of an event is."""

    HELD = "held"  # here
    SAVING = "saving"  # here, and on its way into the storage
    STORED = "stored"  # in the storage
    GONE = "gone"  # nowhere: it was dropped


class Kept(msgspec.Struct, eq=False, gc=False):
    """An event that may be asked for again. One that is lossy may be dropped to make room: a notification."""

    ordinal: int
    message: bytes | None
    size_bytes: int
    is_last: bool = False
    is_lossy: bool = False
    place: Place = Place.HELD


_NOTHING: Final[deque[Kept]] = deque(maxlen=0)
"""What is kept of most streams, which have one message."""


class Replay:
    """What a client missed, on its way to it.

    Attributes:
        seen: the event that was sent last.
        missed: to be told what was seen, whenever something that should follow may have been dropped.
    """

    __slots__ = ("channel", "missed", "seen")

    def __init__(self, channel: ChannelId, seen: int, missed: Callable[[int], None]) -> None:
        self.channel = channel
        self.seen = seen
        self.missed = missed


class Stream:
    """
    Attributes:
        channel: the connection it travels on; None while there is none.
        number: its name within the session, once an event with an id was sent; None before, and for what has no ids.
        may_resume: whether its events have ids.
        last_ordinal: of the event that was added last.
        faded_ordinal: of the last one that was forgotten for its age: who has not seen it cannot come back.
        is_listening: it is a GET stream of the session's own, which has no last event.
        is_over: its last event was added.
        replay: the client is still being told what it missed; what comes has to wait.
        held_count: the events whose messages are here.
        held_bytes: they together.
        stored_count: the events whose messages are in the storage, or on their way there.
        stored_bytes: they together.
    """

    # Most streams have one message, and nothing of it is kept.
    number: int | None = None
    last_ordinal = 0
    faded_ordinal = 0
    is_over = False
    replay: Replay | None = None
    held_count = 0
    held_bytes = 0
    stored_count = 0
    stored_bytes = 0
    _kept = _NOTHING

    def __init__(self, channel: ChannelId | None, *, may_resume: bool = False, is_listening: bool = False) -> None:
        self.channel: ChannelId | None = channel
        self.is_listening = is_listening
        self.may_resume = may_resume

    @property
    def kept_count(self) -> int:
        return len(self._kept)

    def next_event_id(self) -> str:
        """Name an event that is not kept: one that only says where to resume."""
        assert self.number is not None
        self.last_ordinal += 1
        return self.event_id(self.last_ordinal)

    def event_id(self, ordinal: int) -> str:
        return f"{self.number}-{ordinal}"

    def keep(self, message: bytes, *, is_last: bool, is_lossy: bool) -> str:
        """Add an event. Returns its id."""
        assert not self.is_over
        event_id = self.next_event_id()
        if self._kept is _NOTHING:
            self._kept = deque()
        self._kept.append(Kept(self.last_ordinal, message, len(message), is_last, is_lossy))
        self.held_count += 1
        self.held_bytes += len(message)
        self.is_over = is_last
        return event_id

    def keep_lossy(self, messages: Sequence[bytes], size_bytes: int) -> tuple[str, ...]:
        """Add lossy events, `size_bytes` together. Returns their ids."""
        assert self.number is not None
        assert not self.is_over
        if self._kept is _NOTHING:
            self._kept = deque()
        first = self.last_ordinal + 1
        self.last_ordinal += len(messages)
        ordinals = range(first, self.last_ordinal + 1)
        self._kept.extend(map(Kept, ordinals, messages, map(len, messages), repeat(False), repeat(True)))
        self.held_count += len(messages)
        self.held_bytes += size_bytes
        return tuple(map(f"{self.number}-".__add__, map(str, ordinals)))

    def drop_lossy(self, held_max: int) -> int:
        """While more events than that are here, and the first that is kept is one of them and lossy, it goes. Returns
        how many bytes went."""
        kept, before = self._kept, self.held_bytes
        while self.held_count > held_max and kept[0].is_lossy and kept[0].place is Place.HELD:
            self.held_bytes -= kept.popleft().size_bytes
            self.held_count -= 1
        return before - self.held_bytes

    def next_victim(self, *, of_held: bool) -> Kept:
        """What goes first to make room: the oldest lossy event, be it the newest of all, else the oldest.

        Args:
            of_held: only those whose messages are here.
        """
        first = len(self._kept) - self.held_count if of_held else 0
        return next((kept for kept in islice(self._kept, first, None) if kept.is_lossy), self._kept[first])

    def drop(self, kept: Kept) -> None:
        """One event goes. The caller sees to what the storage has of it."""
        self._kept.remove(kept)
        if kept.place is Place.HELD:
            self.held_count -= 1
            self.held_bytes -= kept.size_bytes
        else:
            self.stored_count -= 1
            self.stored_bytes -= kept.size_bytes

    def oldest_held(self) -> Kept:
        """The first event whose message is here. There is one. Those in the storage all came before it."""
        return self._kept[-self.held_count]

    def store_one(self) -> Kept:
        """The oldest message that is here goes into the storage."""
        kept = self.oldest_held()
        kept.place = Place.SAVING
        self.held_count -= 1
        self.held_bytes -= kept.size_bytes
        self.stored_count += 1
        self.stored_bytes += kept.size_bytes
        return kept

    def keeps(self, ordinal: int) -> bool:
        """Whether an event can still be had."""
        found = self.after(ordinal - 1)
        return found is not None and found.ordinal == ordinal

    def after(self, ordinal: int) -> Kept | None:
        """The first event kept of those that followed."""
        place = bisect_right(self._kept, ordinal, key=_ordinal_of)
        return self._kept[place] if place < len(self._kept) else None

    def clear(self) -> list[Kept]:
        """Nothing is kept any more. Returns what was."""
        gone = list(self._kept)
        self._kept.clear()
        self.held_count = self.held_bytes = self.stored_count = self.stored_bytes = 0
        return gone


def _ordinal_of(kept: Kept) -> int:
    return kept.ordinal


def parse_event_id(text: str) -> tuple[int, int] | None:
    """(stream, event) of an id that `Stream` made; None for any other text."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))
