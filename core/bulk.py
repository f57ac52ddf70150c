"""Inputs in bulk, for a driver that wants to do less for each message: several messages at once, one message in pieces
or in parts, and all that was learnt of a channel in one moment.

None of them is needed. Each has the result of the inputs of `Engine` that it stands for: the same effects in the same
order, except that no effect is carried out in between. A channel is paused after all that came on it, or not at all if
it has ended. `tests/core/engine/test_bulk.py` compares both for random conversations. Only `receive_messages` orders
`SendEvents`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base.effects import Effect
from .base.errors import OUT_OF_MEMORY
from .base.events import Cause, Connected, End, Opening
from .base.ids import ChannelId
from .base.input_check import no_cause, no_message
from .endpoints.exhausted import end_exhausted
from .engine import Engine
from .jsonrpc import envelope
from .routing.router import UPSTREAM_ROLES
from .state.upstream_channels import DuplexRole, UpstreamPostRole, UpstreamStreamRole
from .upstream.progress import row_at

_SPEAKING_ROLES = (DuplexRole, UpstreamPostRole, UpstreamStreamRole)


class BulkEngine(Engine):
    """An engine that takes inputs in bulk."""

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """True if a large message that begins to arrive from a server is passed on in parts.

        The driver then reports it with `receive_part` as it arrives. Otherwise the driver collects the whole message
        and reports it with `receive_message`.

        Args:
            beginning: the first `envelope_edges.EDGE_BYTES` of the message, or more.
            size_bytes: the size of the whole message.
        """
        return self._router.passthrough.passes(channel, beginning, size_bytes)

    def receive_messages(self, channel: ChannelId, messages: Sequence[bytes], now: float) -> list[Effect]:
        """Reports several messages that arrived together, in their order.

        The result is that of `receive_message` for each. Events for HTTP clients may be ordered together as
        `SendEvents`.
        """
        for message in messages:
            if not isinstance(message, bytes):
                raise no_message(message)
        effects = self._context.begin(now, channel)
        if channel in self._context.unopened:
            self._context.check_was_open(channel, "a message")
        at = 0
        while at < len(messages):
            row = row_at(messages, at)
            if row is None:
                self._receive(channel, messages[at])
                at += 1
                continue
            role = self._context.role_if_open(channel)
            if not isinstance(role, _SPEAKING_ROLES) or not self._router.channels.receive_progress(role, row):
                for message in row.messages:
                    self._receive(channel, message)
            at += len(row.messages)
        return effects

    def receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> list[Effect]:
        """Reports one message as the pieces in which it was read. The result is that of `receive_message`."""
        for piece in pieces:
            if not isinstance(piece, bytes):
                raise no_message(piece)
        effects = self._context.begin(now, channel)
        if channel in self._context.unopened:
            self._context.check_was_open(channel, "a message")
        role = self._context.role_if_open(channel)
        try:
            if isinstance(role, UPSTREAM_ROLES) and not envelope.is_marked(pieces):
                self._router.channels.receive_pieces(role, channel, pieces)
            else:
                self._receive(channel, b"".join(pieces))
        except OUT_OF_MEMORY:
            self._close(channel, end_exhausted(self._context, channel, role))
        return effects

    def receive_part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        now: float,
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        """Reports a part of a message for which `passes` returned True.

        Args:
            pieces: the bytes of this part. In the first part, the first piece holds the `beginning` given to `passes`.
            opening: with the first part, that the channel is open.
            size_bytes: the size of the whole message with the first part; 0 with any other.
            cause: with the last part, how the channel ended.

        Raises:
            LocalProtocolError: the message is not passed on in parts, or is larger than announced. Nothing has changed.
        """
        for piece in pieces:
            if not isinstance(piece, bytes):
                raise no_message(piece)
        if cause is not None and (type(cause) is not Cause or type(cause.end) is not End):
            raise no_cause(cause)
        if opening is None and channel in self._context.unopened:
            self._context.check_was_open(channel, "a message")
        passthrough, role = self._router.passthrough, self._context.role_if_open(channel)
        passthrough.check(channel, role, pieces, size_bytes)
        effects = self._context.begin(now, channel, ends_source=cause is not None)
        if opening is not None:
            self._open(channel, opening)
        if isinstance(role, UpstreamPostRole):
            passthrough.receive_first(role, pieces, size_bytes) if size_bytes else passthrough.receive_part(
                role, pieces
            )
        self._context.end_source()
        if cause is not None:
            self._close(channel, cause)
        return effects

    def receive_at_once(
        self,
        channel: ChannelId,
        now: float,
        *,
        opening: Opening | None = None,
        message: bytes | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        """Reports all that was learnt of a channel in one moment.

        The result is that of `receive_open`, `receive_message`, `receive_sent` and `receive_close` in this order.

        Raises:
            LocalProtocolError: as those do. Nothing has changed.
        """
        if message is not None and not isinstance(message, bytes):
            raise no_message(message)
        if cause is not None and (type(cause) is not Cause or type(cause.end) is not End):
            raise no_cause(cause)
        has_come = opening is not None or message is not None
        effects = self._context.begin(now, channel if has_come else None, ends_source=cause is not None)
        if has_come and size_bytes:  # else the message would be taken before the size is refused
            self._context.check_sent(channel, size_bytes)
        if type(opening) is Connected and message is not None and cause is not None:
            if self._endpoints.fast_path.receive_reply(channel, opening, message, cause):
                return effects
        if opening is not None:
            self._open(channel, opening)
        if message is not None:
            self._receive(channel, message)
        if has_come and (size_bytes or cause is not None):
            self._context.end_source()
        if size_bytes:
            self._context.receive_sent(channel, size_bytes)
        if cause is not None:
            self._close(channel, cause)
        return effects
