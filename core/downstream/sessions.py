"""The registry of sessions, and the dispatch of what clients send in them, on any transport.

The rules of each transport are in `streamable_http` and `pipes`. Responses and server messages are sent by `responder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ..base.budget import Budget, OwnerUse, Share
from ..base.errors import INVALID_REQUEST, OUTCOME_UNKNOWN, OVERLOADED, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.events import EventPipeOpening, Headers, PipeOpening, PostOpening
from ..base.ids import ChannelId
from ..base.revisions import LATEST_MODERN, MODERN, features_of
from ..bridge.request_meta import RequestMeta
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.ports import SessionRouter, StatelessReplies
from ..state.session import Affinities, ProfileLeg, Session, SessionInput, SessionState
from ..state.stream import Stream
from .event_streams import Streams
from .responder import Responder
from .session_ids import derived_sid

REFUSED_MAX: Final = 4096
"""Requests of a batch that is too long, on a pipe, which are answered one by one.

At it: the rest has one error without an id, and its sender waits for nothing else than its own timeout.
"""
NO_MEMORY: Final = "the requests that are open have too many bytes: wait, and try again"


class Body(NamedTuple):
    """The messages of one body: a single message, or a batch."""

    frames: list[Frame]
    faults: list[RemoteProtocolError]
    """An error for each message that could not be decoded."""
    is_batch: bool


class Sessions:
    """All sessions.

    Attributes:
        sessions: the sessions by `Session.id`, the secret of their clients.
    """

    def __init__(self, context: Context, responder: Responder, streams: Streams) -> None:
        self.sessions: dict[str, Session] = {}
        self._by_sid: dict[str, Session] = {}
        self._room = Budget(context.limits.sessions_max, context.limits.sessions_per_owner_max)
        self._uses: dict[str, OwnerUse] = {}
        self._context = context
        self._responder = responder
        self._streams = streams

    def by_sid(self, sid: str) -> Session | None:
        return self._by_sid.get(sid)

    def has_workspace(self, workspace: str) -> bool:
        """True if a session has that workspace. All sessions are searched."""
        return any(session.workspace == workspace for session in self.sessions.values())

    def while_open(self, handle: Callable[[Session, Any], None]) -> Callable[[str, Any], None]:
        """Returns a timer handler that calls `handle` with the session, and does nothing once that is over."""

        def handle_if_open(sid: str, key: Any) -> None:
            if (session := self._by_sid.get(sid)) is not None:
                handle(session, key)

        return handle_if_open

    # --- Messages -----------------------------------------------------------------------------------------------

    def read(self, channel: ChannelId, body: bytes, *, is_pipe: bool = False) -> Body | None:
        """Returns the messages of a body; None if it was refused, as an unreadable batch, or one that is empty or too
        long."""
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
                faults.append(error.without_frames())
        return Body(frames, faults, is_batch)

    def _split(self, channel: ChannelId, body: bytes, *, is_pipe: bool) -> list[bytes] | None:
        try:
            messages = envelope.split_batch(body)
        except RemoteProtocolError as error:
            self._context.send(channel, envelope.parse_failure(error), is_last=not is_pipe, status=error.http_status)
            return None
        limit = self._context.limits.batch_max
        if not messages or len(messages) > limit:
            text = f"got a batch of {len(messages)} messages, expected 1 to {limit}"
            if is_pipe:
                self._refuse_each(channel, messages, text)
            else:
                self._context.send(
                    channel, envelope.encode_error(None, INVALID_REQUEST, text), is_last=True, status=400
                )
            return None
        return messages

    def _refuse_each(self, channel: ChannelId, messages: list[bytes], text: str) -> None:
        frames: list[Frame] = []
        for message in messages[:REFUSED_MAX]:
            try:
                frames.append(envelope.decode(message))
            except RemoteProtocolError:
                continue
        self.refuse_batch(channel, frames, text, is_whole=0 < len(frames) == len(messages))

    def refuse_batch(self, channel: ChannelId, frames: list[Frame], text: str, *, is_whole: bool = True) -> None:
        """Answers each request of a batch on a pipe with an error: nothing else would end them.

        Args:
            is_whole: `frames` are all of the batch. Otherwise there is one error more, without an id.
        """
        ids = dict.fromkeys(frame.id_raw for frame in frames if frame.is_request)
        for id_raw in ids if is_whole and ids else [*ids, None]:
            self._context.send(channel, envelope.encode_error(id_raw, INVALID_REQUEST, text))

    def receive_frame(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame, headers: Headers) -> None:
        """Accepts one message that came alone; see `receive_frames`."""
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
        """Accepts the messages of one body: all of them, before any request among them is started.

        Args:
            batch: the reply to all of them; on a pipe, each message that is in no batch has a reply of its own.
            channel: the channel they came on; with `first_ordinal` it names the exchanges.
            headers: the headers that came with them and go to the server with each.
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
        """Accepts one message. A request becomes an exchange, which is started when all messages of the body are
        accepted."""
        if frame.method is not None and frame.id_raw is not None:
            if session.state is SessionState.INITIALIZED:
                self.confirm(session)  # `notifications/initialized` may be late or lost: a request counts as it
            id_key = envelope.id_key(frame.id_raw)
            assert id_key is not None
            exchange = Exchange(
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
            if self._responder.telemetry is not None:
                self._responder.telemetry.begin(session, exchange)
            return exchange
        if frame.method is not None:
            self._receive_notification(session, frame, headers)
        else:
            self._receive_reply(session, frame, headers)
        return None

    def _start(self, session: Session, exchange: Exchange) -> None:
        """Starts an accepted request: answers it here, or sends it up."""
        duplicate = session.pipe is not None and any(e.id_key == exchange.id_key for e in session.exchanges.values())
        is_full = session.in_flight >= self._context.limits.exchanges_per_session_max
        has_room = session.has_room_for(exchange)
        use = session.use
        fault = self.no_room_for_call(use) if use.calls >= self._context.limits.calls_per_owner_max else None
        session.add(exchange)  # also of a request that is refused: its response removes it
        if exchange.method == "ping":
            self._responder.answer(session, exchange, envelope.encode_result(exchange.id_raw, b"{}"))
        elif exchange.method == "initialize":
            self._responder.fail(session, exchange, INVALID_REQUEST, "this session is initialized: open another one")
        elif self._context.is_draining:
            self._responder.fail(session, exchange, OVERLOADED, "shutting down: no new requests")
        elif duplicate:
            self._responder.fail(
                session, exchange, INVALID_REQUEST, "got the id of a request that is still open, expected another"
            )
        elif is_full:
            limit = self._context.limits.exchanges_per_session_max
            self._responder.fail(
                session, exchange, OVERLOADED, f"{limit} requests are open, the most a session may have"
            )
        elif fault is not None:
            self._responder.fail(session, exchange, OVERLOADED, fault)
        elif not has_room:
            self._responder.fail(session, exchange, OVERLOADED, NO_MEMORY)
        else:
            try:
                exchange.read_token()
            except RemoteProtocolError as error:
                self._responder.fail(session, exchange, error.rpc_code, error.message)
                return
            session.router.request(session, exchange)

    def _receive_notification(self, session: Session, frame: Frame, headers: Headers) -> None:
        assert frame.method is not None
        if frame.method == "notifications/initialized":
            self.confirm(session)
        elif frame.method == "notifications/cancelled":
            self._receive_cancel(session, frame.params, headers)
        else:
            session.router.notify(session, frame.method, frame.params, headers)

    def _receive_cancel(self, session: Session, params: bytes | None, headers: Headers) -> None:
        """Cancels a request.

        2025-11-25 basic/utilities/cancellation: unknown, finished and malformed ones are ignored, `initialize` is never
        cancelled.
        """
        try:
            id_raw = envelope.member_of(params, "requestId")
        except RemoteProtocolError:
            return
        id_key = None if id_raw is None else envelope.id_key(id_raw)
        exchange = None if id_key is None else session.find_by_id(id_key)
        if exchange is not None and exchange is not session.opener:
            assert params is not None
            self._responder.cancel(session, exchange, params, headers)

    def _receive_reply(self, session: Session, frame: Frame, headers: Headers) -> None:
        """Accepts the response to a server request. Unknown ids are ignored: the server may have cancelled the
        request."""
        question = self._responder.take_question(session, frame.id_raw)
        if question is not None:
            session.router.reply(session, question, frame, headers)

    # --- Sessions -----------------------------------------------------------------------------------------------

    def no_room(self, owner: str) -> str | None:
        """Returns why no session of this owner can be opened now; None if one can."""
        limits = self._context.limits
        if self._context.is_draining:
            return "shutting down: no new sessions"
        if self._room.has_room(owner):
            return None
        if self._room.is_full_for(owner):
            most = limits.sessions_per_owner_max
            return f"{most} sessions of yours are open, the most that one client or address may have: end one first"
        return f"{limits.sessions_max} sessions are open, the most allowed: end one, or try again later"

    def open_session(
        self,
        opening: PostOpening | PipeOpening | EventPipeOpening,
        channel: ChannelId,
        ordinal: int,
        frame: Frame,
        *,
        is_pipe: bool,
        headers: Headers,
        router: SessionRouter,
    ) -> Session:
        """Opens a session for a client's `initialize`, which came with `headers`."""
        session = self._new_session(opening, router, pipe=channel if is_pipe else None)
        session.receive_headers(opening.headers)
        session.receive_headers(headers)
        stream = session.streams[0] if is_pipe else Stream(channel)
        reply = Reply(stream, ends_channel=not is_pipe, can_stream=False)
        self._begin(session, reply, ExchangeKey(channel, ordinal), frame, headers)
        return session

    def _lasting_sid(self, affinity: Affinities) -> str | None:
        """Returns a public name that lasts over restarts, for a session that the proxy opens; None if it gets a random
        one.

        A session for all requests of a principal over HTTP keeps its name, so that the principal keeps its files. The
        name is a capability that cannot be guessed: it is derived from the affinity and a key of the proxy. A session
        of a pipe, or of one request, gets a random name.
        """
        plan, server = self._context.plan, self._context.servers.get(affinity.server)
        if affinity.is_for_one or affinity.group or server is None or not server.has_files:
            return None
        sid = derived_sid(plan.link_key, affinity)
        return None if sid in self._by_sid else sid

    def _new_session(
        self,
        opening: PostOpening | PipeOpening | EventPipeOpening,
        router: SessionRouter,
        *,
        pipe: ChannelId | None,
        sid: str | None = None,
        replies: StatelessReplies | None = None,
    ) -> Session:
        owner = opening.owner
        session = Session(
            id=self._context.mint_tagged(),
            sid=sid or self._context.mint(),
            workspace=self._context.mint(),
            server=opening.server,
            principal=opening.principal,
            owner=owner,
            use=self._use_of(owner),
            room=Share(self._context.memory, owner, self._context.limits.session_memory_max_bytes),
            pipe=pipe,
            base_url=opening.base_url,
            router=router,
            replies=replies,
            sees_hidden=isinstance(opening, PipeOpening) and opening.sees_hidden,
            is_own=isinstance(opening, PipeOpening) and opening.is_own,
            is_brief=isinstance(opening, PipeOpening) and opening.is_brief,
        )
        self._add(session)
        return session

    def _use_of(self, owner: str) -> OwnerUse:
        """Returns the use of the owner of a new session, which counts it."""
        use = self._uses.get(owner)
        if use is None:
            use = OwnerUse(owner)
            if owner:
                self._uses[owner] = use
        use.count_sessions(1)
        return use

    def no_room_for_call(self, use: OwnerUse) -> str | None:
        """Returns why no request of an owner can be taken now; None if one can."""
        most = self._context.limits.calls_per_owner_max
        if not use.is_bounded or use.calls < most:
            return None
        return f"{most} requests of yours are open, the most that one client or address may have (calls_per_owner_max)"

    def no_room_for_stream(self, use: OwnerUse) -> str | None:
        """Returns why no stream of an owner can be opened now; None if one can."""
        most = self._context.limits.streams_per_owner_max
        if not use.is_bounded or use.streams < most:
            return None
        return f"{most} streams of yours are open, the most that one client or address may have (streams_per_owner_max)"

    def _begin(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame, headers: Headers) -> None:
        exchange = self._receive_frame(session, reply, key, frame, headers)
        assert exchange is not None
        session.begin(exchange)
        session.router.begin(session, frame.params or b"{}")

    def open_stateless(
        self,
        opening: PostOpening | PipeOpening | EventPipeOpening,
        affinity: Affinities,
        request: RequestMeta,
        *,
        router: SessionRouter,
        replies: StatelessReplies,
    ) -> Session:
        """Opens a session for requests of a client without sessions."""
        session = self._new_session(opening, router, pipe=None, sid=self._lasting_sid(affinity), replies=replies)
        session.receive_headers(opening.headers)
        session.serve_stateless(affinity, request, MODERN[LATEST_MODERN])
        return session

    def open_leg(
        self,
        front: Session,
        server: str,
        headers: Headers,
        *,
        router: SessionRouter,
        replies: StatelessReplies,
        tool_shown: Callable[[str], str],
    ) -> Session:
        """Opens a session with one server of a profile, for the client of a session with the profile. It counts as one
        of the same owner, for which there has to be room."""
        session = Session(
            id=self._context.mint(),
            sid=self._context.mint(),
            workspace=self._context.mint(),
            server=server,
            principal=front.principal,
            owner=front.owner,
            use=OwnerUse(""),  # what is done on it counts for the session with the profile
            room=Share(self._context.memory, front.owner, self._context.limits.session_memory_max_bytes),
            pipe=None,
            leg=ProfileLeg(front.sid, front.server, tool_shown),
            base_url=front.base_url,
            router=router,
            replies=replies,
        )
        session.receive_headers(headers)
        if front.affinity is not None:
            session.serve_stateless(front.affinity._replace(server=server), front.client, front.features)
        session.use.count_sessions(1)
        self._add(session)
        return session

    def begin_leg(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame, headers: Headers) -> None:
        """Begins the handshake of such a session."""
        self._begin(session, reply, key, frame, headers)

    def _add(self, session: Session) -> None:
        self.sessions[session.id] = session
        self._by_sid[session.sid] = session
        is_taken = self._room.take(session.owner)
        assert is_taken, "a session that was not asked for with no_room"

    def accept_session(self, session: Session, result: bytes, revision: str | None) -> None:
        """Answers the client's `initialize` with the server's result, and its session id."""
        opener = session.end_opening(features_of(revision))
        if session.pipe is None:
            opener.reply.name_session(session.id)
        if self._responder.telemetry is not None:
            self._responder.telemetry.begin_session(session)
        self._responder.answer(session, opener, envelope.encode_result(opener.id_raw, result))

    def refuse_session(self, session: Session, error: bytes) -> None:
        """Answers the client's `initialize` with an error, and closes the session."""
        opener = session.end_opening(None)
        self._responder.answer(session, opener, envelope.encode_error_raw(opener.id_raw, error))
        self.close_session(session, "the handshake failed", cut_off_code=UPSTREAM_UNAVAILABLE)

    def confirm(self, session: Session) -> None:
        """Handles that the client of a session is ready for messages of the server."""
        if session.may(SessionInput.CONFIRM):
            session.step(SessionInput.CONFIRM)
            self._responder.release_held(session)

    def close_session(self, session: Session, why: str, *, cut_off_code: int | None = None) -> None:
        """Ends a session: answers every open request, ends every stream, and ends its link.

        Args:
            cut_off_code: the error code for requests that did not run, if the client did not end the session. Each
                request is then answered with whether it may have run; None: all get the same error.
        """
        if session.state is SessionState.CLOSED:
            return
        session.router.close_session(session)
        if session.replies is not None:
            session.replies.close_session(session)
        for exchange in list(session.exchanges.values()):
            if cut_off_code is None:
                self._responder.fail(session, exchange, INVALID_REQUEST, why)
            elif exchange.is_begun:
                text = f"{why}: given up before the server answered; {exchange.method} may have run"
                self._responder.fail(session, exchange, OUTCOME_UNKNOWN, text, {"outcome": "unknown"})
            else:
                text = f"{why}: {exchange.method} did not run"
                self._responder.fail(session, exchange, cut_off_code, text, {"outcome": "not_executed"})
        if self._responder.telemetry is not None:
            self._responder.telemetry.end_session(session, why)
        streams = [*session.streams, *session.resumable.values()]
        questions = session.close()
        for question in questions:
            self._context.timers.cancel(("ask", (session.sid, question.number)))
        if session.pipe is None:  # a pipe stays open: its client may begin another session on it
            for stream in streams:
                self._context.close(stream.channel, reason=why)
        self._streams.forget_all(session)
        del self.sessions[session.id]
        del self._by_sid[session.sid]
        self._room.give_back(session.owner)
        session.use.count_sessions(-1)
        if not session.use.sessions and self._uses.get(session.owner) is session.use:
            del self._uses[session.owner]
        self._context.timers.cancel(("idle", session.sid))
        session.router.end(session, questions)

    def handle_idle(self, sid: str) -> None:
        session = self._by_sid[sid]
        if session.is_busy or self._responder.keeps(session) or session.router.is_used(session):
            self._responder.touch(session)
        else:
            if self._responder.telemetry is None:
                self._context.note("info", "session ended: idle", session.server)
            self.close_session(session, "session expired")

    def handle_question_timeout(self, sid: str, number: int) -> None:
        session = self._by_sid.get(sid)
        if session is not None:
            self._responder.give_up(session, number)

    def handle_stream(self, sid: str, number: int) -> None:
        session = self._by_sid.get(sid)
        if session is not None:
            self._streams.handle_over(session, number)
