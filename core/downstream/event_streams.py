"""The event streams of all sessions: what is put on them, what is kept of them, and how they are taken up again.

A POST's reply becomes a stream with ids when it is known not to be a single message: with its first other message, when
the server's own stream says that it can be resumed, or after `Limits.stream_commit_s` of silence (only where the
client's revision knows priming events). What is kept is bounded for each session and for all of them together. To make
room for an event, streams that are over are forgotten first, answers with them; then events of its own stream are
dropped, notifications before others; then those of other streams. One event of its own stream always stays. Where the
plan says so, events go into the storage, in the same order, before anything is dropped for lack of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..base.ids import ChannelId
from ..state.context import Desk
from ..state.exchange import Reply
from ..state.session import Session
from ..state.stream import Kept, Place, Replay, Stream, parse_event_id
from .event_store import Archive

LOST_NOTED: Final = 5
"""So many events that the storage lost are noted one by one."""


class Streams:
    """The way onto every stream of every client."""

    def __init__(self, desk: Desk, archive: Archive) -> None:
        self._desk = desk
        self._archive = archive
        self._kept_bytes = 0
        self._lost_count = 0
        # Those with events in memory:
        self._over: dict[Stream, Session] = {}  # ended, and kept for who missed the end; oldest first
        self._fed: dict[Stream, Session] = {}  # going on; fed longest ago first
        self._is_watching = False  # over those that are silent:
        self._silent: dict[Reply, tuple[Session, float]] = {}  # replies that may become streams, with the time for it

    # --- Messages ---------------------------------------------------------------------------------------------------

    def put(
        self,
        session: Session,
        stream: Stream,
        message: bytes,
        *,
        is_last: bool = False,
        is_lossy: bool = False,
        session_id: str | None = None,
        status: int = 200,
        challenge: str = "",
    ) -> bool:
        """Send a message, and keep it if it may be asked for again. False if it can reach nobody."""
        if stream.number is None and stream.may_resume and not is_last and self._desk.is_open(stream.channel):
            self._begin(session, stream)
            retry_ms = self._retry_ms(session)
        else:
            retry_ms = None
        if stream.number is None:
            if stream.channel is None:
                return False
            return self._desk.send(
                stream.channel, message, is_last=is_last, status=status, session=session_id, challenge=challenge
            )
        if stream.is_over:
            return False
        event_id = stream.keep(message, is_last=is_last, is_lossy=is_lossy)
        self._account(session, len(message))
        self._fed.pop(stream, None)
        self._fed[stream] = session
        if stream.channel is not None and stream.replay is None:
            self._desk.send(
                stream.channel, message, is_last=is_last, session=session_id, event_id=event_id, retry_ms=retry_ms
            )
        elif stream.is_listening:
            self.receive_left(session, stream)
        if is_last:
            self._retain(session, stream)
        self._make_room(session, stream)
        return True

    def put_lossy(self, session: Session, stream: Stream, messages: Sequence[bytes]) -> None:
        """Send notifications that came at once to a client of HTTP: the same as `put` for each, with one look at what
        there is room for."""
        if stream.number is None and stream.may_resume:
            self.put(session, stream, messages[0], is_lossy=True)
            messages = messages[1:]
        size_bytes = sum(map(len, messages))
        if not messages or stream.is_over:
            return
        if stream.number is None:
            if stream.channel is not None:
                self._desk.send_events(stream.channel, tuple(messages), (), size_bytes)
        elif stream.channel is None or stream.replay is not None or not self._has_room(session, size_bytes):
            for message in messages:
                self.put(session, stream, message, is_lossy=True)
        else:
            event_ids = stream.keep_lossy(messages, size_bytes)
            self._account(session, size_bytes)
            self._fed.pop(stream, None)
            self._fed[stream] = session
            self._desk.send_events(stream.channel, tuple(messages), event_ids, size_bytes)
            if stream.held_count > self._desk.limits.events_max:
                self._account(session, -stream.drop_lossy(self._desk.limits.events_max))
                self._make_room(session, stream)

    def _has_room(self, session: Session, size_bytes: int) -> bool:
        """Whether so much can be kept without a look at what else is, but for the number of events. With a storage,
        more becomes of events than that they go."""
        limits = self._desk.limits
        return (
            not self._desk.plan.stores_events
            and session.kept_bytes + size_bytes <= limits.events_per_session_max_bytes
            and self._kept_bytes + size_bytes <= limits.events_max_bytes
        )

    def prime(self, session: Session, stream: Stream) -> None:
        """Tell the client where to resume before there is a message, once.

        Source: 2025-11-25 basic/transports, "Sending Messages to the Server": "an SSE event consisting of an event ID
        and an empty data field in order to prime the client to reconnect".
        """
        if stream.number is not None or not stream.may_resume or not session.features.priming:
            return
        if stream.channel is None or not self._desk.is_open(stream.channel) or session.is_over:
            return  # of a session that is over, an answer may still be due, but nothing is kept
        self._begin(session, stream)
        event_id = stream.next_event_id()
        self._desk.send(stream.channel, b"", event_id=event_id, retry_ms=self._retry_ms(session))

    def release(self, session: Session, stream: Stream) -> None:
        """End the connection of a stream that goes on: the client comes back for the rest.

        Source: 2025-11-25 basic/transports: "the server MAY close the connection (without terminating the SSE stream)".
        """
        if stream.number is not None and session.features.priming and not stream.is_over:
            self._desk.close(stream.channel, reason="to be resumed")

    def _retry_ms(self, session: Session) -> int | None:
        return int(self._desk.limits.stream_retry_s * 1000) if session.features.priming else None

    def _begin(self, session: Session, stream: Stream) -> None:
        session.last_stream += 1
        stream.number = session.last_stream
        session.resumable[stream.number] = stream
        while len(session.resumable) > self._desk.limits.resumable_per_session_max:
            others = [other for other in session.resumable.values() if other is not stream]
            lost = [other for other in others if not self._desk.is_open(other.channel)]
            # A GET stream that nobody took up again has most likely been replaced by another.
            victim = next((other for other in lost if other.is_listening), None)
            victim = victim or next((other for other in others if other.is_over), (lost or others)[0])
            self.forget(session, victim)

    # --- Silence ----------------------------------------------------------------------------------------------------

    def expect(self, session: Session, reply: Reply) -> None:
        """A reply is due. Should it be long in coming, its client is primed."""
        if not session.features.priming or not reply.stream.may_resume:
            return
        at = self._desk.now + self._desk.limits.stream_commit_s
        if not self._is_watching:
            self._is_watching = True
            self._desk.timers.set(("commit", None), at, "silent replies")
        self._silent[reply] = session, at

    def settle(self, reply: Reply) -> None:
        """It is not due any more."""
        self._silent.pop(reply, None)

    def handle_commit(self) -> None:
        while self._silent:
            reply, (session, at) = next(iter(self._silent.items()))
            if at > self._desk.now:
                self._desk.timers.set(("commit", None), at, "silent replies")
                return
            del self._silent[reply]
            self.prime(session, reply.stream)
        self._is_watching = False

    # --- Connections ------------------------------------------------------------------------------------------------

    def detach(self, stream: Stream, channel: ChannelId) -> None:
        """The connection is gone; the stream, if it can be resumed, is not."""
        if stream.channel == channel:
            stream.channel = stream.replay = None

    def receive_left(self, session: Session, stream: Stream) -> None:
        """A GET stream has no connection any more: what it keeps waits for its client for so long only. What comes
        for the session does not go there."""
        if stream.is_listening and stream.channel is None and stream.number is not None:
            self._expire(session, stream, "stream that nobody listens to")

    def find(self, session: Session, last_event_id: str) -> tuple[Stream, int] | None:
        """The stream that an event id belongs to, and the event's number in it."""
        found = parse_event_id(last_event_id)
        stream = None if found is None else session.resumable.get(found[0])
        if found is None or stream is None or not stream.faded_ordinal <= found[1] <= stream.last_ordinal:
            return None
        return stream, found[1]

    def resume(
        self, session: Session, stream: Stream, ordinal: int, channel: ChannelId, missed: Callable[[int], None]
    ) -> None:
        """Go on with a stream on another connection: what followed the event `ordinal`, then what comes.

        What was missed is sent as fast as it is taken, and read. Whenever something of it may have been dropped in the
        meantime, `missed` is told the event that was sent last.
        """
        self._desk.close(stream.channel, reason="resumed on another connection")
        if stream.is_listening:
            self._desk.timers.cancel(("stream", (session.sid, stream.number)))
        stream.channel = channel
        stream.replay = Replay(channel, ordinal, missed)
        self._replay(session, stream, stream.replay)

    def _replay(self, session: Session, stream: Stream, replay: Replay) -> None:
        while (kept := stream.after(replay.seen)) is not None:
            if not self._desk.when_taken(replay.channel, lambda: self._go_on(session, stream, replay)):
                return
            if kept.message is None:
                self._load(session, stream, replay, kept)
                return
            self._tell(stream, replay, kept, kept.message)
        stream.replay = None
        if stream.is_over:
            self._desk.close(replay.channel, reason="nothing is left of this stream")

    def _load(self, session: Session, stream: Stream, replay: Replay, kept: Kept) -> None:
        def loaded(message: bytes | None, problem: str) -> None:
            if message is None and kept.place is not Place.GONE:
                self._archive.drop(session, stream, kept)
                self._note_lost(session, problem)
            if stream.replay is replay:
                if message is not None:
                    self._tell(stream, replay, kept, message)
                self._go_on(session, stream, replay)

        self._archive.load(session, stream, kept, loaded)

    def _go_on(self, session: Session, stream: Stream, replay: Replay) -> None:
        if stream.replay is replay:
            replay.missed(replay.seen)
            self._replay(session, stream, replay)

    def _tell(self, stream: Stream, replay: Replay, kept: Kept, message: bytes) -> None:
        replay.seen = kept.ordinal
        self._desk.send(replay.channel, message, is_last=kept.is_last, event_id=stream.event_id(kept.ordinal))

    # --- What is kept -----------------------------------------------------------------------------------------------

    def _retain(self, session: Session, stream: Stream) -> None:
        del self._fed[stream]
        self._over[stream] = session
        if stream.stored_count:
            self._archive.over[stream] = session
        self._expire(session, stream, "stream that is over")

    def _expire(self, session: Session, stream: Stream, why: str) -> None:
        at = self._desk.now + self._desk.limits.stream_ttl_s
        self._desk.timers.set(("stream", (session.sid, stream.number)), at, why)

    def forget(self, session: Session, stream: Stream) -> None:
        """It cannot be resumed any more."""
        assert stream.number is not None
        del session.resumable[stream.number]
        self._over.pop(stream, None)
        self._fed.pop(stream, None)
        self._desk.timers.cancel(("stream", (session.sid, stream.number)))
        self._account(session, -stream.held_bytes)
        self._archive.forget_stream(session, stream)
        stream.may_resume = False
        stream.number = None
        if stream.replay is not None:
            self._desk.close(stream.replay.channel, reason="what was missed is not kept any more")
            stream.replay = None

    def forget_all(self, session: Session) -> None:
        for stream in list(session.resumable.values()):
            self.forget(session, stream)

    def handle_over(self, session: Session, number: int) -> None:
        stream = session.resumable[number]
        if stream.is_listening:
            self._fade(session, stream)
        elif stream.replay is not None:
            self._expire(session, stream, "stream that is over")
        else:
            self.forget(session, stream)

    def _fade(self, session: Session, stream: Stream) -> None:
        """Nobody came back to a GET stream: what it keeps goes. Its name stays, for a client that has seen it all."""
        while (kept := stream.after(0)) is not None:
            if kept.place is Place.HELD:
                stream.drop(kept)
                self._account(session, -kept.size_bytes)
            else:
                self._archive.drop(session, stream, kept)
        self._note_empty(stream)
        stream.faded_ordinal = stream.last_ordinal

    def _account(self, session: Session, size_bytes: int) -> None:
        session.kept_bytes += size_bytes
        self._kept_bytes += size_bytes

    # --- Room -------------------------------------------------------------------------------------------------------

    def _make_room(self, session: Session, newest: Stream) -> None:
        limits = self._desk.limits
        while newest.held_count > limits.events_max:
            if not self._store_one(session, newest, newest):
                self._drop_one(session, newest)
        while session.kept_bytes > limits.events_per_session_max_bytes:
            others = [other for other in session.resumable.values() if other is not newest and other.held_count]
            over = next((other for other in others if other.is_over), None)
            if not self._yield_one(session, newest, over, others[0] if others else None):
                break
        while self._kept_bytes > limits.events_max_bytes:
            over = next((other for other in self._over if other is not newest), None)
            other = next((other for other in self._fed if other is not newest), None)
            if not self._yield_one(session, newest, over, other):
                break

    def _yield_one(self, session: Session, newest: Stream, over: Stream | None, other: Stream | None) -> bool:
        """Make some room: at the cost of a stream that is over, of the newest event's own, or of another. False if
        there is none of them."""
        if over is not None and self._store_one(self._over[over], over, newest):
            return True
        if newest.held_count > 1 and self._store_one(session, newest, newest):
            return True
        if other is not None and not other.is_over and self._store_one(self._fed[other], other, newest):
            return True
        if over is not None:
            if over in self._over:  # it may have been forgotten above, and what it had in the storage was too little
                self.forget(self._over[over], over)
        elif newest.held_count > 1:
            self._drop_one(session, newest)
        elif other is not None:
            self._drop_one(self._fed[other], other)
        else:
            return False
        return True

    def _drop_one(self, session: Session, stream: Stream) -> None:
        # To drop what is in the storage helps only if what is in memory could go there then.
        victim = stream.next_victim(of_held=not self._archive.is_free(stream.oldest_held()))
        if victim.place is Place.HELD:
            stream.drop(victim)
            self._account(session, -victim.size_bytes)
            self._note_empty(stream)
        else:
            self._archive.drop(session, stream, victim)

    def _store_one(self, session: Session, stream: Stream, newest: Stream) -> bool:
        """The oldest event that a stream has in memory goes into the storage, at the cost of others there that are
        over. False if it cannot."""
        kept = stream.oldest_held()
        if not self._archive.is_free(kept) or stream.stored_count >= self._desk.limits.events_stored_max:
            return False
        while not self._archive.has_room(session, kept):
            if not self._forget_stored(session, stream, newest):
                return False
        while not self._archive.has_room_at_all(kept):
            if not self._forget_stored(None, stream, newest):
                return False
        self._archive.take(session, stream, lambda problem: self._note_lost(session, problem))
        self._account(session, -kept.size_bytes)
        self._note_empty(stream)
        return True

    def _forget_stored(self, session: Session | None, *spared: Stream) -> bool:
        """Forget the oldest stream in the storage that is over: of one session, or of any."""
        for stream, owner in self._archive.over.items():
            if stream not in spared and session in (None, owner):
                self.forget(owner, stream)
                return True
        return False

    def _note_empty(self, stream: Stream) -> None:
        if not stream.held_count:
            self._fed.pop(stream, None)
            self._over.pop(stream, None)

    def _note_lost(self, session: Session, problem: str) -> None:
        """Say it a few times, then more and more rarely: a storage that is full loses every event."""
        self._lost_count += 1
        if self._lost_count > LOST_NOTED and self._lost_count & (self._lost_count - 1):
            return
        text = f"an event kept for a client was lost: {problem}"
        if self._lost_count > LOST_NOTED:
            text += f" ({self._lost_count} events by now)"
        self._desk.note("warning", text, session.server)
