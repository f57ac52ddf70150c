"""Two-way streams as clients use them: stdio, sockets, and the event pipe of HTTP+SSE. The channel is the session.

An event pipe comes in two halves: a GET whose stream carries all that the client is told, and POSTs with what it says,
sent to the address that is the stream's first event.

Source: 2024-11-05 basic/transports, "stdio" and "HTTP with SSE".
"""

from __future__ import annotations

import msgspec

from ..base.effects import EventPipeOpening, Headers, MessageOpening, PipeOpening
from ..base.errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED, RemoteProtocolError
from ..base.ids import ChannelId
from ..bridge.request_meta import revision_of
from ..downstream.responder import Courier
from ..downstream.sessions import Body, Clients
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import ExchangeKey, Reply
from ..state.session import State as SessionState
from ..state.stream import Stream
from .channels import MessageRole, PipeRole, RefusedRole
from .stateless import Stateless
from .streamable_http import NO_ROOM, is_bound_up


class Pipes:
    """Clients of two-way streams."""

    def __init__(self, desk: Desk, courier: Courier, clients: Clients, stateless: Stateless) -> None:
        self._desk = desk
        self._courier = courier
        self._clients = clients
        self._stateless = stateless
        self._by_token: dict[str, ChannelId] = {}

    # --- Channels open and close ------------------------------------------------------------------------------------

    def open_pipe(self, channel: ChannelId, opening: PipeOpening) -> None:
        self._desk.register(channel, PipeRole(opening))

    def open_event_pipe(self, channel: ChannelId, opening: EventPipeOpening) -> None:
        """Its first event says where to send messages; then it waits for `initialize`, but not for ever."""
        token = self._desk.mint()
        self._desk.register(channel, PipeRole(opening, token))
        self._by_token[token] = channel
        self._desk.send(channel, f"{opening.endpoint}?sessionId={token}".encode(), event="endpoint")
        self._expect_greeting(channel)

    def _expect_greeting(self, channel: ChannelId) -> None:
        at = self._desk.now + self._desk.limits.greeting_timeout_s
        self._desk.timers.set(("greeting", channel), at, "initialize on an event pipe")

    def open_message(self, channel: ChannelId, opening: MessageOpening) -> None:
        """Refused with 404 if there is no such pipe; a foreign one is answered exactly as an unknown one."""
        pipe = self._by_token.get(opening.token)
        role = None if pipe is None else self._desk.role_of(pipe)
        if pipe is not None and isinstance(role, PipeRole) and self._desk.is_open(pipe):
            if (role.opening.server, role.opening.principal) == (opening.server, opening.principal):
                self._desk.register(channel, MessageRole(opening, pipe))
                return
        self._desk.register(channel, RefusedRole())
        self._refuse(channel, 404, INVALID_REQUEST, "Session not found: its event stream has ended, or never was")

    def receive_close(self, role: PipeRole, channel: ChannelId) -> None:
        if role.token is not None:
            del self._by_token[role.token]
            self._desk.timers.cancel(("greeting", channel))
        if role.session is not None:
            self._clients.close_session(role.session, "client hung up")
        self._stateless.close_pipe(channel, role.legs)

    def handle_greeting(self, channel: ChannelId) -> None:
        role = self._desk.role_of(channel)
        if isinstance(role, PipeRole) and role.session is not None and role.session.state is not SessionState.CLOSED:
            self._expect_greeting(channel)  # should its handshake fail, another one is due
        else:
            self._desk.close(channel, reason="nobody said initialize")

    # --- Messages ---------------------------------------------------------------------------------------------------

    def receive_posted(self, role: MessageRole, channel: ChannelId, body: bytes) -> None:
        """A message for an event pipe. What could not be read is refused here, as far as nobody waits for an answer on
        the stream."""
        pipe = self._desk.role_of(role.pipe)
        if not isinstance(pipe, PipeRole) or not self._desk.is_open(role.pipe):
            self._refuse(channel, 404, INVALID_REQUEST, "Session not found: its event stream has ended")
            return
        said = self._clients.read(channel, body)
        if said is None:
            return
        frames, faults, is_batch = said
        if faults and not is_batch and faults[0].shape != "reply" and faults[0].id_raw is None:
            self._desk.send(channel, envelope.parse_failure(faults[0]), is_last=True, status=faults[0].http_status)
            return
        is_told = bool(faults) or any(frame.is_request for frame in frames)
        if not self._has_room(pipe, role.pipe, frames, is_told=is_told):
            id_raw = frames[0].id_raw if frames and frames[0].is_request and not is_batch else None
            self._refuse(channel, 503, OVERLOADED, NO_ROOM, id_raw)
            return
        if pipe.session is not None:
            pipe.session.receive_headers(role.opening.headers)
        self._receive(pipe, role.pipe, said, role.opening.headers)
        self._desk.close(channel, status=202)

    def _has_room(self, pipe: PipeRole, channel: ChannelId, frames: list[Frame], *, is_told: bool) -> bool:
        """Whether what an event pipe's client says may pass: it cannot be paused, neither for a server that takes
        nothing, nor for a stream that it does not read itself, on which it `is_told` something in return."""
        if is_told and self._desk.unsent_bytes(channel) > self._desk.limits.outbox_max_bytes:
            return False
        session = pipe.session
        return session is None or not any(is_bound_up(f) for f in frames) or self._courier.up.has_room(session)

    def receive_pipe(self, role: PipeRole, channel: ChannelId, message: bytes) -> None:
        """One line of a pipe, or one message of a socket."""
        said = self._clients.read(channel, message, is_pipe=True)
        if said is not None:
            self._receive(role, channel, said, role.opening.headers)

    def _receive(self, role: PipeRole, channel: ChannelId, said: Body, headers: Headers) -> None:
        frames, faults, is_batch = said
        for error in faults:
            self._desk.note("warning", f"client sent what is no message: {error.message}", role.opening.server)
            self._receive_garbage(role, channel, error, headers)
        if not is_batch:
            frames = [frame for frame in frames if not self._receive_stateless(role, channel, frame, headers)]
        if not frames:
            return
        session = role.session
        if session is None or session.state is SessionState.CLOSED:
            if is_batch:
                text = "got a batch before initialize, expected initialize first and alone"
                self._desk.send(channel, envelope.encode_error(None, INVALID_REQUEST, text))
            else:
                self._open_session(role, channel, frames[0], headers)
            return
        if is_batch and not session.features.batching:
            text = f"got a batch, which revision {session.features.revision} does not have: expected single messages"
            self._desk.send(channel, envelope.encode_error(None, INVALID_REQUEST, text))
            return
        reply = Reply(session.streams[0], ends_channel=False, can_stream=True)
        if is_batch:
            reply.gathered = []
        self._clients.receive_frames(session, reply, frames, channel, role.last_ordinal + 1, headers)
        role.last_ordinal += len(frames)

    def _receive_stateless(self, role: PipeRole, channel: ChannelId, frame: Frame, headers: Headers) -> bool:
        """True if a message is of a client that has no session here, or that means none by it.

        Both kinds may be spoken on one pipe, in any order: a request that names its revision says all by itself.
        """
        try:
            if frame.method is None:
                return False
            if frame.is_notification:
                if frame.method == "notifications/cancelled" and self._is_of_leg(role, frame):
                    self._stateless.receive_cancel(role.legs, frame, headers)
                    return True
                return revision_of(frame.params) is not None
            if revision_of(frame.params) is None:
                return False
        except RemoteProtocolError as error:
            if frame.is_notification:
                return True
            self._desk.send(channel, envelope.encode_error(frame.id_raw, error.rpc_code, error.message))
            return True
        role.last_ordinal += 1
        reply = Reply(Stream(channel), ends_channel=False, can_stream=True)
        key = ExchangeKey(channel, role.last_ordinal)
        if role.token is not None:
            self._expect_greeting(channel)
        try:
            self._stateless.receive_request(role.opening, key, frame, reply, headers, legs=role.legs)
        except RemoteProtocolError as error:
            message = envelope.encode_error(frame.id_raw, error.rpc_code, error.message, error.data)
            self._desk.send(channel, message)
        return True

    def _is_of_leg(self, role: PipeRole, frame: Frame) -> bool:
        id_raw = envelope.member_of(frame.params, "requestId")
        return id_raw is not None and role.legs.find(envelope.id_key(id_raw)) is not None

    def _receive_garbage(
        self, role: PipeRole, channel: ChannelId, error: RemoteProtocolError, headers: Headers
    ) -> None:
        """What asks, or may ask, is answered; of an answer, only whoever asked for it is told."""
        if error.shape != "reply":
            self._desk.send(channel, envelope.parse_failure(error))
            return
        session = role.session
        ask = None if session is None else self._courier.take_ask(session, error.id_raw)
        if session is not None and ask is not None:
            text = f"the client's answer could not be read: {error.message}"
            message = msgspec.json.encode({"code": INTERNAL_ERROR, "message": text})
            self._courier.up.reply(session, ask, Frame(error=message), headers)

    def _open_session(self, role: PipeRole, channel: ChannelId, frame: Frame, headers: Headers) -> None:
        role.last_ordinal += 1
        if not frame.is_request:
            return
        assert frame.id_raw is not None
        if frame.method == "ping":
            self._desk.send(channel, envelope.encode_result(frame.id_raw, b"{}"))
        elif frame.method != "initialize":
            text = f"got {frame.method} before initialize, expected initialize first"
            self._desk.send(channel, envelope.encode_error(frame.id_raw, INVALID_REQUEST, text))
        elif (fault := self._clients.no_room()) is not None:
            self._desk.send(channel, envelope.encode_error(frame.id_raw, OVERLOADED, fault))
        else:
            if role.token is not None:
                self._expect_greeting(channel)
            role.session = self._clients.open_session(
                role.opening, channel, role.last_ordinal, frame, is_pipe=True, headers=headers
            )

    def _refuse(self, channel: ChannelId, status: int, code: int, text: str, id_raw: bytes | None = None) -> None:
        self._desk.send(channel, envelope.encode_error(id_raw, code, text), is_last=True, status=status)
