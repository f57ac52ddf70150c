"""Passes large results on without reading them, in the pieces in which they arrive.

The result of a plain call (see `fast_path_rules`) is returned unchanged. For a large one, parsing and copying would be
most of the cost. Both are skipped here: only the edges of the envelope are read, the client's id is put in place of
ours, and the rest is passed on unread. That comes to the same for every valid result, because nothing between server
and client would change it; a result that is no JSON reaches the client as the server wrote it.
`tests/core/routing/test_passthrough.py` compares the edges with what the decoder reads, and the pieces with the whole.

A result that arrived whole is passed on whole. The response to a POST whose length is known from its head need not be
whole: it is passed on as it arrives (`passes`), at the pace of its client. With its first part the request counts as
answered, and `Session.passing` counts the transfer until its last part. If the server breaks off, the client's reply is
cut off. If the client is gone, the server's response is closed.
"""

from __future__ import annotations

from ..base.errors import LocalProtocolError
from ..base.ids import ChannelId
from ..base.revisions import features_of
from ..downstream.responder import Responder
from ..jsonrpc.envelope_edges import PARTS_MIN_BYTES, read_front, read_whole
from ..state.context import ChannelRole, Context
from ..state.exchange import Exchange, ExchangeState
from ..state.link import Link
from ..state.upstream_channels import DuplexRole, PartialAnswer, UpstreamPostRole, UpstreamStreamRole
from ..state.upstream_session import UpstreamSessionState
from ..upstream.upstream import Upstream


class Passthrough:
    """The transfers of large results."""

    def __init__(self, context: Context, responder: Responder, upstream: Upstream) -> None:
        self._context = context
        self._responder = responder
        self._writer = upstream.writer
        self._resumption = upstream.resumption
        self._health = upstream.handshaker.health

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """True if a message of so many bytes with this beginning is to be given in parts. It must come on a POST of
        ours, answer the request of that POST, and show both in its beginning."""
        role = self._context.role_if_open(channel)
        if (
            not isinstance(role, UpstreamPostRole)
            or not PARTS_MIN_BYTES <= size_bytes <= self._context.limits.reply_size_max_bytes
        ):
            return False
        front = read_front(beginning)
        return (
            front is not None and role.number == front.number and self._exchange_of(role.link, front.number) is not None
        )

    def receive_whole(
        self, role: DuplexRole | UpstreamPostRole | UpstreamStreamRole, pieces: tuple[bytes, ...]
    ) -> bool:
        """Handles a large message. True if it was passed on; False if it must be read."""
        link = role.link
        answer = read_whole(pieces)
        exchange = None if answer is None else self._exchange_of(link, answer.number)
        if answer is None or exchange is None:
            return False
        self._begin(link, exchange, answer.number, sum(map(len, answer.pieces)) - 1)
        role.receive_message()
        if isinstance(role, UpstreamPostRole) and role.number == answer.number:
            self._writer.receive_settled(role)
        self._responder.pass_answer(exchange, answer.pieces)
        return True

    def read(self, link: Link, number: int, message: bytes) -> tuple[bytes, ...] | None:
        """Returns what follows the envelope's beginning in a large message; None if it is not the response to that
        call, or must be read."""
        answer = read_whole((message,))
        is_its = answer is not None and answer.number == number and self._exchange_of(link, number) is not None
        return answer.pieces if answer is not None and is_its else None

    def check(self, channel: ChannelId, role: ChannelRole | None, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        """Checks a part of a message.

        Raises:
            LocalProtocolError: it cannot be a part: the message is not to be passed on, or is larger than announced.
        """
        if not isinstance(role, UpstreamPostRole):
            return  # the channel ended while the part was on its way: not the driver's fault
        partial_answer = role.partial_answer
        if size_bytes and (partial_answer is not None or not pieces or not self.passes(channel, pieces[0], size_bytes)):
            raise LocalProtocolError(f"channel {channel} gets the first part of a message that does not pass")
        left_bytes = size_bytes or (None if partial_answer is None else partial_answer.left_bytes)
        if left_bytes is not None and sum(map(len, pieces)) > left_bytes:
            raise LocalProtocolError(f"channel {channel} gets more than the {left_bytes} bytes that were to come")

    def receive_first(self, role: UpstreamPostRole, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        """Handles the first part of a message for which `passes` was true."""
        link, number, channel = role.link, role.number, role.channel
        front = read_front(pieces[0])
        assert front is not None
        assert number == front.number
        assert channel is not None
        exchange = self._exchange_of(link, number)
        assert exchange is not None
        session = link.session_of(exchange)
        self._begin(link, exchange, number, size_bytes - front.size_bytes - 1)
        role.receive_message()
        left_bytes = size_bytes - sum(map(len, pieces))
        sink = self._responder.pass_answer(
            exchange,
            (pieces[0][front.size_bytes :], *pieces[1:]),
            size_bytes=size_bytes - front.size_bytes,
        )
        if not left_bytes:
            self._writer.receive_settled(role)
            return
        role.begin_answer(PartialAnswer(sink, session, left_bytes, heard_at=self._context.now))
        session.count_passing(1)
        self._writer.expect_part(role, self._context.now)

    def receive_part(self, role: UpstreamPostRole, pieces: tuple[bytes, ...]) -> None:
        """Handles a further part."""
        partial_answer, part_bytes = role.partial_answer, sum(map(len, pieces))
        if partial_answer is None or not part_bytes:
            return  # the client is gone, or the part is empty
        partial_answer.receive_part(part_bytes, self._context.now)
        is_taken = self._context.pass_on(partial_answer.sink, pieces)
        if not partial_answer.left_bytes:
            self._end(role, partial_answer)
            self._writer.receive_settled(role)
        elif not is_taken:
            self._end(role, partial_answer)
            self._context.close(role.channel, reason="its client is gone")

    def receive_close(self, role: UpstreamPostRole, detail: str) -> None:
        """Handles the end of a server's response before all of it came."""
        partial_answer = role.partial_answer
        assert partial_answer is not None
        self._end(role, partial_answer)
        text = f"the server's answer was cut off, with {partial_answer.left_bytes} bytes to come: {detail}"
        self._context.note("warning", text, role.link.plan.id)
        self._context.cut(partial_answer.sink, "the server's answer was cut off")

    def handle_silence(self, role: UpstreamPostRole) -> bool:
        """Handles the reply timeout of a request. True if parts still arrive, so that a new one was set."""
        return role.partial_answer is not None and self._writer.expect_part(role, role.partial_answer.heard_at)

    def _end(self, role: UpstreamPostRole, partial_answer: PartialAnswer) -> None:
        role.end_answer()
        partial_answer.session.count_passing(-1)

    def _exchange_of(self, link: Link, number: int) -> Exchange | None:
        """Returns the call of that number, if its result may be passed on unread. Where client and server use different
        revisions, something may have to be restored in it."""
        exchange = link.pending.get(number)
        if not isinstance(exchange, Exchange) or not exchange.is_plain or not link.is_plain or link.leaving:
            return None
        if exchange.state is not ExchangeState.SENT or exchange.lacking is not None:
            return None
        session = link.session_of(exchange)
        if link.upstream.state is UpstreamSessionState.CLOSED or session.features is not features_of(
            link.upstream.revision
        ):
            return None
        return exchange if self._responder.can_pass(exchange) else None

    def _begin(self, link: Link, exchange: Exchange, number: int, result_bytes: int) -> None:
        """Marks the call as answered."""
        link.settle(number)
        if exchange.token_raw is not None:
            link.remember_token(number, exchange)
        self._resumption.forget(link, number)
        self._writer.expect_none(exchange)
        link.upstream.receive_proof()
        self._health[link.plan.id].receive_proof()
        session = link.session_of(exchange)
        for forget in link.interceptors.forget:
            forget(link, session, exchange)
        exchange.settle()
        session.remove(exchange)
        if self._responder.telemetry is not None:
            self._responder.telemetry.receive_answer(link.plan.id, exchange)
            self._responder.telemetry.end_unread(session, exchange, result_bytes)
        self._responder.touch(session)
