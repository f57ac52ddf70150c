"""The engine's downstream half: what clients open and say.

Here live the session rules of Streamable HTTP (2025-03-26, 2025-06-18 and 2025-11-25, basic/transports) and of pipes,
and the scope of each reply. What clients are given is the `courier`'s.
"""

from __future__ import annotations

import msgspec

from . import jsonrpc
from .courier import Courier
from .desk import Desk, Role
from .effects import Cause, DeleteOpening, End, GetOpening, PipeOpening, PostOpening
from .eras import features_of, is_known_legacy
from .errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED, LocalProtocolError, RemoteProtocolError
from .exchange import Exchange, ExchangeKey, Reply
from .ids import ChannelId
from .jsonrpc import Frame
from .roles import PipeRole, PostRole, RefusedRole, StreamRole
from .session import Input as SessionInput
from .session import Session
from .session import State as SessionState


class Clients:
    """The downstream half of the engine."""

    def __init__(self, desk: Desk, courier: Courier) -> None:
        self.sessions: dict[str, Session] = {}
        self._by_sid: dict[str, Session] = {}
        self._desk = desk
        self._courier = courier

    def by_sid(self, sid: str) -> Session | None:
        return self._by_sid.get(sid)

    # --- Channels open and close --------------------------------------------------------------------------------

    def open_post(self, channel: ChannelId, opening: PostOpening) -> None:
        self._desk.register(channel, PostRole(opening))

    def open_pipe(self, channel: ChannelId, opening: PipeOpening) -> None:
        self._desk.register(channel, PipeRole(opening))

    def open_stream(self, channel: ChannelId, opening: GetOpening) -> None:
        """GET: a stream of the session's own. Refused with 400 or 404; otherwise nothing is ordered, and it is open.

        A client "MAY remain connected to multiple SSE streams" (2025-03-26 basic/transports, "Multiple Connections");
        and one that reconnects often has a dead stream that nobody has noticed yet.
        """
        session = self._session_for(channel, opening)
        if session is None:
            return
        self._desk.register(channel, StreamRole(session))
        session.streams.append(channel)
        if len(session.streams) > self._desk.limits.streams_per_session_max:
            self._desk.close(session.streams.pop(0), reason="this session has opened many event streams since")
        self._courier.release_held(session)

    def open_delete(self, channel: ChannelId, opening: DeleteOpening) -> None:
        session = self._session_for(channel, opening)
        if session is None:
            return
        self._desk.register(channel, RefusedRole())
        self.close_session(session, "session terminated")
        self._desk.close(channel, status=204)

    def receive_close(self, role: Role, channel: ChannelId, cause: Cause) -> None:
        """A client hung up. On HTTP that cancels nothing (2025-03-26 basic/transports, "Sending Messages": a
        disconnection "SHOULD NOT be interpreted as the client cancelling its request"), except a handshake: nobody
        knows the id of that session. A pipe was the session."""
        if isinstance(role, StreamRole):
            if channel in role.session.streams:
                role.session.streams.remove(channel)
                self._courier.touch(role.session)
        elif isinstance(role, PipeRole) and role.session is not None:
            self.close_session(role.session, "client hung up")
        elif isinstance(role, PostRole) and role.session is not None and cause.end is not End.DONE:
            if role.session.state in (SessionState.OPENING, SessionState.INITIALIZED):
                self.close_session(role.session, "client hung up before it was told its session")

    # --- Messages -----------------------------------------------------------------------------------------------

    def receive_post(self, role: PostRole, channel: ChannelId, body: bytes) -> None:
        if role.has_body:
            raise LocalProtocolError(f"channel {channel} is a POST, which has one body, and got a second")
        role.has_body = True
        opening = role.opening
        messages = self._messages_of(channel, body)
        if messages is None:
            return
        is_batch = jsonrpc.is_batch(body)
        frames: list[Frame] = []
        for message in messages:
            try:
                frames.append(jsonrpc.decode(message))
            except RemoteProtocolError as error:
                self._desk.send(channel, jsonrpc.parse_failure(error), is_last=True, status=error.http_status)
                return
        if any(frame.method == "initialize" and frame.is_request for frame in frames):
            self._open_session(role, channel, frames[0], is_batch=is_batch)
            return
        session = self._find(channel, opening.session, opening)
        if session is None:
            return
        if not self._check_revision(channel, session, opening.revision):
            return
        if is_batch and not self._check_batch(channel, session, frames):
            return
        if any(_is_bound_up(frame) for frame in frames) and not self._courier.up.has_room(session):
            id_raw = frames[0].id_raw if len(frames) == 1 and frames[0].is_request else None
            text = "the server does not take what is sent to it: wait, and try again"
            self._refuse(channel, 503, OVERLOADED, text, id_raw)
            return
        self._courier.touch(session)
        reply = Reply(channel, ends_channel=True, can_stream=opening.accepts_events)
        if is_batch:
            reply.gathered = []
        self._accept_all(session, reply, frames, first_ordinal=0)
        if not any(frame.is_request for frame in frames):
            self._desk.close(channel, status=202)

    def receive_pipe(self, role: PipeRole, channel: ChannelId, message: bytes) -> None:
        """One line of a pipe."""
        messages = self._messages_of(channel, message, is_pipe=True)
        if messages is None:
            return
        is_batch = jsonrpc.is_batch(message)
        frames: list[Frame] = []
        for one in messages:
            try:
                frames.append(jsonrpc.decode(one))
            except RemoteProtocolError as error:
                self._desk.note("warning", f"client sent what is no message: {error.message}", role.opening.server)
                self._receive_garbage(role, channel, error)
        if not frames:
            return
        session = role.session
        if session is None or session.state is SessionState.CLOSED:
            if is_batch:
                text = "got a batch before initialize, expected initialize first and alone"
                self._desk.send(channel, jsonrpc.encode_error(None, INVALID_REQUEST, text))
            else:
                self._open_pipe_session(role, channel, frames[0])
            return
        if is_batch and not session.features.batching:
            text = f"got a batch, which revision {session.features.revision} does not have: expected single messages"
            self._desk.send(channel, jsonrpc.encode_error(None, INVALID_REQUEST, text))
            return
        reply = Reply(channel, ends_channel=False, can_stream=True)
        if is_batch:
            reply.gathered = []
        self._accept_all(session, reply, frames, first_ordinal=role.last_ordinal + 1)
        role.last_ordinal += len(frames)

    def _receive_garbage(self, role: PipeRole, channel: ChannelId, error: RemoteProtocolError) -> None:
        """What asks, or may ask, is answered; of an answer, only whoever asked for it is told."""
        if error.shape != "reply":
            self._desk.send(channel, jsonrpc.parse_failure(error))
            return
        session = role.session
        ask = None if session is None else self._courier.take_ask(session, error.id_raw)
        if session is not None and ask is not None:
            text = f"the client's answer could not be read: {error.message}"
            message = msgspec.json.encode({"code": INTERNAL_ERROR, "message": text})
            self._courier.up.reply(session, ask, Frame(error=message))

    def _accept_all(self, session: Session, batch: Reply, frames: list[Frame], *, first_ordinal: int) -> None:
        accepted: list[Exchange] = []
        for index, frame in enumerate(frames):
            reply = batch
            if not batch.ends_channel and batch.gathered is None:
                reply = Reply(batch.channel, ends_channel=False, can_stream=True)
            exchange = self._receive_frame(session, reply, ExchangeKey(batch.channel, first_ordinal + index), frame)
            if exchange is not None:
                accepted.append(exchange)
        for exchange in accepted:
            self._start(session, exchange)

    def _receive_frame(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame) -> Exchange | None:
        """Take one message. A request becomes an exchange of its own, to be started when all of a body are taken."""
        if frame.is_request:
            assert frame.id_raw is not None
            assert frame.method is not None
            if session.state is SessionState.INITIALIZED:
                self._confirm(session)  # the notification may be late or lost: a request counts as it
            id_key = jsonrpc.id_key(frame.id_raw)
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
            )
        if frame.is_notification:
            self._receive_notification(session, frame)
        else:
            self._receive_reply(session, frame)
        return None

    def _start(self, session: Session, exchange: Exchange) -> None:
        """An accepted request begins: refused here, answered here, or on its way up."""
        duplicate = session.pipe is not None and any(e.id_key == exchange.id_key for e in session.exchanges.values())
        is_full = len(session.exchanges) >= self._desk.limits.exchanges_per_session_max
        session.exchanges[exchange.key] = exchange
        if exchange.method == "ping":
            self._courier.answer(session, exchange, jsonrpc.encode_result(exchange.id_raw, b"{}"))
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
                exchange.token_raw = jsonrpc.progress_token(exchange.params)
            except RemoteProtocolError as error:
                self._courier.fail(session, exchange, error.rpc_code, error.message)
                return
            self._courier.up.request(session, exchange)

    def _receive_notification(self, session: Session, frame: Frame) -> None:
        assert frame.method is not None
        if frame.method == "notifications/initialized":
            self._confirm(session)
        elif frame.method == "notifications/cancelled":
            self._receive_cancel(session, frame.params)
        else:
            self._courier.up.notify(session, frame.method, frame.params)

    def _receive_cancel(self, session: Session, params: bytes | None) -> None:
        """2025-11-25 basic/utilities/cancellation: unknown, finished and malformed ones are ignored, initialize is
        never cancelled."""
        try:
            id_raw = jsonrpc.member_of(params, "requestId")
            reason = jsonrpc.member_of(params, "reason")
        except RemoteProtocolError:
            return
        id_key = None if id_raw is None else jsonrpc.id_key(id_raw)
        exchange = None if id_key is None else session.find_by_id(id_key)
        if exchange is not None and exchange is not session.opener:
            self._courier.cancel(session, exchange, reason)

    def _receive_reply(self, session: Session, frame: Frame) -> None:
        """The client answers a request of the server. Unknown ids are ignored: it may have been withdrawn."""
        ask = self._courier.take_ask(session, frame.id_raw)
        if ask is not None:
            self._courier.up.reply(session, ask, frame)

    # --- Sessions -----------------------------------------------------------------------------------------------

    def _open_session(self, role: PostRole, channel: ChannelId, frame: Frame, *, is_batch: bool) -> None:
        opening = role.opening
        if opening.session is not None and self._find(channel, opening.session, opening) is None:
            return
        if is_batch:
            self._refuse(channel, 400, INVALID_REQUEST, "got initialize within a batch, expected it alone")
        elif opening.session is not None:
            self._refuse(channel, 400, INVALID_REQUEST, "got initialize for a session that is initialized already")
        elif (fault := self._no_room()) is not None:
            self._refuse(channel, 503, OVERLOADED, fault, frame.id_raw)
        else:
            reply = Reply(channel, ends_channel=True, can_stream=False)
            session = self._new_session(opening.server, opening.principal, opening.base_url, pipe=None)
            role.session = session
            self._begin(session, reply, ExchangeKey(channel, 0), frame)

    def _open_pipe_session(self, role: PipeRole, channel: ChannelId, frame: Frame) -> None:
        role.last_ordinal += 1
        if not frame.is_request:
            return
        assert frame.id_raw is not None
        if frame.method == "ping":
            self._desk.send(channel, jsonrpc.encode_result(frame.id_raw, b"{}"))
        elif frame.method != "initialize":
            text = f"got {frame.method} before initialize, expected initialize first"
            self._desk.send(channel, jsonrpc.encode_error(frame.id_raw, INVALID_REQUEST, text))
        elif (fault := self._no_room()) is not None:
            self._desk.send(channel, jsonrpc.encode_error(frame.id_raw, OVERLOADED, fault))
        else:
            opening = role.opening
            reply = Reply(channel, ends_channel=False, can_stream=False)
            role.session = self._new_session(opening.server, opening.principal, opening.base_url, pipe=channel)
            self._begin(role.session, reply, ExchangeKey(channel, role.last_ordinal), frame)

    def _no_room(self) -> str | None:
        """Why no session can be opened now."""
        limit = self._desk.limits.sessions_max
        if self._desk.is_draining:
            return "shutting down: no new sessions"
        if len(self.sessions) >= limit:
            return f"{limit} sessions are open, the most allowed: end one, or try again later"
        return None

    def _new_session(self, server: str, principal: str, base_url: str, *, pipe: ChannelId | None) -> Session:
        session = Session(
            id=self._desk.mint(),
            sid=self._desk.mint(),
            workspace=self._desk.mint(),
            server=server,
            principal=principal,
            pipe=pipe,
            base_url=base_url,
        )
        self.sessions[session.id] = session
        self._by_sid[session.sid] = session
        return session

    def _begin(self, session: Session, reply: Reply, key: ExchangeKey, frame: Frame) -> None:
        exchange = self._receive_frame(session, reply, key, frame)
        assert exchange is not None
        session.opener = exchange
        session.exchanges[key] = exchange
        self._courier.up.begin(session, frame.params or b"{}")

    def accept_session(self, session: Session, result: bytes, revision: str | None) -> None:
        """The upstream answered `initialize`: so is the client, and it is told its session id."""
        opener = session.opener
        assert opener is not None
        session.opener = None
        session.step(SessionInput.ACCEPT)
        session.features = features_of(revision)
        if session.pipe is None:
            opener.reply.session = session.id
        self._courier.answer(session, opener, jsonrpc.encode_result(opener.id_raw, result))

    def refuse_session(self, session: Session, error: bytes) -> None:
        """The handshake failed: the client learns why, and there is no session."""
        opener = session.opener
        assert opener is not None
        session.opener = None
        self._courier.answer(session, opener, jsonrpc.encode_error_raw(opener.id_raw, error))
        self.close_session(session, "handshake failed")

    def _confirm(self, session: Session) -> None:
        if session.may(SessionInput.CONFIRM):
            session.step(SessionInput.CONFIRM)
            self._courier.release_held(session)

    def close_session(self, session: Session, why: str) -> None:
        """End it: every open request is answered, every stream ends, the upstream session is let go."""
        if session.state is SessionState.CLOSED:
            return
        for exchange in list(session.exchanges.values()):
            self._courier.fail(session, exchange, INVALID_REQUEST, why)
        session.step(SessionInput.CLOSE)
        for number in session.asks:
            self._desk.timers.cancel(("ask", (session.sid, number)))
        session.asks.clear()
        session.held.clear()
        for stream in session.streams:
            self._desk.close(stream, reason=why)
        session.streams.clear()
        del self.sessions[session.id]
        del self._by_sid[session.sid]
        self._desk.timers.cancel(("idle", session.sid))
        self._courier.up.end(session)

    def handle_idle(self, sid: str) -> None:
        session = self._by_sid.get(sid)
        if session is None:
            return
        if session.is_busy:
            self._courier.touch(session)
        else:
            self._desk.note("info", "session ended: idle", session.server)
            self.close_session(session, "session expired")

    def handle_ask(self, sid: str, number: int) -> None:
        session = self._by_sid.get(sid)
        if session is not None:
            self._courier.give_up(session, number)

    # --- Refusals -----------------------------------------------------------------------------------------------

    def _messages_of(self, channel: ChannelId, body: bytes, *, is_pipe: bool = False) -> list[bytes] | None:
        if not jsonrpc.is_batch(body):
            return [body]
        try:
            messages = jsonrpc.split_batch(body)
        except RemoteProtocolError as error:
            self._desk.send(channel, jsonrpc.parse_failure(error), is_last=not is_pipe, status=error.http_status)
            return None
        limit = self._desk.limits.batch_max
        if not messages or len(messages) > limit:
            text = f"got a batch of {len(messages)} messages, expected 1 to {limit}"
            message = jsonrpc.encode_error(None, INVALID_REQUEST, text)
            self._desk.send(channel, message, is_last=not is_pipe, status=400)
            return None
        return messages

    def _check_batch(self, channel: ChannelId, session: Session, frames: list[Frame]) -> bool:
        if not session.features.batching:
            text = f"got a batch, which revision {session.features.revision} does not have: expected one message"
            self._refuse(channel, 400, INVALID_REQUEST, text)
            return False
        ids = [frame.id_raw for frame in frames if frame.is_request]
        if len(set(ids)) != len(ids):
            self._refuse(channel, 400, INVALID_REQUEST, "got an id twice in one batch, expected each once")
            return False
        return True

    def _check_revision(self, channel: ChannelId, session: Session, revision: str | None) -> bool:
        """2025-06-18 basic/transports: an "invalid or unsupported" version header is answered 400."""
        if _knows(session, revision):
            return True
        assert revision is not None
        expected = session.features.revision
        text = f"got MCP-Protocol-Version {revision[:40]!r}, expected {expected}, which this session negotiated"
        self._refuse(channel, 400, INVALID_REQUEST, text)
        return False

    def _session_for(self, channel: ChannelId, opening: GetOpening | DeleteOpening) -> Session | None:
        """The session of a GET or DELETE; None when it was refused, and the channel registered for that."""
        session = self.sessions.get(opening.session or "")
        if session is not None and _is_owner(session, opening) and _knows(session, opening.revision):
            return session
        self._desk.register(channel, RefusedRole())
        session = self._find(channel, opening.session, opening)
        if session is not None:
            self._check_revision(channel, session, opening.revision)
        return None

    def _find(
        self, channel: ChannelId, id: str | None, opening: PostOpening | GetOpening | DeleteOpening
    ) -> Session | None:
        """The session an HTTP request names. A foreign one is answered exactly as an unknown one."""
        if id is None:
            text = "got no Mcp-Session-Id header, expected the one that initialize was answered with"
            self._refuse(channel, 400, INVALID_REQUEST, text)
            return None
        session = self.sessions.get(id)
        if session is None or not _is_owner(session, opening):
            text = "Session not found: it has ended or never was; send initialize to begin a new one"
            self._refuse(channel, 404, INVALID_REQUEST, text)
            return None
        return session

    def _refuse(self, channel: ChannelId, status: int, code: int, text: str, id_raw: bytes | None = None) -> None:
        self._desk.send(channel, jsonrpc.encode_error(id_raw, code, text), is_last=True, status=status)


def _is_bound_up(frame: Frame) -> bool:
    """Whether it is one more message for the server: answers, and what makes for less work, always are welcome."""
    return frame.method not in (None, "ping", "notifications/initialized", "notifications/cancelled")


def _is_owner(session: Session, opening: PostOpening | GetOpening | DeleteOpening) -> bool:
    return session.server == opening.server and session.principal == opening.principal


def _knows(session: Session, revision: str | None) -> bool:
    """Whether a version header may accompany a request of the session."""
    return revision is None or is_known_legacy(revision) or revision == session.features.revision
