"""What clients are given: the one answer to each request, and the server's own messages on the right stream.

A message of the server that has no stream to travel on waits in the session, within bounds, until there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ..base.effects import Headers
from ..base.errors import CANCELLED, INTERNAL_ERROR, TIMED_OUT
from ..base.ids import ChannelId
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Desk
from ..state.exchange import NO_WISH, Exchange, Reply
from ..state.exchange import Input as ExchangeInput
from ..state.session import Ask, Held, Session
from ..state.session import State as SessionState
from ..state.stream import Stream
from .event_streams import Streams

LEVEL_TRIGGERED = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Notifications that say "look again": one that waits makes the next equal one superfluous, and none may be lost."""


class Upward(Protocol):
    """Where the downstream half sends what is not for itself."""

    def begin(self, session: Session, initialize: bytes) -> None:
        """A new session wants an upstream; `initialize` is the JSON of its params."""

    def has_room(self, session: Session) -> bool:
        """Whether more can be sent to the upstream of a client that cannot be paused."""

    def begin_stateless(self, session: Session) -> None:
        """The same, for a client that knows nothing of its session; there is no hurry."""

    def request(self, session: Session, exchange: Exchange) -> None: ...

    def expect_reply(self, session: Session, exchange: Exchange) -> None:
        """The server is waited for again, after it had waited for the client."""

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        """Nobody waits for it any more: the upstream, if it is at work, is told so. `params` are those of the client's
        notification, an object with each member once."""

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None: ...

    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None:
        """`headers`, here and above: those of the client's request that said it, or the session's latest."""

    def end(self, session: Session, asks: list[Ask]) -> None:
        """The session is over; `asks` are the server's requests that it has not answered."""


class StatelessReplies(Protocol):
    """How clients without sessions are given answers, questions and notifications."""

    def holds(self, session: Session) -> bool: ...

    def keeps(self, session: Session, exchange: Exchange, message: bytes) -> bool: ...

    def shown(self, session: Session, exchange: Exchange, message: bytes) -> bytes: ...

    def deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None: ...

    def tell_progress(self, session: Session, exchange: Exchange, message: bytes) -> None: ...

    def ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None: ...

    def unask(self, session: Session, number: int) -> None: ...

    def cancel(self, session: Session, exchange: Exchange) -> None: ...


class Tasks(Protocol):
    """Calls that no request of a client waits for any more."""

    def receive_answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """A call whose client wants it to be a task is over before it became one."""

    def receive_settled(self, session: Session, exchange: Exchange, message: bytes | None) -> None: ...

    def receive_progress(self, session: Session, exchange: Exchange, message: bytes) -> None: ...

    def release(self, session: Session, exchange: Exchange) -> None:
        """A request is over."""


class TaskQuestions(Protocol):
    """What servers ask in the course of such calls."""

    def receive_settled_ask(self, exchange: Exchange, number: int) -> None: ...

    def ask(self, session: Session, ask: Ask, params: bytes | None, exchange: Exchange) -> None: ...

    def withdraw(self, session: Session, number: int) -> bool: ...


class Courier:
    """The way down to clients."""

    def __init__(self, desk: Desk, streams: Streams, legwork: StatelessReplies) -> None:
        self.up: Upward
        self.over: Callable[[Session], None]
        self.tasks: Tasks
        self.task_questions: TaskQuestions
        self._desk = desk
        self._streams = streams
        self._legwork = legwork

    def touch(self, session: Session) -> None:
        """The session is in use: its idle time starts anew."""
        at = self._desk.now + self._desk.limits.session_idle_ttl_s
        self._desk.timers.set(("idle", session.sid), at, "session idle")

    def keeps(self, session: Session) -> bool:
        """Whether something is kept here that its client may come for."""
        return session.is_stateless and self._legwork.holds(session)

    # --- Answers ------------------------------------------------------------------------------------------------

    def answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Give an exchange its one answer."""
        if exchange.wish.is_asked and exchange.task is None:
            self.tasks.receive_answer(session, exchange, message)
        exchange.step(ExchangeInput.ANSWER)
        self._settle(session, exchange, message)

    def fail(self, session: Session, exchange: Exchange, code: int, text: str, data: object = None) -> None:
        """Answer with an error of our own, and let the upstream know if it is at work."""
        self.up.withdraw(session, exchange, None, session.headers)
        exchange.is_native = True  # it says what it means in either era
        self.answer(session, exchange, envelope.encode_error(exchange.id_raw, code, text, data))

    def cancel(self, session: Session, exchange: Exchange, params: bytes, headers: Headers) -> None:
        """The client cancelled: nobody answers any more ("SHOULD NOT send a response", 2025-11-25 cancellation).

        A stream that has named an event id is the exception: if it just ended, its client would come back for the rest.
        """
        if session.is_stateless:
            self._legwork.cancel(session, exchange)
        self.up.withdraw(session, exchange, params, headers)
        exchange.step(ExchangeInput.CANCEL)
        message = None
        if exchange.reply.stream.number is not None and exchange.reply.ends_channel:
            message = envelope.encode_error(exchange.id_raw, CANCELLED, "the request was cancelled")
        self._settle(session, exchange, message)

    def time_out(self, session: Session, exchange: Exchange) -> None:
        limit = self._desk.servers[session.server].reply_timeout_s or self._desk.limits.reply_timeout_s
        text = f"the server said nothing for {limit:g} s: given up; the request may have run"
        self.fail(session, exchange, TIMED_OUT, text, {"outcome": "unknown"})

    def answer_plainly(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """`answer`, of a request that is nothing but a request, with what its client is to read."""
        exchange.step(ExchangeInput.ANSWER)
        del session.exchanges[exchange.key]
        self.touch(session)
        self.close(session, exchange.reply, message)

    def _settle(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        del session.exchanges[exchange.key]
        self.touch(session)
        if exchange.task is not None:
            self._settle_task(session, exchange, message)
            return
        if exchange.wish is not NO_WISH or exchange.awaits is not None:
            self.tasks.release(session, exchange)
        if session.affinity is None:
            self.close(session, exchange.reply, message)
            return
        if message is None or not self._legwork.keeps(session, exchange, message):
            shown = None if message is None else self._legwork.shown(session, exchange, message)
            self.close_reply(session, exchange, shown)
        self.over(session)

    def _settle_task(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        if not session.is_stateless:
            self.tasks.receive_settled(session, exchange, message)
            return
        shown = None if message is None else self._legwork.shown(session, exchange, message)
        self.tasks.receive_settled(session, exchange, shown)
        self.over(session)

    def can_pass(self, exchange: Exchange) -> bool:
        """Whether its answer may be given as bytes that nobody looks at: it is a reply of its own, of HTTP, which has
        not become a stream that can be resumed; and the request is nothing but a request."""
        reply = exchange.reply
        return (
            reply.ends_channel
            and reply.remaining == 1
            and reply.gathered is None
            and reply.status == 200
            and reply.session is None
            and reply.stream.number is None
            and exchange.task is None
            and exchange.wish is NO_WISH
            and exchange.awaits is None
            and self._desk.is_open(reply.stream.channel)
        )

    def pass_answer(
        self, session: Session, exchange: Exchange, pieces: tuple[bytes, ...], size_bytes: int | None = None
    ) -> ChannelId:
        """Give an exchange that `can_pass` its one answer.

        Args:
            pieces: of a message but for its envelope: from where the result begins, to the last brace.
            size_bytes: of all that follows the envelope, if these are not all of it; None: they are.

        Returns:
            The channel, for what is to follow.
        """
        reply = exchange.reply
        channel = reply.stream.channel
        assert channel is not None
        exchange.step(ExchangeInput.ANSWER)
        del session.exchanges[exchange.key]
        self.touch(session)
        reply.remaining -= 1
        self._streams.settle(reply)
        beginning = envelope.begin_result(exchange.id_raw)
        rest_bytes = sum(map(len, pieces)) if size_bytes is None else size_bytes
        self._desk.pass_on(channel, (beginning, *pieces), len(beginning) + rest_bytes)
        return channel

    def answer_at_once(self, reply: Reply, message: bytes) -> None:
        """Answer a request that is no exchange."""
        assert reply.stream.channel is not None
        self._desk.send(reply.stream.channel, message, is_last=reply.ends_channel, status=reply.status)

    def close_reply(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """The request has its answer, or is to have none."""
        self.close(session, exchange.reply, message)

    def close(self, session: Session, reply: Reply, message: bytes | None) -> None:
        """One of those that a reply is for has its answer, or is to have none."""
        reply.remaining -= 1
        assert reply.remaining >= 0
        is_last = reply.remaining == 0
        if reply.gathered is not None:
            if message is not None:
                reply.gathered.append(message)
            if not is_last:
                return
            message = b"[" + b",".join(reply.gathered) + b"]" if reply.gathered else None
        ends = is_last and reply.ends_channel
        if ends:
            self._streams.settle(reply)
        if message is not None:
            self._streams.put(
                session,
                reply.stream,
                message,
                is_last=ends,
                session_id=reply.session,
                status=reply.status,
                challenge=reply.challenge,
            )
        elif ends:
            self._desk.close(reply.stream.channel, status=202)

    # --- Messages of the server ---------------------------------------------------------------------------------

    def deliver(
        self, session: Session, method: str, message: bytes, related: Exchange | None, *, about: str = ""
    ) -> None:
        """Send the client a notification of the server, on the stream it belongs to, or keep it until there is one.

        `about` names what it tells the state of: an earlier one of that, which is still kept, is outdated.
        """
        if about:
            session.held = type(session.held)(held for held in session.held if held.about != about)
        if session.is_stateless:
            self._legwork.deliver(session, method, message, related)
            return
        stream = self._stream_for(session, method, related)
        if stream is not None:
            self._put_notification(session, stream, method, message)
        else:
            self._hold(session, Held(message, method, None, about))

    def tell_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Send progress of a request, on that request's own stream or not at all; of a task, wherever it is heard."""
        if exchange.task is not None:
            self.tasks.receive_progress(session, exchange, message)
        elif session.is_stateless:
            self._legwork.tell_progress(session, exchange, message)
        elif exchange.reply.can_stream:
            self._streams.put(session, exchange.reply.stream, message, is_lossy=True)

    def tell_all_progress(self, session: Session, exchange: Exchange, messages: Sequence[bytes]) -> None:
        """`tell_progress`, of what came at once."""
        reply = exchange.reply
        if not reply.ends_channel or exchange.task is not None or exchange.park is not None:
            for message in messages:
                self.tell_progress(session, exchange, message)
        elif reply.can_stream:
            self._streams.put_lossy(session, reply.stream, messages)

    def prime(self, session: Session, exchange: Exchange) -> None:
        """The server's own stream for this request can be resumed: so can the client's."""
        if exchange.reply.can_stream:
            self._streams.prime(session, exchange.reply.stream)

    def release(self, session: Session, exchange: Exchange) -> None:
        """The server has ended its stream for this request to be polled: the client may do the same with us."""
        if exchange.reply.can_stream:
            self._streams.release(session, exchange.reply.stream)

    def _put_notification(self, session: Session, stream: Stream, method: str, message: bytes) -> None:
        self._streams.put(session, stream, message, is_lossy=method not in LEVEL_TRIGGERED)

    def ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None:
        """Ask the client what the server wants to know, under an id of ours."""
        if related is not None and related.task is not None:
            self.task_questions.ask(session, ask, params, related)
            return
        if session.is_stateless:
            self._legwork.ask(session, ask, params, related)
            return
        number = session.record_ask(ask)
        id_raw = b"%d" % number
        if ask.token_raw is not None and params is not None:
            params = envelope.replace_progress_token(params, id_raw)
        message = envelope.encode_request(id_raw, ask.method, params)
        stream = self._stream_for(session, ask.method, related)
        if stream is not None:
            self._put_ask(session, number, stream, message)
        else:
            self._hold(session, Held(message, ask.method, number))

    def put_question(self, session: Session, number: int, message: bytes, related: Exchange | None) -> None:
        """Ask the client, or ask it again, what is known under a number already.

        Where it was asked may be gone for good, and what it answers is taken all the same: a question that is held may
        have been asked as well.
        """
        self._unhold(session, number)
        stream = self._stream_for(session, session.asks[number].method, related)
        if stream is not None:
            self._put_ask(session, number, stream, message)
        else:
            self._hold(session, Held(message, session.asks[number].method, number))

    def _put_ask(self, session: Session, number: int, stream: Stream, message: bytes) -> None:
        ask, is_there = session.asks[number], self._desk.is_open(stream.channel)
        session.asks[number] = ask._replace(stream=stream, is_shown=ask.is_shown or is_there)
        if is_there:
            self.expect_answer(session, number)
        else:
            self._expect_stream(session, number)
        self._streams.put(session, stream, message)
        session.asks[number] = session.asks[number]._replace(ordinal=stream.last_ordinal)

    def expect_answer(self, session: Session, number: int) -> None:
        """The client's time to answer begins anew."""
        at = self._desk.now + self._desk.limits.ask_timeout_s
        self._desk.timers.set(("ask", (session.sid, number)), at, "client's answer")

    def _expect_stream(self, session: Session, number: int) -> None:
        """The client cannot be asked before it has a stream open: that must be soon."""
        at = self._desk.now + self._desk.limits.held_timeout_s
        self._desk.timers.set(("ask", (session.sid, number)), at, "question to a client without a stream")

    def receive_resumed(self, session: Session, stream: Stream, seen: int) -> None:
        """The stream is connected again after its event `seen`, and what was asked since is said again; but for what
        had to be dropped in the meantime, which the client will never hear of."""
        for number, ask in list(session.asks.items()):
            if ask.stream is not stream:
                continue
            if ask.ordinal > seen and not stream.keeps(ask.ordinal):
                self._drop_ask(session, number)
                self._refuse_ask(
                    session, ask, INTERNAL_ERROR, "the question was lost: the client was away for too long"
                )
            else:
                session.asks[number] = ask._replace(is_shown=True)
                self.expect_answer(session, number)

    def take_ask(self, session: Session, id_raw: bytes | None) -> Ask | None:
        """The question that a client's answer is for. None if there is none such, or the client was not asked yet."""
        number = None if id_raw is None else envelope.number_of(id_raw)
        ask = None if number is None else session.asks.get(number)
        if number is None or ask is None or ask.stream is None:
            return None
        return self._drop_ask(session, number)

    def _drop_ask(self, session: Session, number: int) -> Ask | None:
        """It is settled, in whatever way."""
        ask = session.asks.pop(number, None)
        self._desk.timers.cancel(("ask", (session.sid, number)))
        self._unhold(session, number)
        if ask is not None and ask.of_task is not None:
            self.task_questions.receive_settled_ask(ask.of_task, number)
        return ask

    def _unhold(self, session: Session, number: int) -> None:
        """The question is not waiting for a stream any more."""
        if session.held:
            session.held = [held for held in session.held if held.ask != number]

    def forget_ask(self, session: Session, number: int) -> None:
        """Nobody waits for the client's answer any more, nor is told so."""
        self._drop_ask(session, number)

    def unask(self, session: Session, number: int, params: bytes | None) -> None:
        """The server withdrew its request, or is gone; or the client takes too long. `params` are those of the server's
        notification, an object with each member once.

        A client that was not there for the question hears of it only where that is kept. 2025-11-25 cancellation,
        "Behavior Requirements": such notifications reference only requests that "were previously issued".
        """
        if session.is_stateless:
            if not self.task_questions.withdraw(session, number):
                self._legwork.unask(session, number)
            return
        ask = self._drop_ask(session, number)
        if ask is None or ask.stream is None:
            return
        params = set_member(params or b"{}", "requestId", b"%d" % number)
        message = envelope.encode_notification("notifications/cancelled", params)
        if not self._streams.put(session, ask.stream, message) and ask.is_shown:
            self.deliver(session, "notifications/cancelled", message, None)

    def give_up(self, session: Session, number: int) -> None:
        """A question that was not answered in time, or that nobody could be asked, is refused."""
        ask = session.asks.get(number)
        if ask is None:
            return
        was_asked = ask.stream is not None and self._desk.is_open(ask.stream.channel)
        if was_asked:
            text = f"the client did not answer within {self._desk.limits.ask_timeout_s:g} s"
        else:
            text = "the client has no event stream open on which it could be asked"
        self.unask(session, number, msgspec.json.encode({"reason": text}))
        self._refuse_ask(session, ask, TIMED_OUT if was_asked else INTERNAL_ERROR, text)

    def _refuse_ask(self, session: Session, ask: Ask, code: int, text: str) -> None:
        error = msgspec.json.encode({"code": code, "message": text})
        self.up.reply(session, ask, Frame(error=error), session.headers)

    def _stream_for(self, session: Session, method: str, related: Exchange | None) -> Stream | None:
        """Where the client listens. 2025-11-25 basic/transports: messages on a POST's stream "SHOULD relate to the
        originating client request", the GET stream is for the rest; and each message travels on one stream only."""
        if session.state is not SessionState.READY:
            return None
        if session.pipe is not None:
            return session.streams[0]
        if method in LEVEL_TRIGGERED:
            return self._listening(session)
        related = related or session.only_call()
        if related is not None and related.reply.can_stream and self._is_heard(related.reply.stream):
            return related.reply.stream
        stream = self._listening(session)
        if stream is not None:
            return stream
        latest = session.latest_call()
        return latest.reply.stream if latest is not None and self._is_heard(latest.reply.stream) else None

    def _is_heard(self, stream: Stream) -> bool:
        """Whether the client listens there, or will again."""
        return self._desk.is_open(stream.channel) or stream.number is not None

    def _listening(self, session: Session) -> Stream | None:
        """The newest GET stream: of two, the older one is more likely to be dead."""
        return next((stream for stream in reversed(session.streams) if self._desk.is_open(stream.channel)), None)

    def _hold(self, session: Session, held: Held) -> None:
        if held.method in LEVEL_TRIGGERED and any(other.message == held.message for other in session.held):
            return
        session.held.append(held)
        if held.ask is not None:
            self._expect_stream(session, held.ask)
        while self._holds_too_much(session):
            self._drop_held(session)

    def _holds_too_much(self, session: Session) -> bool:
        count, size_bytes = len(session.held), sum(len(held.message) for held in session.held)
        limits = self._desk.limits
        return count > limits.held_per_session_max or (count > 1 and size_bytes > limits.held_per_session_max_bytes)

    def _drop_held(self, session: Session) -> None:
        """Make room: the oldest message that is not level-triggered goes, be it the newest of all; a question is
        refused then."""
        victim = next((held for held in session.held if held.method not in LEVEL_TRIGGERED), session.held[0])
        self._desk.note("warning", f"client has no stream open: {victim.method} dropped", session.server)
        if victim.ask is not None:
            self.give_up(session, victim.ask)
        else:
            session.held.remove(victim)

    def release_held(self, session: Session) -> None:
        waiting, session.held = session.held, []
        for held in waiting:
            stream = self._stream_for(session, held.method, None)
            if stream is None:
                session.held.append(held)
            elif held.ask is not None:
                self._put_ask(session, held.ask, stream, held.message)
            else:
                self._put_notification(session, stream, held.method, held.message)
