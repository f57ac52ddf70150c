"""One peer on a stream of lines, such as the stdin and stdout of a process, for a driver that reads and writes bytes.

A `LineChannel` joins the framing of stdio to one channel of the engine: it cuts what arrives into messages, answers for
those that are too long, turns the orders for the channel into bytes, and reports what was written of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .base.effects import Close, Effect, Note, Pause, Resume, Send, check_channel
from .base.ids import ChannelId
from .base.limits import Limits
from .wire.ndjson import Line, LineReader, Oversize, encode_line
from .wire.oversize import answer_for

if TYPE_CHECKING:
    from .engine import Engine

_LIMITS: Final = Limits()


class LineChannel:
    """The other end of a stream of lines: a server process, or a client on stdin and stdout.

    A driver reports the opening and the end of the channel itself. In between it reports what it reads
    (`receive_bytes`, `receive_eof`), unless it `is_paused`, gives the object each order for its `channel`
    (`receive_order`), writes what `take` returns and says so (`written`). Once it `is_closed`, the driver ends the
    stream: that of a client after all that is to be written, that of a server after a grace. What arrives after that
    is dropped.

    Each input returns orders of the engine, which the driver queues as it does those of the engine's own inputs.

    Args:
        channel: that of a `Dial`, or of `Engine.new_channel` for a client.
        is_client: the peer sends requests, so a line may have `Limits.request_size_max_bytes`, and the peer itself gets
            the error for a longer one. A line of a server may have `Limits.reply_size_max_bytes`. The error for a
            longer one goes to the client whose response it was.

    Attributes:
        is_paused: the driver reads nothing.
        is_closed: a `Close` has come.
    """

    def __init__(self, engine: Engine, channel: ChannelId, *, is_client: bool, limits: Limits = _LIMITS) -> None:
        self.channel = channel
        self.is_paused = False
        self.is_closed = False
        self._engine = engine
        self._is_client = is_client
        self._line_size_max_bytes = limits.request_size_max_bytes if is_client else limits.reply_size_max_bytes
        self._reader = LineReader(line_size_max_bytes=self._line_size_max_bytes)
        self._lines: list[bytes] = []
        self._waiting_bytes = 0  # of ordered messages in `_lines`
        self._taken_bytes = 0  # of those that `take` has returned

    @property
    def has_output(self) -> bool:
        """True if `take` returns something."""
        return bool(self._lines)

    def receive_bytes(self, data: bytes, now: float) -> list[Effect]:
        """Takes bytes that arrived, cut anywhere.

        Raises:
            LocalProtocolError: the end has come already.
        """
        return self._report(self._reader.receive_bytes(data), now)

    def receive_eof(self, now: float) -> list[Effect]:
        """Takes the end of what arrives. It ends the last line, too."""
        return self._report(self._reader.receive_eof(), now)

    def receive_order(self, order: Effect) -> None:
        """Carries out an order of the engine for this channel.

        Raises:
            LocalProtocolError: the order is for another channel, or for none.
        """
        check_channel(order, self.channel)
        if isinstance(order, Send):
            self._lines.append(encode_line(order.message))
            self._waiting_bytes += len(order.message)
        elif isinstance(order, Pause):
            self.is_paused = True
        elif isinstance(order, Resume):
            self.is_paused = False
        elif isinstance(order, Close):
            self.is_paused, self.is_closed = False, True

    def take(self) -> bytes:
        """Removes and returns what is to be written; empty if there is nothing."""
        data = b"".join(self._lines)
        self._lines.clear()
        self._taken_bytes += self._waiting_bytes
        self._waiting_bytes = 0
        return data

    def written(self, now: float) -> list[Effect]:
        """Reports that all that `take` has returned was written. A driver does so after each `take`."""
        if not self._taken_bytes:
            return []
        size_bytes, self._taken_bytes = self._taken_bytes, 0
        return self._engine.receive_sent(self.channel, size_bytes, now)

    def _report(self, lines: Sequence[Line | Oversize], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for line in lines:
            if self.is_closed:
                break
            if isinstance(line, Line):
                effects += self._engine.receive_message(self.channel, line.data, now)
                continue
            limit = self._line_size_max_bytes
            effects.append(Note("warning", f"got a line of {line.size_bytes} bytes, expected at most {limit}: dropped"))
            answer = answer_for(line.head, line.size_bytes, limit, is_request=self._is_client, tail=line.tail)
            if answer is None:
                continue
            if self._is_client:
                self._lines.append(encode_line(answer))  # the engine knows nothing of it, so it is not reported
            else:
                effects += self._engine.receive_message(self.channel, answer, now)
        return effects
