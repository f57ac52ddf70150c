"""Events that are kept in the storage, not in memory.

A record an event, `event/SID/STREAM/EVENT`. They mean something to the process that wrote them only. What is on its way
into the storage is still in memory, and bounded by `Limits.events_saving_max` and `events_saving_max_bytes`: a storage
that is slower than the servers gets less of what they say.
"""

from __future__ import annotations

from collections.abc import Callable

from ..base.effects import Forget, ForgetAll, Load, Loaded, Save, Saved, StorageAnswer
from ..state.context import Desk
from ..state.session import Session
from ..state.storage_orders import Waiting, reason_of
from ..state.stream import Kept, Place, Stream

PREFIX = "event/"
"""What the keys of all these records start with."""


class Archive:
    """
    Attributes:
        over: streams that are over, with something in the storage; ended first, first.
    """

    def __init__(self, desk: Desk, waiting: Waiting) -> None:
        self.over: dict[Stream, Session] = {}
        self._desk = desk
        self._waiting = waiting
        self._stored_bytes = 0
        self._saving_count = 0
        self._saving_bytes = 0

    def is_free(self, kept: Kept) -> bool:
        """Whether one more event may be on its way."""
        limits = self._desk.limits
        size_bytes = self._saving_bytes + kept.size_bytes
        is_wide = not self._saving_count or size_bytes <= limits.events_saving_max_bytes
        return self._desk.plan.stores_events and is_wide and self._saving_count < limits.events_saving_max

    def has_room(self, session: Session, kept: Kept) -> bool:
        """Whether there is room for an event, as far as its own session is concerned."""
        return session.stored_bytes + kept.size_bytes <= self._desk.limits.events_stored_per_session_max_bytes

    def has_room_at_all(self, kept: Kept) -> bool:
        """Whether there is, as far as all sessions are concerned."""
        return self._stored_bytes + kept.size_bytes <= self._desk.limits.events_stored_max_bytes

    def take(self, session: Session, stream: Stream, lost: Callable[[str], None]) -> None:
        """The oldest event that a stream holds goes into the storage. `lost` is told why it cannot be had again, if the
        storage fails."""
        kept = stream.store_one()
        message = kept.message
        assert message is not None
        self._account(session, kept.size_bytes)
        self._saving_count += 1
        self._saving_bytes += kept.size_bytes
        if stream.is_over:
            self.over[stream] = session
        key = _key_of(session, stream, kept)

        def saved(answer: StorageAnswer) -> None:
            self._saving_count -= 1
            self._saving_bytes -= kept.size_bytes
            kept.message = None
            if isinstance(answer, Saved) and kept.place is Place.SAVING:
                kept.place = Place.STORED
                return
            self._desk.order(Forget(key=key))  # what failed may have been written all the same
            if kept.place is not Place.GONE:
                self.drop(session, stream, kept)
                lost(reason_of(answer))

        self._waiting.order(
            lambda ticket: Save(ticket=ticket, key=key, value=message),
            saved,
            late=lambda answer: self._desk.order(Forget(key=key)),
        )

    def load(self, session: Session, stream: Stream, kept: Kept, then: Callable[[bytes | None, str], None]) -> None:
        """Read an event's message; `then` gets it, or None and why it cannot be had."""
        assert kept.place is Place.STORED

        def loaded(answer: StorageAnswer) -> None:
            if isinstance(answer, Loaded):
                then(answer.value, "it is not there")
            else:
                then(None, reason_of(answer))

        key = _key_of(session, stream, kept)
        self._waiting.order(lambda ticket: Load(ticket=ticket, key=key), loaded)

    def drop(self, session: Session, stream: Stream, kept: Kept) -> None:
        """An event that was taken is not needed any more."""
        stream.drop(kept)
        self._account(session, -kept.size_bytes)
        if not stream.stored_count:
            self.over.pop(stream, None)
        if kept.place is Place.STORED:
            self._desk.order(Forget(key=_key_of(session, stream, kept)))
        kept.place = Place.GONE

    def forget_stream(self, session: Session, stream: Stream) -> None:
        """Nothing of a stream is needed any more, whose number is still known."""
        self.over.pop(stream, None)
        if stream.stored_count:
            self._account(session, -stream.stored_bytes)
            self._desk.order(ForgetAll(prefix=f"{PREFIX}{session.sid}/{stream.number}/"))
        for kept in stream.clear():
            kept.place = Place.GONE  # what is on its way in is forgotten once it is there

    def _account(self, session: Session, size_bytes: int) -> None:
        session.stored_bytes += size_bytes
        self._stored_bytes += size_bytes


def _key_of(session: Session, stream: Stream, kept: Kept) -> str:
    return f"{PREFIX}{session.sid}/{stream.number}/{kept.ordinal}"
