"""The engine's downstream half: sessions, and what clients say in them, whatever it came on.

The rules of each transport are in `posts` and `pipes`; what clients are given is the `courier`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..base.effects import EventPipeOpening, Headers, PipeOpening, PostOpening
from ..base.errors import INVALID_REQUEST, OUTCOME_UNKNOWN, OVERLOADED, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.ids import ChannelId
from ..base.revisions import LATEST_MODERN, MODERN, features_of
from ..bridge.request_meta import Envelope
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.session import Affinities, Session
from ..state.session import Input as SessionInput
from ..state.session import State as SessionState
from ..state.stream import Stream
from .event_streams import Streams
from .responder import Courier
from .session_ids import lasting_sid


class Body(NamedTuple):
    """What a client said at once: a message, or a batch of them."""

    frames: list[Frame]
    faults: list[RemoteProtocolError]
    """Of what could not be read."""
    is_batch: bool


class Clients:
    """All sessions.

    Attributes:
        sessions: by the secret that their clients prove themselves with.
        forget: to be told of each session that is about to end.
        end_tasks: the same, for what runs in it though nobody waits.
        receives: whether files for the session of that public name are on their way in.
    """

    def __init__(self, desk: Desk, courier: Courier, streams: Streams) -> None:
        self.sessions: dict[str, Session] = {}
        self.forget: Callable[[Session], None]
        self.end_tasks: Callable[[Session], None]
        self.receives: Callable[[str], bool]
        self._by_sid: dict[str, Session] = {}
        self._desk = desk
        self._courier = courier
        self._streams = streams

    def by_sid(self, sid: str) -> Session | None:
        return self._by_sid.get(sid)

    def has_workspace(self, workspace: str) -> bool:
        """Whether a session has those folders. It looks at all of them."""
        return any(session.workspace == workspace for session in self.sessions.values())

    # --- Messages -----------------------------------------------------------------------------------------------

    def read(self, channel: ChannelId, body: bytes, *, is_pipe: bool = False) -> Body | None:
        """The messages of a body. None when it was refused, as no batch or one too long."""
        is_batch = envelope.is_batch(body)
        messages = self._split(channel, body, is_pipe=is_pipe) if is_batch else [body]
        if messages is None:
            return None
        frames: list[Frame] = []
        faults: list[RemoteProtocolError] = []
        for message in messages:
            try:
                frames.append(envelope.decode(message))
            except RemoteProtocolError as error:
                faults.append(error)
        return Body(frames, faults, is_batch)

    def _split(self, channel: ChannelId, body: bytes, *, is_pipe: bool) -> list[bytes] | None:
        try:
            messages = envelope.split_batch(body)
        except RemoteProtocolError as error:
            self._desk.send(channel, envelope.parse_failure(error), is_last=not is_pipe, status=error.http_status)
            return None
        limit = self._desk.limits.batch_max
        if not messages or len(messages) > limit:
            text = f"got a batch of {len(messages)} messages, expected 1 to {limit}"
            message = envelope.encode_error(None, INVALID_REQUEST, text)
            self._desk.send(channel, message, is_last=not is_pipe, status=400)
            return None
        return messages

    def receive_frame(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame, headers: Headers) -> None:
        """Take one message that came alone; see `receive_frames`."""
        exchange = self._receive_frame(session, reply, key, frame, headers)
        if exchange is not None:
            self._start(session, exchange)

    def receive_frames(
        self,
        session: Session,
        batch: Reply,
        frames: list[Frame],
        channel: ChannelId,
        first_ordinal: int,
        headers: Headers,
    ) -> None:
        """Take the messages of one body: all of them, before any request among them begins.

        Args:
            batch: what answers them together; on a pipe, each message that is no batch has a reply of its own.
            channel: where they came in; with `first_ordinal` it names the exchanges.
            headers: what came with them and goes on with each.
        """
        accepted: list[Exchange] = []
        for index, frame in enumerate(frames):
            reply = batch
            if not batch.ends_channel and batch.gathered is None:
                reply = Reply(batch.stream, ends_channel=False, can_stream=True)
            key = ExchangeKey(channel, first_ordinal + index)
            exchange = self._receive_frame(session, reply, key, frame, headers)
            if exchange is not None:
                accepted.append(exchange)
        for exchange in accepted:
            self._start(session, exchange)

    def _receive_frame(
        self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame, headers: Headers
    ) -> Exchange | None:
        """Take one message. A request becomes an exchange of its own, to be started when all of a body are taken."""
        if frame.method is not None and frame.id_raw is not None:
            if session.state is SessionState.INITIALIZED:
                self._confirm(session)  # the notification may be late or lost: a request counts as it
            id_key = envelope.id_key(frame.id_raw)
            assert id_key is not None
            return Exchange(
                key,
                reply,
                sid=session.sid,
                id_raw=frame.id_raw,
                id_key=id_key,
                method=frame.method,
                params=frame.params,
                token_raw=None,
                headers=headers,
            )
        if frame.method is not None:
            self._receive_notification(session, frame, headers)
        else:
            self._receive_reply(session, frame, headers)
        return None

    def _start(self, session: Session, exchange: Exchange) -> None:
        """An accepted request begins: refused here, answered here, or on its way up."""
        duplicate = session.pipe is not None and any(e.id_key == exchange.id_key for e in session.exchanges.values())
        is_full = session.in_flight >= self._desk.limits.exchanges_per_session_max
        session.exchanges[exchange.key] = exchange
        if exchange.method == "ping":
            self._courier.answer(session, exchange, envelope.encode_result(exchange.id_raw, b"{}"))
        elif exchange.method == "initialize":
            self._courier.fail(session, exchange, INVALID_REQUEST, "this session is initialized: open another one")
        elif self._desk.is_draining:
            self._courier.fail(session, exchange, OVERLOADED, "shutting down: no new requests")
        elif duplicate:
            self._courier.fail(
                session, exchange, INVALID_REQUEST, "got the id of a request that is still open, expected another"
            )
        elif is_full:
            limit = self._desk.limits.exchanges_per_session_max
            self._courier.fail(session, exchange, OVERLOADED, f"{limit} requests are open, the most a session may have")
        else:
            try:
                exchange.token_raw = envelope.progress_token(exchange.params)
            except RemoteProtocolError as error:
                self._courier.fail(session, exchange, error.rpc_code, error.message)
                return
            self._courier.up.request(session, exchange)

    def _receive_notification(self, session: Session, frame: Frame, headers: Headers) -> None:
        assert frame.method is not None
        if frame.method == "notifications/initialized":
            self._confirm(session)
        elif frame.method == "notifications/cancelled":
            self._receive_cancel(session, frame.params, headers)
        else:
            self._courier.up.notify(session, frame.method, frame.params, headers)

    def _receive_cancel(self, session: Session, params: bytes | None, headers: Headers) -> None:
        """2025-11-25 basic/utilities/cancellation: unknown, finished and malformed ones are ignored, initialize is
        never cancelled."""
        try:
            id_raw = envelope.member_of(params, "requestId")
        except RemoteProtocolError:
            return
        id_key = None if id_raw is None else envelope.id_key(id_raw)
        exchange = None if id_key is None else session.find_by_id(id_key)
        if exchange is not None and exchange is not session.opener:
            assert params is not None
            self._courier.cancel(session, exchange, params, headers)

    def _receive_reply(self, session: Session, frame: Frame, headers: Headers) -> None:
        """The client answers a request of the server. Unknown ids are ignored: it may have been withdrawn."""
        ask = self._courier.take_ask(session, frame.id_raw)
        if ask is not None:
            self._courier.up.reply(session, ask, frame, headers)

    # --- Sessions -----------------------------------------------------------------------------------------------

    def no_room(self) -> str | None:
        """Why no session can be opened now."""
        limit = self._desk.limits.sessions_max
        if self._desk.is_draining:
            return "shutting down: no new sessions"
        if len(self.sessions) >= limit:
            return f"{limit} sessions are open, the most allowed: end one, or try again later"
        return None

    def open_session(
        self,
        opening: PostOpening | PipeOpening | EventPipeOpening,
        channel: ChannelId,
        ordinal: int,
        frame: Frame,
        *,
        is_pipe: bool,
        headers: Headers,
    ) -> Session:
        """A client's `initialize` begins a session. `headers` came with it."""
        session = self._new_session(opening, pipe=channel if is_pipe else None)
        session.receive_headers(opening.headers)
        session.receive_headers(headers)
        session.sees_hidden = isinstance(opening, PipeOpening) and opening.sees_hidden
        session.is_own = isinstance(opening, PipeOpening) and opening.is_own
        stream = session.streams[0] if is_pipe else Stream(channel)
        reply = Reply(stream, ends_channel=not is_pipe, can_stream=False)
        self._begin(session, reply, ExchangeKey(channel, ordinal), frame, headers)
        return session

    def _lasting_sid(self, affinity: Affinities) -> str | None:
        """The public name of a session of ours. Where it is for all requests of a principal over HTTP it is the same
        for each of them, after a restart too, so that their files are theirs: a capability that is minted from whose it
        is and a key of ours, and that nobody can guess. Whoever comes on a pipe, or alone, gets one of its own."""
        plan = self._desk.plan
        if affinity.is_for_one or affinity.group or not self._desk.servers[affinity.server].has_files:
            return None
        sid = lasting_sid(plan.link_key, affinity)
        return None if sid in self._by_sid else sid

    def _new_session(
        self, opening: PostOpening | PipeOpening | EventPipeOpening, *, pipe: ChannelId | None, sid: str | None = None
    ) -> Session:
        session = Session(
            id=self._desk.mint(),
            sid=sid or self._desk.mint(),
            workspace=self._desk.mint(),
            server=opening.server,
            principal=opening.principal,
            pipe=pipe,
            base_url=opening.base_url,
        )
        self.sessions[session.id] = session
        self._by_sid[session.sid] = session
        return session

    def _begin(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame, headers: Headers) -> None:
        exchange = self._receive_frame(session, reply, key, frame, headers)
        assert exchange is not None
        session.opener = exchange
        session.exchanges[key] = exchange
        self._courier.up.begin(session, frame.params or b"{}")

    def open_stateless(
        self, opening: PostOpening | PipeOpening | EventPipeOpening, affinity: Affinities, leg: Envelope
    ) -> Session:
        """A session of ours, for requests that say all."""
        session = self._new_session(opening, pipe=None, sid=self._lasting_sid(affinity))
        session.affinity, session.is_stateless = affinity, True
        session.client = leg
        session.features = MODERN[LATEST_MODERN]
        session.receive_headers(opening.headers)
        session.sees_hidden = isinstance(opening, PipeOpening) and opening.sees_hidden
        session.is_own = isinstance(opening, PipeOpening) and opening.is_own
        session.step(SessionInput.ACCEPT)
        session.step(SessionInput.CONFIRM)
        return session

    def accept_session(self, session: Session, result: bytes, revision: str | None) -> None:
        """The upstream answered `initialize`: so is the client, and it is told its session id."""
        opener = session.opener
        assert opener is not None
        session.opener = None
        session.step(SessionInput.ACCEPT)
        session.features = features_of(revision)
        if session.pipe is None:
            opener.reply.session = session.id
        self._courier.answer(session, opener, envelope.encode_result(opener.id_raw, result))

    def refuse_session(self, session: Session, error: bytes) -> None:
        """The handshake failed: the client learns why, and there is no session."""
        opener = session.opener
        assert opener is not None
        session.opener = None
        self._courier.answer(session, opener, envelope.encode_error_raw(opener.id_raw, error))
        self.close_session(session, "the handshake failed", cut_off_code=UPSTREAM_UNAVAILABLE)

    def _confirm(self, session: Session) -> None:
        if session.may(SessionInput.CONFIRM):
            session.step(SessionInput.CONFIRM)
            self._courier.release_held(session)

    def close_session(self, session: Session, why: str, *, cut_off_code: int | None = None) -> None:
        """End it: every open request is answered, every stream ends, the upstream session is let go.

        Args:
            cut_off_code: its client had no part in that, and hears of each request whether it may have run: this code
                says that it did not.
        """
        if session.state is SessionState.CLOSED:
            return
        self.end_tasks(session)
        self.forget(session)
        for exchange in list(session.exchanges.values()):
            if cut_off_code is None:
                self._courier.fail(session, exchange, INVALID_REQUEST, why)
            elif exchange.is_begun:
                text = f"{why}: given up before the server answered; {exchange.method} may have run"
                self._courier.fail(session, exchange, OUTCOME_UNKNOWN, text, {"outcome": "unknown"})
            else:
                text = f"{why}: {exchange.method} did not run"
                self._courier.fail(session, exchange, cut_off_code, text, {"outcome": "not_executed"})
        session.step(SessionInput.CLOSE)
        for number in session.asks:
            self._desk.timers.cancel(("ask", (session.sid, number)))
        asks = list(session.asks.values())
        session.asks.clear()
        session.held.clear()
        if session.pipe is None:  # a pipe may see another session
            for stream in [*session.streams, *session.resumable.values()]:
                self._desk.close(stream.channel, reason=why)
        session.streams.clear()
        self._streams.forget_all(session)
        del self.sessions[session.id]
        del self._by_sid[session.sid]
        self._desk.timers.cancel(("idle", session.sid))
        self._courier.up.end(session, asks)

    def handle_idle(self, sid: str) -> None:
        session = self._by_sid[sid]
        if session.is_busy or self._courier.keeps(session) or self.receives(sid):
            self._courier.touch(session)
        else:
            self._desk.note("info", "session ended: idle", session.server)
            self.close_session(session, "session expired")

    def handle_ask(self, sid: str, number: int) -> None:
        session = self._by_sid.get(sid)
        if session is not None:
            self._courier.give_up(session, number)

    def handle_stream(self, sid: str, number: int) -> None:
        session = self._by_sid.get(sid)
        if session is not None:
            self._streams.handle_over(session, number)
