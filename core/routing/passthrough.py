"""Large answers that nothing here has a say in: passed on in the pieces they came in, unread but for their envelope.

A call that went up as it came (`plain`) has an answer that comes down as it is. Where that is large, looking through it
and copying it would be most of what it costs. So its envelope is known by its edges, the client's id put in place of
ours, and the rest is nobody's business here. What a client gets of it that is no JSON is what its server wrote.

An answer that is there whole is passed on whole. The reply to a POST, whose length is known from its head, need not be:
it is passed on as it comes (`passes`), at the pace of its client. With its first part the request is answered, and the
session has one more *passage* until the last. If the server breaks off, so does the reply. If the client is gone, the
server is not heard to the end.
"""

from __future__ import annotations

from ..base.errors import LocalProtocolError
from ..base.ids import ChannelId
from ..base.revisions import features_of
from ..downstream.responder import Courier
from ..jsonrpc.envelope_edges import PARTS_MIN_BYTES, read_front, read_whole
from ..state.context import Desk, Role
from ..state.exchange import Exchange
from ..state.exchange import Input as ExchangeInput
from ..state.exchange import State as ExchangeState
from ..state.link import ChildRole, Link, Passage, UpPostRole, UpStreamRole
from ..state.upstream_session import State
from ..upstream.failures import Losses
from ..upstream.handshake import Handshakes
from ..upstream.resumption import Resuming
from ..upstream.writer import Uplink


class Passing:
    def __init__(
        self,
        desk: Desk,
        courier: Courier,
        uplink: Uplink,
        resuming: Resuming,
        handshakes: Handshakes,
        losses: Losses,
    ) -> None:
        self._desk = desk
        self._courier = courier
        self._uplink = uplink
        self._resuming = resuming
        self._handshakes = handshakes
        self._losses = losses

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """Whether a message of so many bytes that begins so is to be given in parts. It must come on a POST of ours, be
        the answer to what that asked, and show that first."""
        role = self._desk.role_if_open(channel)
        if (
            not isinstance(role, UpPostRole)
            or not PARTS_MIN_BYTES <= size_bytes <= self._desk.limits.reply_size_max_bytes
        ):
            return False
        front = read_front(beginning)
        return (
            front is not None and role.number == front.number and self._exchange_of(role.link, front.number) is not None
        )

    def receive_whole(self, role: ChildRole | UpPostRole | UpStreamRole, pieces: tuple[bytes, ...]) -> bool:
        """A large message came. True if it was passed on; else it has to be read."""
        link = role.link
        answer = read_whole(pieces)
        exchange = None if answer is None else self._exchange_of(link, answer.number)
        if answer is None or exchange is None:
            return False
        self._begin(link, exchange, answer.number)
        if not isinstance(role, ChildRole):
            role.has_spoken = True
        if isinstance(role, UpPostRole) and role.number == answer.number:
            self._uplink.receive_settled(role)
        self._courier.pass_answer(link.session_of(exchange), exchange, answer.pieces)
        return True

    def read(self, link: Link, number: int, message: bytes) -> tuple[bytes, ...] | None:
        """What follows the envelope of a large message. None: it is not the answer to that call, or is to be read."""
        answer = read_whole((message,))
        is_its = answer is not None and answer.number == number and self._exchange_of(link, number) is not None
        return answer.pieces if answer is not None and is_its else None

    def check(self, channel: ChannelId, role: Role | None, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        """Raises LocalProtocolError where this cannot be a part: the message does not pass, or is larger than said."""
        if not isinstance(role, UpPostRole):
            return  # it crossed the end of its channel
        passage = role.passage
        if size_bytes and (passage is not None or not pieces or not self.passes(channel, pieces[0], size_bytes)):
            raise LocalProtocolError(f"channel {channel} gets the first part of a message that does not pass")
        left_bytes = size_bytes or (None if passage is None else passage.left_bytes)
        if left_bytes is not None and sum(map(len, pieces)) > left_bytes:
            raise LocalProtocolError(f"channel {channel} gets more than the {left_bytes} bytes that were to come")

    def receive_first(self, role: UpPostRole, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        """The first part of what `passes`."""
        link, number, channel = role.link, role.number, role.channel
        front = read_front(pieces[0])
        assert front is not None
        assert number == front.number
        assert channel is not None
        exchange = self._exchange_of(link, number)
        assert exchange is not None
        session = link.session_of(exchange)
        self._begin(link, exchange, number)
        role.has_spoken = True
        left_bytes = size_bytes - sum(map(len, pieces))
        sink = self._courier.pass_answer(
            session,
            exchange,
            (pieces[0][front.size_bytes :], *pieces[1:]),
            size_bytes=size_bytes - front.size_bytes,
        )
        if not left_bytes:
            self._uplink.receive_settled(role)
            return
        role.passage = Passage(sink, session, left_bytes, heard_at=self._desk.now)
        session.passing += 1
        self._uplink.expect_part(role, self._desk.now)

    def receive_part(self, role: UpPostRole, pieces: tuple[bytes, ...]) -> None:
        """The next part."""
        passage, part_bytes = role.passage, sum(map(len, pieces))
        if passage is None or not part_bytes:
            return  # its client is gone, or nothing came
        passage.heard_at = self._desk.now
        passage.left_bytes -= part_bytes
        assert passage.left_bytes >= 0
        is_taken = self._desk.pass_on(passage.sink, pieces)
        if not passage.left_bytes:
            self._end(role, passage)
            self._uplink.receive_settled(role)
        elif not is_taken:
            self._end(role, passage)
            self._desk.close(role.channel, reason="its client is gone")

    def receive_close(self, role: UpPostRole, detail: str) -> None:
        """The server's reply is over before all of it came."""
        passage = role.passage
        assert passage is not None
        self._end(role, passage)
        text = f"the server's answer was cut off, with {passage.left_bytes} bytes to come: {detail}"
        self._desk.note("warning", text, role.link.plan.id)
        self._desk.cut(passage.sink, "the server's answer was cut off")

    def handle_silence(self, role: UpPostRole) -> bool:
        """A part may be overdue. True if it is not."""
        return role.passage is not None and self._uplink.expect_part(role, role.passage.heard_at)

    def _end(self, role: UpPostRole, passage: Passage) -> None:
        role.passage = None
        passage.session.passing -= 1

    def _exchange_of(self, link: Link, number: int) -> Exchange | None:
        """The call of that number, if its answer may be passed on unread.

        Where client and server do not speak the same revision, there may be something to be restored in it.
        """
        exchange = link.pending.get(number)
        if not isinstance(exchange, Exchange) or not exchange.is_plain or not link.is_plain or link.leaving:
            return None
        if exchange.state is not ExchangeState.SENT or exchange.lacking is not None:
            return None
        session = link.session_of(exchange)
        if link.upstream.state is State.CLOSED or session.features is not features_of(link.upstream.revision):
            return None
        return exchange if self._courier.can_pass(exchange) else None

    def _begin(self, link: Link, exchange: Exchange, number: int) -> None:
        """The call is answered."""
        del link.pending[number]
        self._resuming.forget(link, number)
        self._uplink.expect_none(exchange)
        link.upstream.receive_proof()
        self._handshakes.health[link.plan.id].receive_proof()
        exchange.step(ExchangeInput.REPLY)
        self._losses.forget(link, exchange)
