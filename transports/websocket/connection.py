"""One WebSocket after its handshake, from either side: messages in and out, pings, and an end in order.

Two tasks and a timer live as long as the connection. The *reader* feeds `Frames` and hands each message over; paused,
it reads nothing. The *writer* frames what is queued, in parts, so that pings and pongs find their place between those
of a long message. Whoever begins the end (the owner, the peer, a rule that was broken) has one Close frame queued
behind all that was said before; then the peer's is waited for, but not for long.

Source: RFC 6455, 5.5 and 7.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

from ...core.base.effects import Cause, Close, End, Send
from ...core.base.ids import ChannelId
from ...core.base.limits import KIB, Limits
from ...core.wire.websocket import INTERNAL_ERROR, describe_close, end_of_part, truncate_reason
from ..base.dialer import LOST
from ..base.gate import Gate
from ..base.outbox import Outbox
from ..base.port import Port
from ..base.wire import Silent
from .frames import Closed, Failed, FrameEvent, Frames, Ping, Text

PART_BYTES: Final = 64 * KIB
"""A longer message leaves in parts, each framed when its turn comes: nothing else waits for the whole of it."""
TURN_EVENTS: Final = 200
"""Frames that are taken before others get their turn: some milliseconds of work."""
CLOSE_WAIT_S: Final = 2.0
"""How long the peer may take to answer a Close frame. It has nothing else to do."""


class Socket:
    """Carries the messages of one channel, as its `Outlet`, until either side ends it.

    Orders may be given from the beginning; what is sent before `carry` runs is queued.

    Args:
        peer: what to call the other end: "the client", "the server".
        gone: how a channel ended whose peer went away.
    """

    _channel: ChannelId

    def __init__(self, port: Port, limits: Limits, *, peer: str, gone: End) -> None:
        self._port = port
        self._limits = limits
        self._peer = peer
        self._gone = gone
        self._gate = Gate()
        self._frames: Frames
        self._outbox: Outbox | None = None  # once it carries
        self._queue: deque[tuple[bytes, bool]] = deque()  # messages, and whether the owner ordered them
        self._at = 0  # how much of the first one is framed
        self._pong: bytes | None = None
        self._is_ping_due = False
        self._has_heard = False  # since the last look
        self._close: tuple[int | None, str] | None = None  # the Close frame, once the end has begun
        self._cause: Cause | None = None
        self._is_closed = anyio.Event()  # our Close frame has left, or never will
        self._is_peer_closed = anyio.Event()

    def send(self, order: Send) -> None:
        self._put(order.message, is_ordered=True)

    def close(self, order: Close) -> None:
        self._end(Cause(End.DONE), order.code, order.reason)

    def pause(self) -> None:
        if self._close is None:
            self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    async def carry(self, stream: ByteStream, frames: Frames, *, greeting: bytes = b"", received: bytes = b"") -> Cause:
        """Carry messages until the end, and say how it came. The stream stays open.

        Args:
            greeting: to be written before anything else.
            received: what was read of the stream already.
        """
        self._frames = frames
        outbox = self._outbox = Outbox(stream, write_timeout_s=self._limits.write_timeout_s)
        outbox.put(greeting)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, outbox)
            tasks.start_soon(self._read, stream, received)
            tasks.start_soon(self._keep_alive)
            await self._is_closed.wait()
            with anyio.move_on_after(CLOSE_WAIT_S):
                await self._is_peer_closed.wait()
            tasks.cancel_scope.cancel()
        assert self._cause is not None
        return self._cause

    def _put(self, message: bytes, *, is_ordered: bool) -> None:
        """Queue a message; after the end has begun it is dropped. Only what was ordered is reported as sent."""
        if self._close is None:
            self._queue.append((message, is_ordered))
            self._wake()

    def _refuse(self, head: bytes) -> None:
        """A message over the limit began so, and its connection is about to be closed. What is queued still leaves."""
        raise NotImplementedError

    # --- Reader -----------------------------------------------------------------------------------------------------

    async def _read(self, stream: ByteStream, received: bytes) -> None:
        self._frames.receive_bytes(received)
        count = 0
        try:
            while not self._is_peer_closed.is_set():
                await self._gate.wait_open()
                event = self._frames.next_event()
                if event is None:
                    self._frames.receive_bytes(await stream.receive(self._limits.read_size_bytes))
                    self._has_heard = True
                    continue
                self._take(event)
                count += 1
                if count % TURN_EVENTS == 0:  # one read can hold thousands of tiny frames
                    await checkpoint()
        except LOST:
            self._cut(Cause(self._gone, f"{self._peer} hung up without closing the WebSocket"))
        else:
            await self._hurry()

    def _take(self, event: FrameEvent) -> None:
        match event:
            case Text(data):
                if self._close is None:
                    self._port.message(self._channel, data)
            case Ping(payload):
                self._pong = payload  # of several only the last need be answered (5.5.3)
                self._wake()
            case Failed(code, reason, head) if self._close is None:
                if head:
                    self._refuse(head)
                self._end(Cause(End.BROKEN, f"{self._peer} was closed with {code}: {reason}"), code, reason)
            case Closed(code, reason):
                self._queue.clear()  # nobody would read it
                self._at = 0
                self._end(Cause(self._gone, f"{self._peer} {describe_close(code, reason)}"), code, "")
                self._is_peer_closed.set()

    async def _hurry(self) -> None:
        """Who has left, or is as good as gone, is not waited for until it reads."""
        with anyio.move_on_after(CLOSE_WAIT_S):
            await self._is_closed.wait()
        self._is_closed.set()
        self._is_peer_closed.set()

    # --- Writer -----------------------------------------------------------------------------------------------------

    async def _write(self, outbox: Outbox) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = self._frame(outbox)
                if outbox.is_empty:
                    await outbox.wait()
                    continue
                size_bytes = await outbox.flush()
                if size_bytes and self._close is None:
                    self._port.sent(self._channel, size_bytes)
        except Silent:
            waited_s = self._limits.write_timeout_s
            self._cut(Cause(End.TIMED_OUT, f"{self._peer} took nothing for {waited_s:g} s"))
        except LOST:
            self._cut(Cause(self._gone, f"{self._peer} hung up without closing the WebSocket"))
        self._is_closed.set()

    def _frame(self, outbox: Outbox) -> bool:
        """Frame what is to be written next. True if nothing follows."""
        if self._pong is not None:
            outbox.put(self._frames.encode_pong(self._pong))
            self._pong = None
        if self._is_ping_due:
            outbox.put(self._frames.encode_ping())
            self._is_ping_due = False
        size_bytes = 0
        while self._queue and size_bytes < PART_BYTES:
            message, is_ordered = self._queue[0]
            start, end = self._at, end_of_part(message, self._at, PART_BYTES)
            is_whole = end == len(message)
            outbox.put(self._frames.encode_text(message[start:end].decode(), is_last=is_whole))
            outbox.message_bytes += end - start if is_ordered else 0
            size_bytes += end - start
            self._at = end
            if is_whole:
                self._queue.popleft()
                self._at = 0
        if self._close is None or self._queue:
            return False
        outbox.put(self._frames.encode_close(*self._close))
        return True

    def _wake(self) -> None:
        if self._outbox is not None:
            self._outbox.wake()

    # --- The end ----------------------------------------------------------------------------------------------------

    def _end(self, cause: Cause, code: int | None, reason: str) -> None:
        """Begin the end, unless it has begun."""
        if self._close is None:
            self._cause = cause
            self._close = (code, truncate_reason(reason))
            self._gate.open()  # from now on only the peer's Close frame matters
            self._wake()

    def _cut(self, cause: Cause) -> None:
        """The stream is of no more use."""
        self._end(cause, None, "")
        self._is_closed.set()
        self._is_peer_closed.set()

    async def _keep_alive(self) -> None:
        """A ping after each round in which nothing was heard; who answers none of several is gone."""
        unanswered = 0
        while self._close is None:
            await anyio.sleep(self._limits.keep_alive_s)
            if self._has_heard or not self._gate.is_open:  # unheard while paused is our own doing
                is_silent = not self._has_heard
                self._has_heard = False
                unanswered = 0
                if not is_silent:
                    continue
            elif unanswered == self._limits.pings_unanswered_max:
                waited_s = unanswered * self._limits.keep_alive_s
                detail = f"answered no ping for {waited_s:g} s"
                self._end(Cause(End.TIMED_OUT, f"{self._peer} {detail}"), INTERNAL_ERROR, detail)
                await self._hurry()
                return
            else:
                unanswered += 1
            self._is_ping_due = True
            self._wake()
