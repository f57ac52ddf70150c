"""The Streamable HTTP endpoint for clients: POST, GET and DELETE, with the rules for sessions.

Source: 2025-03-26, 2025-06-18 and 2025-11-25 basic/transports, "Streamable HTTP".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import HEADER_MISMATCH, INVALID_REQUEST, OVERLOADED, LocalProtocolError, RemoteProtocolError
from ..base.events import Cause, DeleteOpening, End, GetOpening, PostOpening
from ..base.ids import ChannelId
from ..base.revisions import is_known_legacy, is_known_modern
from ..bridge.request_meta import may_name_sender, revision_of
from ..downstream.downstream import Downstream
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import ExchangeKey, Reply
from ..state.feature import ChannelHandler
from ..state.ports import RouterOf
from ..state.session import Session, SessionState
from ..state.stream import Stream
from ..wire.http.mcp_headers import check, check_revision
from .channels import PostRole, RefusedRole, StreamRole, unknown_server
from .fast_path import FastPath
from .revisions import read_request, unsupported

if TYPE_CHECKING:
    from .stateless import Stateless

NO_ROOM = "too much was sent that is not taken yet: wait, and try again"
"""The error text for a message that a server cannot take now."""


class StreamableHttp(ChannelHandler):
    """The clients on Streamable HTTP.

    Args:
        stateless: handles requests of clients without sessions; None: they are refused.
        fast_path: handles plain calls.
    """

    def __init__(
        self,
        context: Context,
        downstream: Downstream,
        router_of: RouterOf,
        stateless: Stateless | None,
        fast_path: FastPath,
    ) -> None:
        self._context = context
        self._responder = downstream.responder
        self._sessions = downstream.sessions
        self._streams = downstream.streams
        self._router_of = router_of
        self._stateless = stateless
        self._fast_path = fast_path
        replica = context.plan.replica
        self._own_prefix = "" if replica is None else f"{replica.tag}."  # of ids of our own sessions

    # --- Channels open and close ------------------------------------------------------------------------------------

    def open_post(self, channel: ChannelId, opening: PostOpening) -> None:
        """Handles a new POST, whose body is yet to come."""
        if opening.server not in self._context.endpoints:
            raise unknown_server(opening.server)
        self._context.register(channel, PostRole(opening))
        own, session = self._own_prefix, opening.session
        if own and session is not None and not session.startswith(own):
            self._pass_on(channel, opening)

    def open_stream(self, channel: ChannelId, opening: GetOpening) -> None:
        """Handles a GET: opens a stream of the session's own, or resumes one that was cut off. A GET that is not
        refused with 400 or 404 is open, with or without a first message.

        A client "MAY remain connected to multiple SSE streams" (2025-03-26 basic/transports, "Multiple Connections"). A
        client that reconnects often has a dead stream that was not noticed yet.
        """
        if opening.server not in self._context.endpoints:
            raise unknown_server(opening.server)
        session = self._session_for(channel, opening)
        if session is None:
            return
        if opening.last_event_id is not None:
            self._resume(channel, session, opening.last_event_id)
            return
        fault = self._sessions.no_room_for_stream(session.use)
        if fault is not None:
            self._context.register(channel, RefusedRole())
            self._refuse(channel, 503, OVERLOADED, fault)
            return
        stream = Stream(channel, may_resume=session.features.event_ids, is_listening=True)
        self._context.register(channel, StreamRole(session, stream))
        self._listen(session, stream)
        self._streams.prime(session, stream)
        self._responder.release_held(session)
        session.rest()

    def _listen(self, session: Session, stream: Stream) -> None:
        oldest = session.open_stream(stream, self._context.limits.streams_per_session_max)
        if oldest is not None:
            self._context.close(oldest.channel, reason="this session has opened many event streams since")

    def _resume(self, channel: ChannelId, session: Session, last_event_id: str) -> None:
        """Resumes a stream after the client's last event.

        The server "MAY use this header to replay messages that would have been sent after the last event ID, *on the
        stream that was disconnected*" (2025-11-25 basic/transports, "Resumability and Redelivery"). An unknown stream
        is refused: an empty one would hide the loss.
        """
        found = self._streams.find(session, last_event_id)
        if found is None:
            self._context.register(channel, RefusedRole())
            text = "got a Last-Event-ID that is unknown here, or too old, expected that of a recent event"
            self._refuse(channel, 400, INVALID_REQUEST, text)
            return
        stream, ordinal = found
        self._context.register(channel, StreamRole(session, stream))
        self._responder.touch(session)
        self._streams.resume(
            session, stream, ordinal, channel, lambda seen: self._responder.receive_resumed(session, stream, seen)
        )
        self._responder.receive_resumed(session, stream, ordinal)
        if stream.is_listening:
            session.close_stream(stream)
            self._listen(session, stream)
            self._responder.release_held(session)

    def open_delete(self, channel: ChannelId, opening: DeleteOpening) -> None:
        """Handles a DELETE: ends the session."""
        if opening.server not in self._context.endpoints:
            raise unknown_server(opening.server)
        session = self._session_for(channel, opening)
        if session is None:
            return
        self._context.register(channel, RefusedRole())
        self._sessions.close_session(session, "session terminated")
        self._context.close(channel, status=204)

    def receive_close(self, role: PostRole, channel: ChannelId, cause: Cause) -> None:
        """Handles the end of a POST.

        A client that hangs up cancels nothing (2025-03-26 basic/transports, "Sending Messages": a disconnection "SHOULD
        NOT be interpreted as the client cancelling its request"), except a handshake: the client does not know the id
        of that session. Without sessions, hanging up cancels (2026-07-28 basic/patterns/cancellation).
        """
        if role.request is not None and self._stateless is not None and cause.end is not End.DONE:
            self._stateless.hang_up(*role.request)
        if role.stream is not None:
            role.stream.detach(channel)
        if role.session is not None and cause.end is not End.DONE:
            if role.session.state in (SessionState.OPENING, SessionState.INITIALIZED):
                self._sessions.close_session(role.session, "client hung up before it was told its session")

    def receive_stream_close(self, role: StreamRole, channel: ChannelId) -> None:
        """Handles the end of a GET stream's connection."""
        session, stream = role.session, role.stream
        if stream.channel != channel:
            return  # the stream was resumed on another connection
        stream.detach(channel)
        self._streams.receive_left(session, stream)
        session.close_stream(stream)
        if session.state is not SessionState.CLOSED:
            self._responder.touch(session)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def receive_message(self, role: PostRole, channel: ChannelId, body: bytes) -> None:
        """Handles the body of a POST.

        Raises:
            LocalProtocolError: the POST has a body already.
        """
        if role.stream is not None or role.request is not None or role.session is not None:
            raise LocalProtocolError(f"channel {channel} is a POST, which has one body, and got a second")
        if body[:1] != b"{" and envelope.is_batch(body):
            self._receive_batch(role, channel, body)
            return
        try:
            frame = envelope.decode(body)
        except RemoteProtocolError as fault:
            self._context.send(channel, envelope.parse_failure(fault), is_last=True, status=fault.http_status)
            return
        if self._fast_path.receive_call(role, channel, frame):
            return
        opening = role.opening
        if not _is_of_session(frame, opening.revision) and self._receive_stateless(role, channel, frame):
            return
        is_request = frame.method is not None and frame.id_raw is not None
        if frame.method == "initialize" and is_request:
            self._open_session(role, channel, frame)
            return
        session = self._sessions.sessions.get(opening.session or "")
        if session is None or not _is_owner(session, opening):
            self._find(channel, opening.session, opening)  # sends the refusal
            return
        if opening.revision != session.features.revision and not self._check_revision(
            channel, session, opening.revision
        ):
            return
        if is_work_for_server(frame) and not session.router.has_room(session):
            self._refuse(channel, 503, OVERLOADED, NO_ROOM, frame.id_raw if is_request else None)
            return
        reply = self._begin_reply(role, channel, session, has_request=is_request)
        self._sessions.receive_frame(session, reply, ExchangeKey(channel, 0), frame, opening.headers)
        if not is_request:
            self._context.close(channel, status=202)

    def _begin_reply(
        self, role: PostRole, channel: ChannelId, session: Session, *, has_request: bool, is_batch: bool = False
    ) -> Reply:
        opening = role.opening
        if not has_request:  # a request keeps the session in use until it is answered
            self._responder.touch(session)
        session.receive_headers(opening.headers)
        stream = Stream(channel, may_resume=session.features.event_ids and opening.accepts_events)
        role.answer_on(stream)
        reply = Reply(stream, ends_channel=True, can_stream=opening.accepts_events, is_batch=is_batch)
        if has_request:
            self._streams.expect(session, reply)
        return reply

    def _receive_batch(self, role: PostRole, channel: ChannelId, body: bytes) -> None:
        """Handles a batch. Only a client with a session, and of an early revision, may send one."""
        opening = role.opening
        parsed = self._sessions.read(channel, body)
        if parsed is None:
            return
        frames, faults, _ = parsed
        if faults:
            self._context.send(channel, envelope.parse_failure(faults[0]), is_last=True, status=faults[0].http_status)
            return
        id_raw = frames[0].id_raw if len(frames) == 1 and frames[0].is_request else None
        try:
            named = [self._revision_of(frame) for frame in frames]  # raises for a faulty one
            if any(revision is not None for revision in named):
                raise RemoteProtocolError("got a batch, expected one message: that revision has no batches")
        except RemoteProtocolError as error:
            self._refuse(channel, error.http_status, error.rpc_code, error.message, id_raw, error.data)
            return
        if any(frame.method == "initialize" and frame.is_request for frame in frames):
            if opening.session is None or self._find(channel, opening.session, opening) is not None:
                self._refuse(channel, 400, INVALID_REQUEST, "got initialize within a batch, expected it alone")
            return
        session = self._find(channel, opening.session, opening)
        if session is None or not self._check_revision(channel, session, opening.revision):
            return
        if not self._check_batch(channel, session, frames):
            return
        if any(is_work_for_server(frame) for frame in frames) and not session.router.has_room(session):
            self._refuse(channel, 503, OVERLOADED, NO_ROOM, id_raw)
            return
        has_request = any(frame.is_request for frame in frames)
        reply = self._begin_reply(role, channel, session, has_request=has_request, is_batch=True)
        self._sessions.receive_frames(session, reply, frames, channel, 0, opening.headers)
        if not has_request:
            self._context.close(channel, status=202)

    # --- Without sessions -------------------------------------------------------------------------------------------

    def _receive_stateless(self, role: PostRole, channel: ChannelId, frame: Frame) -> bool:
        """Handles the body if it is of a client without sessions, or is refused for its revision. False if it belongs
        to a session.

        The body decides, and the headers must agree with it: a request that names its revision belongs to no session,
        and one that does not belongs to one, unless its header names another era.

        Source: 2026-07-28 basic/versioning, "Backward Compatibility"; basic/transports/streamable-http.
        """
        opening = role.opening
        try:
            revision = self._revision_of(frame)
            header = opening.revision
            is_modern_header = header is not None and is_known_modern(header)
            if not frame.is_request:
                if frame.is_notification and (revision is not None or is_modern_header):
                    # Ignored: clients choose their ids, so a cancellation by id could hit another client's request.
                    self._context.close(channel, status=202)
                    return True
                if is_modern_header:
                    raise RemoteProtocolError("got an answer, expected none: nobody is asked in that revision")
                return False
            if revision is not None:
                self._receive_request(role, channel, frame, revision)
                return True
            if frame.method == "initialize":
                if is_modern_header:
                    text = f"got initialize under MCP-Protocol-Version {header}, which has none"
                    raise RemoteProtocolError(text, rpc_code=HEADER_MISMATCH)
                return False
            if is_modern_header:
                read_request(frame)  # raises an error that names what is missing
            if header is not None and not is_known_legacy(header) and opening.session is None:
                raise unsupported(header, is_legacy_only=self._stateless is None)
        except RemoteProtocolError as error:
            id_raw = frame.id_raw if frame.is_request else None
            self._refuse(channel, error.http_status, error.rpc_code, error.message, id_raw, error.data)
            return True
        return False

    def _revision_of(self, frame: Frame) -> str | None:
        return None if frame.method is None else revision_of(frame.params)

    def _receive_request(self, role: PostRole, channel: ChannelId, frame: Frame, revision: str) -> None:
        opening = role.opening
        assert frame.method is not None
        if opening.revision is not None and revision:
            check_revision(opening.revision, revision)  # whether or not what the body names is served
        if self._stateless is None:
            raise unsupported(revision, is_legacy_only=True)
        request = read_request(frame)
        mirrors = self._stateless.mirrors_for(opening, frame)
        check(frame.method, frame.params, request.revision, opening.mirrored, mirrors, header_revision=opening.revision)
        if frame.method == "subscriptions/listen" and not opening.accepts_events:
            text = "got an Accept without text/event-stream, expected it: what is subscribed comes as events"
            raise RemoteProtocolError(text, http_status=406)
        stream = Stream(channel)
        reply = Reply(stream, ends_channel=True, can_stream=opening.accepts_events)
        mirrored = tuple(pair for pair in opening.mirrored if pair[0].startswith("mcp-param-"))
        found = self._stateless.receive_request(
            opening, ExchangeKey(channel, 0), frame, reply, opening.headers, mirrored=mirrored
        )
        if found is not None:
            role.receive_request(*found, reply)

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def _open_session(self, role: PostRole, channel: ChannelId, frame: Frame) -> None:
        opening = role.opening
        if opening.session is not None and self._find(channel, opening.session, opening) is None:
            return
        if opening.session is not None:
            self._refuse(channel, 400, INVALID_REQUEST, "got initialize for a session that is initialized already")
        elif (fault := self._sessions.no_room(opening.owner)) is not None:
            self._refuse(channel, 503, OVERLOADED, fault, frame.id_raw)
        else:
            router = self._router_of(opening.server)
            role.open_session(
                self._sessions.open_session(
                    opening, channel, 0, frame, is_pipe=False, headers=opening.headers, router=router
                )
            )

    # --- Refusals -----------------------------------------------------------------------------------------------

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
        """True if the session accepts the version header; else refuses the request. 2025-06-18 basic/transports: an
        "invalid or unsupported" version header is answered 400."""
        if _accepts_revision(session, revision):
            return True
        assert revision is not None
        expected = session.features.revision
        text = f"got MCP-Protocol-Version {revision[:40]!r}, expected {expected}, which this session negotiated"
        self._refuse(channel, 400, INVALID_REQUEST, text)
        return False

    def _session_for(self, channel: ChannelId, opening: GetOpening | DeleteOpening) -> Session | None:
        """Returns the session of a GET or DELETE; None if it was refused, with the channel registered for that."""
        session = self._sessions.sessions.get(opening.session or "")
        if session is not None and _is_owner(session, opening) and _accepts_revision(session, opening.revision):
            session.receive_headers(opening.headers)
            return session
        self._context.register(channel, RefusedRole())
        if self._pass_on(channel, opening):
            return None
        session = self._find(channel, opening.session, opening)
        if session is not None:
            self._check_revision(channel, session, opening.revision)
        return None

    def _pass_on(self, channel: ChannelId, opening: PostOpening | GetOpening | DeleteOpening) -> bool:
        """True if the session is one of another replica, which answers the request then."""
        id = opening.session
        return id is not None and self._context.forward(channel, id, is_returned=opening.is_returned)

    def _find(
        self, channel: ChannelId, id: str | None, opening: PostOpening | GetOpening | DeleteOpening
    ) -> Session | None:
        """Returns the session that an HTTP request names; None if the request was refused. Another client's session is
        answered exactly as an unknown one."""
        if id is None and not isinstance(opening, PostOpening) and is_known_modern(opening.revision or ""):
            # 2026-07-28 basic/transports/streamable-http: GET and DELETE are answered 405.
            self._refuse(channel, 405, INVALID_REQUEST, "got another method than POST, expected POST")
            return None
        if id is None:
            text = "got no Mcp-Session-Id header, expected that of the response to initialize; send initialize first"
            self._refuse(channel, 400, INVALID_REQUEST, text)
            return None
        session = self._sessions.sessions.get(id)
        if session is None or not _is_owner(session, opening):
            text = "Session not found: it has ended or never was; send initialize to begin a new one"
            self._refuse(channel, 404, INVALID_REQUEST, text)
            return None
        return session

    def _refuse(
        self, channel: ChannelId, status: int, code: int, text: str, id_raw: bytes | None = None, data: object = None
    ) -> None:
        self._context.send(channel, envelope.encode_error(id_raw, code, text, data), is_last=True, status=status)


def _is_of_session(frame: Frame, revision: str | None) -> bool:
    """True if header and body certainly belong to a client with a session. False decides nothing."""
    return (revision is None or is_known_legacy(revision)) and not may_name_sender(frame.params)


def is_work_for_server(frame: Frame) -> bool:
    """True if the message is more work for the server. Responses, and messages that reduce work, are always taken."""
    return frame.method not in (None, "ping", "notifications/initialized", "notifications/cancelled")


def _is_owner(session: Session, opening: PostOpening | GetOpening | DeleteOpening) -> bool:
    return session.server == opening.server and session.principal == opening.principal


def _accepts_revision(session: Session, revision: str | None) -> bool:
    """True if a request of the session may have this version header."""
    return revision is None or is_known_legacy(revision) or revision == session.features.revision
