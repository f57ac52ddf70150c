"""The store of events that are kept in the storage, not in memory.

Each event is one record, `event/SID/STREAM/EVENT`. Records mean something only to the process that wrote them. An event
that is being written is still in memory, and those are bounded by `Limits.events_saving_max` and
`events_saving_max_bytes`: a storage that is slower than the servers gets fewer of their events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.storage import Forget, ForgetAll, Load, Loaded, Save, Saved, StorageAnswer
from ..state.context import Context
from ..state.session import Session
from ..state.storage_orders import StorageOrders, reason_of
from ..state.stream import EventPlace, Kept, Stream

PREFIX = "event/"
"""The prefix of the keys of all events."""


class EventStore:
    """The stored events of all sessions."""

    def __init__(self, context: Context, storage_orders: StorageOrders) -> None:
        self._context = context
        self._storage_orders = storage_orders
        self._over: dict[Stream, Session] = {}  # over, with events in the storage; those that ended first come first
        self._stored_bytes = 0
        self._saving_count = 0
        self._saving_bytes = 0

    def is_free(self, kept: Kept) -> bool:
        """True if one more event may be written now."""
        limits = self._context.limits
        size_bytes = self._saving_bytes + kept.size_bytes
        is_wide = not self._saving_count or size_bytes <= limits.events_saving_max_bytes
        return self._context.plan.stores_events and is_wide and self._saving_count < limits.events_saving_max

    def has_room(self, session: Session, kept: Kept) -> bool:
        """True if the storage quota of the session has room for the event."""
        return session.stored_bytes + kept.size_bytes <= self._context.limits.events_stored_per_session_max_bytes

    def has_room_at_all(self, kept: Kept) -> bool:
        """True if the storage quota of all sessions together has room for the event."""
        return self._stored_bytes + kept.size_bytes <= self._context.limits.events_stored_max_bytes

    def take(self, session: Session, stream: Stream, lost: Callable[[str], None]) -> None:
        """Moves the oldest event that a stream has in memory into the storage.

        If the storage fails, the event is lost, and `lost` is called with the reason.
        """
        kept = stream.store_one()
        message = kept.message
        assert message is not None
        self._stored_bytes += session.count_stored(kept.size_bytes)
        self._saving_count += 1
        self._saving_bytes += kept.size_bytes
        if stream.is_over:
            self._over[stream] = session
        key = _key_of(session, stream, kept)

        def saved(answer: StorageAnswer) -> None:
            self._saving_count -= 1
            self._saving_bytes -= kept.size_bytes
            if kept.end_saving(is_saved=isinstance(answer, Saved)):
                return
            self._context.order(Forget(key=key))  # a write that failed may have left a record all the same
            if kept.place is not EventPlace.GONE:
                self.drop(session, stream, kept)
                lost(reason_of(answer))

        self._storage_orders.order(
            lambda ticket: Save(ticket=ticket, key=key, value=message),
            saved,
            late=lambda answer: self._context.order(Forget(key=key)),
        )

    def load(self, session: Session, stream: Stream, kept: Kept, then: Callable[[bytes | None, str], None]) -> None:
        """Reads an event's message. `then` is called with it, or with None and the reason why it is not available."""
        assert kept.place is EventPlace.STORED

        def loaded(answer: StorageAnswer) -> None:
            if isinstance(answer, Loaded):
                then(answer.value, "it is not there")
            else:
                then(None, reason_of(answer))

        key = _key_of(session, stream, kept)
        self._storage_orders.order(lambda ticket: Load(ticket=ticket, key=key), loaded)

    def drop(self, session: Session, stream: Stream, kept: Kept) -> None:
        """Deletes an event that was taken."""
        stream.drop(kept)
        self._stored_bytes += session.count_stored(-kept.size_bytes)
        if not stream.stored_count:
            self._over.pop(stream, None)
        if kept.place is EventPlace.STORED:
            self._context.order(Forget(key=_key_of(session, stream, kept)))
        kept.forget()

    def forget_stream(self, session: Session, stream: Stream) -> None:
        """Deletes all events of a stream, whose number must still be set."""
        self._over.pop(stream, None)
        if stream.stored_count:
            self._stored_bytes += session.count_stored(-stream.stored_bytes)
            self._context.order(ForgetAll(prefix=f"{PREFIX}{session.sid}/{stream.number}/"))
        for kept in stream.clear():
            kept.forget()

    def retain(self, session: Session, stream: Stream) -> None:
        """Handles the end of a stream, which gives way to others from now on."""
        if stream.stored_count:
            self._over[stream] = session

    def oldest_over(self, session: Session | None, spared: Sequence[Stream]) -> tuple[Stream, Session] | None:
        """Returns the stream that ended first: of one session, or of any. None if there is none but those spared."""
        entries = self._over.items()
        return next((each for each in entries if each[0] not in spared and session in (None, each[1])), None)


def _key_of(session: Session, stream: Stream, kept: Kept) -> str:
    return f"{PREFIX}{session.sid}/{stream.number}/{kept.ordinal}"
