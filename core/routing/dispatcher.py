"""Dispatches messages of servers: responses to the exchange or own request they answer, requests and notifications to
`server_messages`."""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OUTCOME_UNKNOWN,
    RemoteProtocolError,
)
from ..base.ids import ChannelId
from ..caching import early_answers
from ..jsonrpc import envelope
from ..jsonrpc.bounds import TooDeepError
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput
from ..state.link import SUBSCRIPTION, Link, OwnRequest
from ..state.upstream_channels import DuplexRole, UpstreamPostRole, UpstreamStreamRole
from ..state.upstream_session import UpstreamSessionState
from ..subscriptions.subscriptions import Subscriptions
from ..upstream import definition_filter
from ..upstream.upstream import Upstream
from ..wire.oversize import owner_of

UpRole = DuplexRole | UpstreamPostRole | UpstreamStreamRole

GREETINGS: Final = ("initialize", "server/discover")
"""Methods that only a client may send. A server that was just sent one of them and sends it back is an echo: a program
that copies its input, as `cat` does, or a terminal. A response would be echoed too, and count as the server's."""

LISTS: Final = frozenset({"schemas", definition_filter.PURPOSE, early_answers.PURPOSE})
"""The purposes of requests of ours for lists, of tools among them."""

TAIL_BYTES: Final = 4096
"""Bytes at the end of a message nested too deeply that are searched for its id."""

REFUSALS: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST})
"""Error codes that a subscription request meets every time, so that it is not repeated."""


class Dispatcher:
    """The dispatcher of all messages that come from servers."""

    def __init__(self, context: Context, upstream: Upstream, subscriptions: Subscriptions) -> None:
        self._context = context
        self._writer = upstream.writer
        self._resumption = upstream.resumption
        self._server_messages = upstream.server_messages
        self._tool_discovery = upstream.tool_discovery
        self._handshaker = upstream.handshaker
        self._failures = upstream.failures
        self._session_checks = upstream.session_checks
        self._server_listens = subscriptions.server_listens
        self._client_listens = subscriptions.client_listens
        self._passed_listens = subscriptions.passed_listens

    def receive_message(self, role: UpRole, channel: ChannelId, message: bytes) -> None:
        """Handles one message, or a batch."""
        link = role.link
        role.receive_message()
        if link.upstream.is_over:
            return
        if not envelope.is_batch(message):
            self._receive_part(link, role, message)
            return
        try:
            parts = envelope.split_batch(message)
        except RemoteProtocolError as error:
            self._receive_garbage(link, role, message, error)
            return
        for part in parts:
            if link.upstream.state is UpstreamSessionState.CLOSED or not self._context.is_open(channel):
                return  # an earlier part may have ended the connection
            self._receive_part(link, role, part)

    def _receive_part(self, link: Link, role: UpRole, part: bytes) -> None:
        try:
            frame = envelope.decode(part)
        except RemoteProtocolError as error:
            self._receive_garbage(link, role, part, error)
        else:
            self._receive_frame(link, role, frame)

    def _receive_garbage(self, link: Link, role: UpRole, message: bytes, error: RemoteProtocolError) -> None:
        """Handles an unreadable message.

        What says of itself that it is JSON-RPC 2.0 is a message with a fault: a request is answered with an error, a
        response ends the request it names. Anything else is noise and dropped, whatever members it has: logs are
        written to stdout, too. The official SDKs ignore it as well.
        """
        id_raw, shape = error.id_raw, error.shape
        if isinstance(error, TooDeepError) and (id_raw := owner_of(message, message[-TAIL_BYTES:])) is not None:
            shape = "reply"
        self._note_noise(link, message, error)
        if shape == "call":
            if id_raw is not None and not link.is_stateless and (isinstance(role, DuplexRole) or is_current(role)):
                self._writer.tell(link, envelope.encode_error(id_raw, error.rpc_code, error.message))
            return
        text = f"the server's answer could not be read: {error.message}"
        numbers = envelope.numbers_of_repeated_id(message) if not shape else set()
        number = None if id_raw is None else envelope.number_of(id_raw)
        if number is None and not numbers and isinstance(role, UpstreamPostRole):
            role.receive_problem(text)  # the request may still get a readable response, until its reply ends
            number = role.number if shape == "reply" else None
        if number is not None:
            numbers.add(number)
        answer = Frame(error=msgspec.json.encode({"code": INTERNAL_ERROR, "message": text}))
        for named in sorted(numbers):
            if named in link.pending:
                self._receive_reply(link, role, answer, named)

    def _note_noise(self, link: Link, message: bytes, error: RemoteProtocolError) -> None:
        """Notes an unreadable message, the first of its kind as a warning. Text that looks like a message may hold
        payloads, so it is not shown."""
        is_text = not message.lstrip().startswith((b"{", b"["))
        kind = "text" if is_text else "message" if error.shape else "JSON"
        count = self._handshaker.health[link.plan.id].receive_noise(kind)
        beginning = repr(message[:40].decode(errors="replace"))
        if is_text and link.upstream.state is UpstreamSessionState.INITIALIZING:
            link.handshake.receive_noise(beginning)
        if count & (count - 1):
            return
        text = f"server sent what is no message: {error.message}"
        if is_text:
            text += f"; it begins {beginning}"
        if count > 1:
            text += f" ({count} times by now)"
        self._context.note("debug" if count > 1 else "warning", text, link.plan.id)

    def _receive_frame(self, link: Link, role: UpRole, frame: Frame) -> None:
        related = related_of(role)
        if frame.is_notification:
            self._receive_notification(link, frame, related)
        elif not frame.is_request:
            number = _number_of(frame, role)
            if number is not None:
                self._receive_reply(link, role, frame, number)
        elif frame.method in GREETINGS and link.upstream.state is UpstreamSessionState.INITIALIZING:
            self._failures.lose(link, f"it sends back what it is sent, expected an answer to {frame.method}")
        elif link.is_stateless:
            self._context.note(
                "warning", f"{frame.method} dropped: a server without sessions asks nothing", link.plan.id
            )
        elif isinstance(role, DuplexRole) or is_current(role):
            self._server_messages.receive_request(link, frame, related)
        else:
            self._context.note("debug", f"{frame.method} dropped: its session is lost, so is its answer", link.plan.id)

    def _receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> None:
        if frame.method == "notifications/tools/list_changed":
            self._tool_discovery.forget(link)
        for adapt_notification in link.interceptors.adapt_notification:
            frame = adapt_notification(link, frame)
        try:
            for receive_notification in link.interceptors.receive_notification:
                if receive_notification(link, frame, related):
                    return
        except RemoteProtocolError as error:
            self._context.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)
            return
        if not link.is_stateless:
            self._server_messages.receive_notification(link, frame, related)
            return
        try:
            self._server_listens.receive_notification(link, frame, related)
        except RemoteProtocolError as error:
            self._context.note("warning", f"server sent a broken {frame.method}: {error.message}", link.plan.id)

    def _receive_reply(self, link: Link, role: UpRole, frame: Frame, number: int) -> None:
        entry = link.settle(number)
        self._resumption.forget(link, number)
        if isinstance(role, UpstreamPostRole) and role.number == number:
            self._writer.receive_settled(role)
        if entry is None:
            for receive_unexpected in link.interceptors.receive_unexpected:
                receive_unexpected(link, number, frame)
            if link.shared_process is not None:
                link.shared_process.forget_cancelled(number)
            self._context.note("debug", "server answered what nobody waits for: dropped", link.plan.id)
        elif isinstance(entry, OwnRequest):
            self._receive_own_response(link, role, entry, frame, number)
        else:
            if self._writer.telemetry is not None:
                self._writer.telemetry.receive_answer(link.plan.id, entry, frame.error)
                if entry.method == "tools/list" and frame.result is not None:
                    self._writer.telemetry.receive_list(link.plan.id, frame.result)
            self.receive_answer(link, entry, frame)
            # An answer with an unknown outcome is one of a driver, for a server that may be working still.
            is_lost = frame.error is not None and envelope.error_code(frame.error) == OUTCOME_UNKNOWN
            if entry.token_raw is not None and entry.task is None and number not in link.tokens and not is_lost:
                link.remember_token(number, entry)
            self._handshaker.advance(link, entry)

    def _receive_own_response(
        self, link: Link, role: UpRole, own_request: OwnRequest, frame: Frame, number: int
    ) -> None:
        if own_request.incarnation != link.upstream.incarnation:
            return
        if self._writer.telemetry is not None and own_request.purpose in LISTS and frame.result is not None:
            self._writer.telemetry.receive_list(link.plan.id, frame.result)
        if self.receive_own_response(link, own_request, frame, number):
            return
        if own_request.purpose == "replay":
            self.receive_replay(link, own_request, is_done=frame.error is None)
        elif own_request.purpose == "initialize":
            self._handshaker.receive_handshake(link, frame)

    def receive_replay(self, link: Link, own_request: OwnRequest, *, is_done: bool) -> None:
        """Handles the end of a request that restores a setting of the lost session."""
        self._client_listens.receive_resubscribed(link, own_request.about, is_done=is_done)
        self._handshaker.receive_replayed(link)

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame, number: int) -> bool:
        """Handles the response to a request of ours, or an error in place of one. False if it belongs to a handshake
        with sessions, which the caller handles."""
        is_done = frame.error is None
        if own_request.purpose == "discover":
            self._handshaker.receive_discovery(link, frame)
        elif own_request.purpose == SUBSCRIPTION:
            is_refused = frame.error is not None and envelope.error_code(frame.error) in REFUSALS
            self._server_listens.receive_end(link, number, is_refused=is_refused)
        elif own_request.purpose == "schemas":
            self._tool_discovery.receive_page(link, frame)
        elif (owner := link.interceptors.by_purpose.get(own_request.purpose)) is not None:
            owner.receive_own_response(link, own_request, frame)
        elif own_request.purpose == "subscribe":
            self._client_listens.receive_subscribed(link, own_request.about, is_done=is_done)
        elif own_request.purpose == "unsubscribe":
            self._client_listens.receive_unsubscribed(link, own_request.about)
        else:
            return False
        return True

    def receive_answer(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Handles the response to a client's request: gives it to the interceptors of the link, and what they make of
        it to the client."""
        if frame.error is not None and self._session_checks.holds_error(link, exchange, frame.error):
            return
        self._writer.expect_none(exchange)
        link.upstream.receive_proof()
        self._handshaker.health[link.plan.id].receive_proof()
        self.pass_down(link, exchange, frame)

    def pass_down(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Gives a response to the interceptors: one that has come, or one that the server gave to an equal request
        earlier, which proves nothing of the server."""
        try:
            for receive_response in link.interceptors.receive_response:
                if receive_response(link, exchange, frame):
                    return
        except RemoteProtocolError as fault:
            frame = Frame(
                error=envelope.error_object(INTERNAL_ERROR, f"the server's answer is broken: {fault.message}")
            )
        exchange.step(ExchangeInput.REPLY)
        if frame.error is not None:
            error = envelope.usable_error(frame.error)
            for receive_error in link.interceptors.receive_error:
                error = receive_error(link, exchange, error)
            self._failures.finish(link, exchange, envelope.encode_error_raw(exchange.id_raw, error))
            return
        result = frame.result
        try:
            for receive_result in link.interceptors.receive_result:
                if result is not None:
                    result = receive_result(link, exchange, result)
        except RemoteProtocolError as fault:
            text = f"the server's answer could not be read: {fault.message}"
            self._failures.finish(link, exchange, envelope.encode_error(exchange.id_raw, INTERNAL_ERROR, text))
            return
        if result is not None:
            self._failures.finish(link, exchange, envelope.encode_result(exchange.id_raw, result))

    def receive_cut_off(self, link: Link, exchange: Exchange) -> None:
        """Handles the end of a subscription's stream without a response."""
        self._passed_listens.cut_off(link, exchange)


def is_current(role: UpstreamPostRole | UpstreamStreamRole) -> bool:
    """True if the channel was dialled in the present upstream session."""
    return (
        role.incarnation == role.link.upstream.incarnation and role.link.upstream.state is not UpstreamSessionState.IDLE
    )


def related_of(role: UpRole) -> Exchange | None:
    """Returns the exchange on whose stream a message came; None if it came on none."""
    if not isinstance(role, UpstreamPostRole) or role.number is None:
        return None
    entry = role.link.pending.get(role.number)
    return entry.exchange if isinstance(entry, OwnRequest) else entry


def _number_of(frame: Frame, role: UpRole) -> int | None:
    """Returns the number of the request that a response answers. Some servers echo the number as a string; an error
    without an id belongs to the POST that it came on."""
    if frame.id_raw is None:
        return role.number if isinstance(role, UpstreamPostRole) else None
    number = envelope.number_of(frame.id_raw)
    if number is None and frame.error is not None and isinstance(role, UpstreamPostRole):
        return role.number
    return number
