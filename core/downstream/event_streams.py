"""The event streams of all sessions: sends messages on them, keeps events, and resumes them with `Last-Event-ID`.

The reply to a POST becomes a stream with event ids when it is known not to be a single message: with its first message
before the response, when the server's own stream can be resumed, or after `Limits.stream_commit_s` of silence (only if
the client's revision knows priming events).

Kept events are bounded for each session and for all sessions together. To make room for a new event, streams that are
over are forgotten first, responses included. Then events of its own stream are dropped, notifications before others;
then events of other streams. One event of its own stream always stays. Where the plan stores events, they are moved
into the storage, in the same order, before any is dropped for lack of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..base.events import Headers
from ..base.ids import ChannelId
from ..state.context import Context
from ..state.exchange import Reply
from ..state.session import Session
from ..state.stream import EventPlace, Kept, Replay, Stream, parse_event_id
from .event_store import EventStore

LOST_NOTED: Final = 5
"""The count of events lost by the storage that are logged one by one."""


class Streams:
    """The streams of all clients."""

    def __init__(self, context: Context, event_store: EventStore) -> None:
        self._context = context
        self._event_store = event_store
        self._kept_bytes = 0
        self._lost_count = 0
        # Streams with events in memory:
        self._over: dict[Stream, Session] = {}  # ended, and kept for clients that missed the end; oldest first
        self._fed: dict[Stream, Session] = {}  # not ended; the one without a new event for longest first
        self._is_watching = False  # the "commit" timer runs
        self._silent: dict[Reply, tuple[Session, float]] = {}  # replies to be primed, with the time; soonest first

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
        headers: Headers = (),
    ) -> bool:
        """Sends a message, and keeps it if the client may ask for it again. False if no client can ever get it.

        Args:
            is_last: the message ends the stream.
            is_lossy: the message may be dropped to make room.
            session_id: the `Mcp-Session-Id` to send with the first bytes.
            status, challenge, headers: the HTTP status, the `WWW-Authenticate` header and further headers of a reply
                that is this message alone.
        """
        if stream.number is None and stream.may_resume and not is_last and self._context.is_open(stream.channel):
            self._begin(session, stream)
            retry_ms = self._retry_ms(session)
        else:
            retry_ms = None
        if stream.number is None:
            if stream.channel is None:
                return False
            return self._context.send(
                stream.channel,
                message,
                is_last=is_last,
                status=status,
                session=session_id,
                challenge=challenge,
                headers=headers,
            )
        if stream.is_over:
            return False
        event_id = stream.keep(message, is_last=is_last, is_lossy=is_lossy)
        self._kept_bytes += session.count_kept(len(message))
        self._fed.pop(stream, None)
        self._fed[stream] = session
        if stream.channel is not None and stream.replay is None:
            self._context.send(
                stream.channel, message, is_last=is_last, session=session_id, event_id=event_id, retry_ms=retry_ms
            )
        elif stream.is_listening:
            self.receive_left(session, stream)
        if is_last:
            self._retain(session, stream)
        self._make_room(session, stream)
        return True

    def put_lossy(self, session: Session, stream: Stream, messages: Sequence[bytes]) -> None:
        """Sends lossy notifications that arrived together to an HTTP client, as `put` does for each, but with one check
        for room."""
        if stream.number is None and stream.may_resume:
            self.put(session, stream, messages[0], is_lossy=True)
            messages = messages[1:]
        size_bytes = sum(map(len, messages))
        if not messages or stream.is_over:
            return
        if stream.number is None:
            if stream.channel is not None:
                self._context.send_events(stream.channel, tuple(messages), (), size_bytes)
        elif stream.channel is None or stream.replay is not None or not self._has_room(session, size_bytes):
            for message in messages:
                self.put(session, stream, message, is_lossy=True)
        else:
            event_ids = stream.keep_lossy(messages, size_bytes)
            self._kept_bytes += session.count_kept(size_bytes)
            self._fed.pop(stream, None)
            self._fed[stream] = session
            self._context.send_events(stream.channel, tuple(messages), event_ids, size_bytes)
            if stream.held_count > self._context.limits.events_max:
                self._kept_bytes += session.count_kept(-stream.drop_lossy(self._context.limits.events_max))
                self._make_room(session, stream)

    def _has_room(self, session: Session, size_bytes: int) -> bool:
        """True if so many bytes can be kept without making room, the number of events aside.

        Always false with a storage: there, making room is more than dropping events.
        """
        limits = self._context.limits
        return (
            not self._context.plan.stores_events
            and session.kept_bytes + size_bytes <= limits.events_per_session_max_bytes
            and self._kept_bytes + size_bytes <= limits.events_max_bytes
        )

    def prime(self, session: Session, stream: Stream) -> None:
        """Sends the priming event, once, if no message was sent yet: it tells the client where to resume.

        Source: 2025-11-25 basic/transports, "Sending Messages to the Server": "an SSE event consisting of an event ID
        and an empty data field in order to prime the client to reconnect".
        """
        if stream.number is not None or not stream.may_resume or not session.features.priming:
            return
        if stream.channel is None or not self._context.is_open(stream.channel) or session.is_over:
            return  # a response may still be due in a session that is over, but no events are kept
        self._begin(session, stream)
        event_id = stream.next_event_id()
        self._context.send(stream.channel, b"", event_id=event_id, retry_ms=self._retry_ms(session))

    def release(self, session: Session, stream: Stream) -> None:
        """Closes the connection of a stream that continues: the client reconnects for the rest.

        Source: 2025-11-25 basic/transports: "the server MAY close the connection (without terminating the SSE stream)".
        """
        if stream.number is not None and session.features.priming and not stream.is_over:
            self._context.close(stream.channel, reason="to be resumed")

    def _retry_ms(self, session: Session) -> int | None:
        return int(self._context.limits.stream_retry_s * 1000) if session.features.priming else None

    def _begin(self, session: Session, stream: Stream) -> None:
        session.add_resumable(stream)
        while len(session.resumable) > self._context.limits.resumable_per_session_max:
            others = [other for other in session.resumable.values() if other is not stream]
            lost = [other for other in others if not self._context.is_open(other.channel)]
            # A GET stream without a connection has most likely been replaced by another.
            victim = next((other for other in lost if other.is_listening), None)
            victim = victim or next((other for other in others if other.is_over), (lost or others)[0])
            self.forget(session, victim)

    # --- Silence ----------------------------------------------------------------------------------------------------

    def expect(self, session: Session, reply: Reply) -> None:
        """Primes the reply's stream after `Limits.stream_commit_s`, unless the reply is settled before."""
        if not session.features.priming or not reply.stream.may_resume:
            return
        at = self._context.now + self._context.limits.stream_commit_s
        if not self._is_watching:
            self._is_watching = True
            self._context.timers.set(("commit", None), at, "silent replies")
        self._silent[reply] = session, at

    def settle(self, reply: Reply) -> None:
        """Ends what `expect` began for a reply."""
        self._silent.pop(reply, None)

    def handle_commit(self) -> None:
        while self._silent:
            reply, (session, at) = next(iter(self._silent.items()))
            if at > self._context.now:
                self._context.timers.set(("commit", None), at, "silent replies")
                return
            del self._silent[reply]
            self.prime(session, reply.stream)
        self._is_watching = False

    # --- Connections ------------------------------------------------------------------------------------------------

    def receive_left(self, session: Session, stream: Stream) -> None:
        """Starts the timeout of a GET stream that has no connection any more. New messages of the session do not go
        there."""
        if stream.is_listening and stream.channel is None and stream.number is not None:
            self._expire(session, stream, "stream that nobody listens to")

    def find(self, session: Session, last_event_id: str) -> tuple[Stream, int] | None:
        """Returns the stream that an event id belongs to, and the event's number in it; None if it cannot be resumed
        from there."""
        found = parse_event_id(last_event_id)
        stream = None if found is None else session.resumable.get(found[0])
        if found is None or stream is None or not stream.faded_ordinal <= found[1] <= stream.last_ordinal:
            return None
        return stream, found[1]

    def resume(
        self, session: Session, stream: Stream, ordinal: int, channel: ChannelId, missed: Callable[[int], None]
    ) -> None:
        """Continues a stream on another connection: first the events after `ordinal`, then new ones.

        Missed events are read and sent as fast as the connection takes them. Whenever some of them may have been
        dropped meanwhile, `missed` is called with the number of the event that was sent last.
        """
        self._context.close(stream.channel, reason="resumed on another connection")
        if stream.is_listening:
            self._context.timers.cancel(("stream", (session.sid, stream.number)))
        replay = Replay(channel, ordinal, missed)
        stream.attach(channel, replay)
        self._replay(session, stream, replay)

    def _replay(self, session: Session, stream: Stream, replay: Replay) -> None:
        while (kept := stream.after(replay.seen)) is not None:
            if not self._context.when_taken(replay.channel, lambda: self._continue(session, stream, replay)):
                return
            if kept.message is None:
                self._load(session, stream, replay, kept)
                return
            self._send_kept(stream, replay, kept, kept.message)
        stream.end_replay()
        if stream.is_over:
            self._context.close(replay.channel, reason="nothing is left of this stream")

    def _load(self, session: Session, stream: Stream, replay: Replay, kept: Kept) -> None:
        def loaded(message: bytes | None, problem: str) -> None:
            if message is None and kept.place is not EventPlace.GONE:
                self._event_store.drop(session, stream, kept)
                self._note_lost(session, problem)
            if stream.replay is replay:
                if message is not None:
                    self._send_kept(stream, replay, kept, message)
                self._continue(session, stream, replay)

        self._event_store.load(session, stream, kept, loaded)

    def _continue(self, session: Session, stream: Stream, replay: Replay) -> None:
        if stream.replay is replay:
            replay.missed(replay.seen)
            self._replay(session, stream, replay)

    def _send_kept(self, stream: Stream, replay: Replay, kept: Kept, message: bytes) -> None:
        replay.receive_sent(kept)
        self._context.send(replay.channel, message, is_last=kept.is_last, event_id=stream.event_id(kept.ordinal))

    # --- What is kept -----------------------------------------------------------------------------------------------

    def _retain(self, session: Session, stream: Stream) -> None:
        del self._fed[stream]
        self._over[stream] = session
        self._event_store.retain(session, stream)
        self._expire(session, stream, "stream that is over")

    def _expire(self, session: Session, stream: Stream, why: str) -> None:
        at = self._context.now + self._context.limits.stream_ttl_s
        self._context.timers.set(("stream", (session.sid, stream.number)), at, why)

    def forget(self, session: Session, stream: Stream) -> None:
        """Drops a stream and its events: it cannot be resumed any more."""
        assert stream.number is not None
        session.remove_resumable(stream)
        self._over.pop(stream, None)
        self._fed.pop(stream, None)
        self._context.timers.cancel(("stream", (session.sid, stream.number)))
        self._kept_bytes += session.count_kept(-stream.held_bytes)
        self._event_store.forget_stream(session, stream)
        replay = stream.replay
        stream.forget()
        if replay is not None:
            self._context.close(replay.channel, reason="what was missed is not kept any more")

    def forget_all(self, session: Session) -> None:
        for stream in list(session.resumable.values()):
            self.forget(session, stream)

    def handle_over(self, session: Session, number: int) -> None:
        stream = session.resumable[number]
        if stream.is_listening:
            self._drop_events(session, stream)
        elif stream.replay is not None:
            self._expire(session, stream, "stream that is over")
        else:
            self.forget(session, stream)

    def _drop_events(self, session: Session, stream: Stream) -> None:
        """Drops the events of a GET stream that no client resumed. The stream stays, for a client that has seen them
        all."""
        while (kept := stream.after(0)) is not None:
            if kept.place is EventPlace.HELD:
                stream.drop(kept)
                self._kept_bytes += session.count_kept(-kept.size_bytes)
            else:
                self._event_store.drop(session, stream, kept)
        self._note_empty(stream)
        stream.fade()

    # --- Room -------------------------------------------------------------------------------------------------------

    def _make_room(self, session: Session, newest: Stream) -> None:
        limits = self._context.limits
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
        """Makes some room: at the cost of a stream that is over, of the newest event's own stream, or of another one.

        False if there is none of them.
        """
        if over is not None and self._store_one(self._over[over], over, newest):
            return True
        if newest.held_count > 1 and self._store_one(session, newest, newest):
            return True
        if other is not None and not other.is_over and self._store_one(self._fed[other], other, newest):
            return True
        if over is not None:
            if over in self._over:  # storing above may have forgotten it, which made too little room in the storage
                self.forget(self._over[over], over)
        elif newest.held_count > 1:
            self._drop_one(session, newest)
        elif other is not None:
            self._drop_one(self._fed[other], other)
        else:
            return False
        return True

    def _drop_one(self, session: Session, stream: Stream) -> None:
        # Dropping a stored event helps only if an event in memory can take its place there.
        victim = stream.next_victim(of_held=not self._event_store.is_free(stream.oldest_held()))
        if victim.place is EventPlace.HELD:
            stream.drop(victim)
            self._kept_bytes += session.count_kept(-victim.size_bytes)
            self._note_empty(stream)
        else:
            self._event_store.drop(session, stream, victim)

    def _store_one(self, session: Session, stream: Stream, newest: Stream) -> bool:
        """Moves the oldest event that a stream has in memory into the storage, at the cost of stored streams that are
        over.

        False if it does not fit.
        """
        kept = stream.oldest_held()
        if not self._event_store.is_free(kept) or stream.stored_count >= self._context.limits.events_stored_max:
            return False
        while not self._event_store.has_room(session, kept):
            if not self._forget_stored(session, stream, newest):
                return False
        while not self._event_store.has_room_at_all(kept):
            if not self._forget_stored(None, stream, newest):
                return False
        self._event_store.take(session, stream, lambda problem: self._note_lost(session, problem))
        self._kept_bytes += session.count_kept(-kept.size_bytes)
        self._note_empty(stream)
        return True

    def _forget_stored(self, session: Session | None, *spared: Stream) -> bool:
        """Drops the oldest stored stream that is over: of one session, or of any. False if there is none."""
        found = self._event_store.oldest_over(session, spared)
        if found is not None:
            self.forget(found[1], found[0])
        return found is not None

    def _note_empty(self, stream: Stream) -> None:
        if not stream.held_count:
            self._fed.pop(stream, None)
            self._over.pop(stream, None)

    def _note_lost(self, session: Session, problem: str) -> None:
        """Logs a lost event: the first few one by one, then at each power of two, since a full storage loses every
        event."""
        self._lost_count += 1
        if self._lost_count > LOST_NOTED and self._lost_count & (self._lost_count - 1):
            return
        text = f"an event kept for a client was lost: {problem}"
        if self._lost_count > LOST_NOTED:
            text += f" ({self._lost_count} events by now)"
        self._context.note("warning", text, session.server)
