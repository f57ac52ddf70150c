"""The endpoint for clients on two-way streams: stdio, sockets, and the event pipe of HTTP+SSE. The channel is the
session.

An event pipe has two halves: a GET whose stream carries all messages to the client, and POSTs with the client's
messages, sent to the address that is the stream's first event.

Source: 2024-11-05 basic/transports, "stdio" and "HTTP with SSE".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED, RemoteProtocolError
from ..base.events import Cause, EventPipeOpening, Headers, MessageOpening, PipeOpening
from ..base.ids import ChannelId
from ..bridge.request_meta import revision_of
from ..downstream.downstream import Downstream
from ..downstream.sessions import Body
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import ExchangeKey, Reply
from ..state.feature import ChannelHandler
from ..state.ports import RouterOf
from ..state.session import SessionState
from ..state.stream import Stream
from ..wire.websocket import GOING_AWAY
from .channels import MessageRole, PipeRole, RefusedRole, unknown_server
from .revisions import unsupported
from .streamable_http import NO_ROOM, is_work_for_server

if TYPE_CHECKING:
    from .stateless import Stateless


class Pipes(ChannelHandler):
    """The clients on two-way streams.

    Args:
        stateless: handles requests of clients without sessions; None: they are refused.
    """

    def __init__(
        self, context: Context, downstream: Downstream, router_of: RouterOf, stateless: Stateless | None
    ) -> None:
        self._context = context
        self._responder = downstream.responder
        self._sessions = downstream.sessions
        self._router_of = router_of
        self._stateless = stateless
        self._by_token: dict[str, ChannelId] = {}

    # --- Channels open and close ------------------------------------------------------------------------------------

    def open_pipe(self, channel: ChannelId, opening: PipeOpening) -> None:
        """Handles a new two-way stream."""
        self._check_server(opening.server)
        self._context.register(channel, PipeRole(opening))

    def open_event_pipe(self, channel: ChannelId, opening: EventPipeOpening) -> None:
        """Handles a new event pipe: sends the address for the client's messages, and waits for `initialize` for at most
        `Limits.greeting_timeout_s`."""
        self._check_server(opening.server)
        token = self._context.mint_tagged()
        self._context.register(channel, PipeRole(opening, token))
        self._by_token[token] = channel
        self._context.send(channel, f"{opening.endpoint}?sessionId={token}".encode(), event="endpoint")
        self._expect_greeting(channel)

    def _expect_greeting(self, channel: ChannelId) -> None:
        at = self._context.now + self._context.limits.greeting_timeout_s
        self._context.timers.set(("greeting", channel), at, "initialize on an event pipe")

    def open_message(self, channel: ChannelId, opening: MessageOpening) -> None:
        """Handles a new POST for an event pipe. An unknown pipe is refused with 404; another client's pipe is answered
        exactly as an unknown one."""
        self._check_server(opening.server)
        pipe = self._by_token.get(opening.token)
        role = None if pipe is None else self._context.role_of(pipe)
        if pipe is not None and isinstance(role, PipeRole) and self._context.is_open(pipe):
            if (role.opening.server, role.opening.principal) == (opening.server, opening.principal):
                self._context.register(channel, MessageRole(opening, pipe))
                return
        self._context.register(channel, RefusedRole())
        if not self._context.forward(channel, opening.token, is_returned=opening.is_returned):
            text = "Session not found: its event stream has ended, or never was"
            self._refuse(channel, 404, INVALID_REQUEST, text)

    def receive_close(self, role: PipeRole, channel: ChannelId, cause: Cause) -> None:
        """Handles the end of a pipe: its session ends with it."""
        if role.token is not None:
            del self._by_token[role.token]
            self._context.timers.cancel(("greeting", channel))
        if role.session is not None:
            self._sessions.close_session(role.session, "client hung up")
        if self._stateless is not None:
            self._stateless.close_pipe(channel, role.pipe_requests)

    def stop(self, role: PipeRole, channel: ChannelId) -> None:
        """Closes a pipe as the proxy is shutting down."""
        self._context.close(channel, reason="the proxy is shutting down", code=GOING_AWAY)

    def _check_server(self, server: str) -> None:
        if server not in self._context.endpoints:
            raise unknown_server(server)

    def handle_greeting(self, channel: ChannelId) -> None:
        """Closes an event pipe on which `initialize` did not come in time."""
        role = self._context.role_of(channel)
        if isinstance(role, PipeRole) and role.session is not None and role.session.state is not SessionState.CLOSED:
            self._expect_greeting(channel)  # if the handshake fails, the client may send `initialize` again
        else:
            self._context.close(channel, reason="nobody said initialize")

    # --- Messages ---------------------------------------------------------------------------------------------------

    def receive_posted(self, role: MessageRole, channel: ChannelId, body: bytes) -> None:
        """Handles a message for an event pipe. An unreadable message is refused here, unless a response to it is
        expected on the stream."""
        pipe = self._context.role_of(role.pipe)
        if not isinstance(pipe, PipeRole) or not self._context.is_open(role.pipe):
            self._refuse(channel, 404, INVALID_REQUEST, "Session not found: its event stream has ended")
            return
        parsed = self._sessions.read(channel, body)
        if parsed is None:
            return
        frames, faults, is_batch = parsed
        if faults and not is_batch and faults[0].shape != "reply" and faults[0].id_raw is None:
            self._context.send(channel, envelope.parse_failure(faults[0]), is_last=True, status=faults[0].http_status)
            return
        is_answered = bool(faults) or any(frame.is_request for frame in frames)
        if not self._has_room(pipe, role.pipe, frames, is_answered=is_answered):
            id_raw = frames[0].id_raw if frames and frames[0].is_request and not is_batch else None
            self._refuse(channel, 503, OVERLOADED, NO_ROOM, id_raw)
            return
        pipe.receive_grants(role.opening.grants)  # now: another POST may have been opened in between
        if self._context.tracer is not None:
            pipe.receive_trace_context(role.opening.trace_context)
        if pipe.session is not None:
            pipe.session.receive_headers(role.opening.headers)
        self._receive(pipe, role.pipe, parsed, role.opening.headers)
        self._context.close(channel, status=202)

    def _has_room(self, pipe: PipeRole, channel: ChannelId, frames: list[Frame], *, is_answered: bool) -> bool:
        """True if the messages of an event pipe's client can be taken.

        A POST cannot be paused: neither for a server that takes nothing, nor for a client that does not read its own
        stream, on which it is answered (`is_answered`).
        """
        if is_answered and self._context.unsent_bytes(channel) > self._context.limits.outbox_max_bytes:
            return False
        session = pipe.session
        return session is None or not any(is_work_for_server(f) for f in frames) or session.router.has_room(session)

    def receive_message(self, role: PipeRole, channel: ChannelId, message: bytes) -> None:
        """Handles one line of a pipe, or one message of a socket."""
        parsed = self._sessions.read(channel, message, is_pipe=True)
        if parsed is not None:
            self._receive(role, channel, parsed, role.opening.headers)

    def _receive(self, role: PipeRole, channel: ChannelId, parsed: Body, headers: Headers) -> None:
        frames, faults, is_batch = parsed
        for error in faults:
            self._context.note("warning", f"client sent what is no message: {error.message}", role.opening.server)
            self._receive_garbage(role, channel, error, headers)
        if not is_batch:
            frames = [frame for frame in frames if not self._receive_stateless(role, channel, frame, headers)]
        if not frames:
            return
        session = role.session
        if session is None or session.state is SessionState.CLOSED:
            if is_batch:
                text = "got a batch before initialize, expected initialize first and alone"
                self._sessions.refuse_batch(channel, frames, text)
            else:
                self._open_session(role, channel, frames[0], headers)
            return
        if is_batch and not session.features.batching:
            text = f"got a batch, which revision {session.features.revision} does not have: expected single messages"
            self._sessions.refuse_batch(channel, frames, text)
            return
        reply = Reply(session.streams[0], ends_channel=False, can_stream=True, is_batch=is_batch)
        self._sessions.receive_frames(session, reply, frames, channel, role.count(len(frames)), headers)

    def _receive_stateless(self, role: PipeRole, channel: ChannelId, frame: Frame, headers: Headers) -> bool:
        """Handles a message of a client without a session. False if the message belongs to a session.

        Both eras may be used on one pipe, in any order: a request that names its revision is complete without a
        session.
        """
        try:
            if frame.method is None:
                return False
            if frame.is_notification:
                is_cancel = frame.method == "notifications/cancelled" and self._is_of_request(role, frame)
                if is_cancel and self._stateless is not None:
                    self._stateless.receive_cancel(role.pipe_requests, frame, headers)
                    return True
                if revision_of(frame.params) is None and role.session is not None:
                    return False
                if self._stateless is not None:
                    self._stateless.receive_notification(channel, frame, headers)
                return True
            if revision_of(frame.params) is None:
                return False
        except RemoteProtocolError as error:
            if frame.is_notification:
                return True
            self._context.send(channel, envelope.encode_error(frame.id_raw, error.rpc_code, error.message))
            return True
        reply = Reply(Stream(channel), ends_channel=False, can_stream=True)
        key = ExchangeKey(channel, role.count())
        if role.token is not None:
            self._expect_greeting(channel)
        try:
            if self._stateless is None:
                raise unsupported(revision_of(frame.params) or "", is_legacy_only=True)
            self._stateless.receive_request(role.opening, key, frame, reply, headers, pipe_requests=role.pipe_requests)
        except RemoteProtocolError as error:
            message = envelope.encode_error(frame.id_raw, error.rpc_code, error.message, error.data)
            self._context.send(channel, message)
        return True

    def _is_of_request(self, role: PipeRole, frame: Frame) -> bool:
        id_raw = envelope.member_of(frame.params, "requestId")
        return id_raw is not None and role.pipe_requests.find(envelope.id_key(id_raw)) is not None

    def _receive_garbage(
        self, role: PipeRole, channel: ChannelId, error: RemoteProtocolError, headers: Headers
    ) -> None:
        """Handles an unreadable message. One that is or may be a request is answered with an error; for a response, the
        server that waits for it gets an error."""
        if error.shape != "reply":
            self._context.send(channel, envelope.parse_failure(error))
            return
        session = role.session
        question = None if session is None else self._responder.take_question(session, error.id_raw)
        if session is not None and question is not None:
            text = f"the client's answer could not be read: {error.message}"
            message = msgspec.json.encode({"code": INTERNAL_ERROR, "message": text})
            session.router.reply(session, question, Frame(error=message), headers)

    def _open_session(self, role: PipeRole, channel: ChannelId, frame: Frame, headers: Headers) -> None:
        ordinal = role.count()
        if not frame.is_request:
            return
        assert frame.id_raw is not None
        if frame.method == "ping":
            self._context.send(channel, envelope.encode_result(frame.id_raw, b"{}"))
        elif frame.method != "initialize":
            text = f"got {frame.method} before initialize, expected initialize first"
            self._context.send(channel, envelope.encode_error(frame.id_raw, INVALID_REQUEST, text))
        elif (fault := self._sessions.no_room(role.opening.owner)) is not None:
            self._context.send(channel, envelope.encode_error(frame.id_raw, OVERLOADED, fault))
        else:
            if role.token is not None:
                self._expect_greeting(channel)
            router = self._router_of(role.opening.server)
            role.open_session(
                self._sessions.open_session(
                    role.opening, channel, ordinal, frame, is_pipe=True, headers=headers, router=router
                )
            )

    def _refuse(self, channel: ChannelId, status: int, code: int, text: str, id_raw: bytes | None = None) -> None:
        self._context.send(channel, envelope.encode_error(id_raw, code, text), is_last=True, status=status)
