"""One WebSocket after its handshake, from either side: messages in and out, pings, and the closing handshake.

Two tasks and a timer live as long as the connection. The *reader* feeds `Frames` and reports each message; while
paused, it reads nothing. The *writer* frames queued messages in parts, so that pings and pongs can be sent between the
parts of a long message. The end is begun by the owner, by the peer, or by a violation of the protocol. One Close frame
is then queued behind all messages sent before, and the peer's Close frame is waited for, for `CLOSE_WAIT_S`.

Source: RFC 6455, 5.5 and 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

from ...core.base.effects import Close, Send
from ...core.base.events import Cause, End
from ...core.base.ids import ChannelId
from ...core.base.limits import KIB, Limits
from ...core.wire.websocket import INTERNAL_ERROR, POLICY_VIOLATION, describe_close, end_of_part, truncate_reason
from ..base.dialer import LOST
from ..base.gate import Gate
from ..base.outbox import Outbox
from ..base.port import Port
from ..base.wire import Silent
from .frames import Closed, Failed, FrameEvent, Frames, Ping, Text

PART_BYTES: Final = 64 * KIB
"""A longer message is sent in parts of this size, each framed when it is its turn: other frames need not wait for the
whole."""
TURN_EVENTS: Final = 32
"""Frames that are handled before other connections get their turn: some milliseconds of work."""
TURN_BYTES: Final = 64 * KIB
"""The size of a message after which others get their turn. It is handled before another one is inflated."""
CLOSE_WAIT_S: Final = 2.0
"""Seconds the peer may take to answer a Close frame. It has nothing else to do."""


class Socket:
    """Carries the messages of one channel, as its `Outlet`, until either side ends it.

    Orders may be given from the beginning; messages sent before `carry` runs are queued.

    Args:
        peer: the name of the other end in messages: "the client", "the server".
        gone: the kind of end to report when the peer has gone away.
        holds: whether the peer may still use the connection. It is asked at each interval of the pings, and after
            `wait_change`.
        wait_change: returns when that may have changed.
    """

    _channel: ChannelId

    def __init__(
        self,
        port: Port,
        limits: Limits,
        *,
        peer: str,
        gone: End,
        holds: Callable[[], bool] = lambda: True,
        wait_change: Callable[[], Awaitable[None]] = anyio.sleep_forever,
    ) -> None:
        self._port = port
        self._limits = limits
        self._peer = peer
        self._gone = gone
        self._gate = Gate()
        self._holds = holds
        self._wait_change = wait_change
        self._frames: Frames
        self._outbox: Outbox | None = None  # set by `carry`
        self._queue: deque[tuple[bytes, bool]] = deque()  # messages, and whether the owner ordered them
        self._framed_bytes = 0  # bytes of the first message that are framed
        self._pong: bytes | None = None
        self._is_ping_due = False
        self._has_heard = False  # since the last check
        self._close: tuple[int | None, str] | None = None  # the Close frame, once the end has begun
        self._cause: Cause | None = None
        self._is_closed = anyio.Event()  # our Close frame was written, or never will be
        self._is_peer_closed = anyio.Event()

    def send(self, order: Send) -> None:
        self._put(order.message, is_ordered=True)

    def close(self, order: Close) -> None:
        if order.drops:
            self._queue.clear()
            self._cut(Cause(End.BROKEN, order.reason))
        else:
            self._end(Cause(End.DONE), order.code, order.reason)

    def pause(self) -> None:
        if self._close is None:
            self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    async def carry(self, stream: ByteStream, frames: Frames, *, greeting: bytes = b"", received: bytes = b"") -> Cause:
        """Carries messages until the end, and returns its cause. The stream stays open.

        Args:
            greeting: bytes to write first.
            received: bytes that were read from the stream already.
        """
        self._frames = frames
        outbox = self._outbox = Outbox(stream, write_timeout_s=self._limits.write_timeout_s)
        outbox.put(greeting)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, outbox)
                tasks.start_soon(self._read, stream, received)
                tasks.start_soon(self._keep_alive)
                await self._is_closed.wait()
                with anyio.move_on_after(CLOSE_WAIT_S):
                    await self._is_peer_closed.wait()
                tasks.cancel_scope.cancel()
        finally:
            frames.stop()
        assert self._cause is not None
        return self._cause

    def _put(self, message: bytes, *, is_ordered: bool) -> None:
        """Queues a message; after the end has begun it is dropped. Only messages with `is_ordered` are reported as
        sent."""
        if self._close is None:
            self._queue.append((message, is_ordered))
            self._wake()

    def _refuse(self, head: bytes) -> None:
        """Handles a message over the limit, which began with `head`. The connection is about to be closed; messages
        queued here are still sent."""
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
                is_large = type(event) is Text and len(event.data) >= TURN_BYTES
                if is_large or count % TURN_EVENTS == 0:  # one read can hold thousands of tiny frames
                    await checkpoint()
        except LOST:
            self._cut(Cause(self._gone, f"{self._peer} hung up without closing the WebSocket"))
        else:
            await self._finish_soon()

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
                self._queue.clear()  # the peer reads no more
                self._framed_bytes = 0
                self._end(Cause(self._gone, f"{self._peer} {describe_close(code, reason)}"), code, "")
                self._is_peer_closed.set()

    async def _finish_soon(self) -> None:
        """Waits at most `CLOSE_WAIT_S` for the writer to finish, because the peer has left or does not respond."""
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
        """Frames what is to be written next. Returns True after the Close frame, which is the last."""
        if self._pong is not None:
            outbox.put(self._frames.encode_pong(self._pong))
            self._pong = None
        if self._is_ping_due:
            outbox.put(self._frames.encode_ping())
            self._is_ping_due = False
        size_bytes = 0
        while self._queue and size_bytes < PART_BYTES:
            message, is_ordered = self._queue[0]
            start, end = self._framed_bytes, end_of_part(message, self._framed_bytes, PART_BYTES)
            is_whole = end == len(message)
            outbox.put(self._frames.encode_text(message[start:end].decode(), is_last=is_whole))
            outbox.message_bytes += end - start if is_ordered else 0
            size_bytes += end - start
            self._framed_bytes = end
            if is_whole:
                self._queue.popleft()
                self._framed_bytes = 0
        if self._close is None or self._queue:
            return False
        outbox.put(self._frames.encode_close(*self._close))
        return True

    def _wake(self) -> None:
        if self._outbox is not None:
            self._outbox.wake()

    # --- The end ----------------------------------------------------------------------------------------------------

    def _end(self, cause: Cause, code: int | None, reason: str) -> None:
        """Begins the end, unless it has begun."""
        if self._close is None:
            self._cause = cause
            self._close = (code, truncate_reason(reason))
            self._gate.open()  # reading goes on for the peer's Close frame
            self._wake()

    def _cut(self, cause: Cause) -> None:
        """Ends the connection without a closing handshake, because the stream is broken."""
        self._end(cause, None, "")
        self._is_closed.set()
        self._is_peer_closed.set()

    async def _keep_alive(self) -> None:
        """Sends a ping after each interval in which nothing was received, and ends the connection after
        `Limits.pings_unanswered_max` pings without an answer."""
        unanswered = 0
        while self._close is None:
            if not self._holds():
                text = "the token or certificate of the client has expired, or was revoked"
                self._end(Cause(End.TIMED_OUT, text), POLICY_VIOLATION, text)
                await self._finish_soon()
                return
            with anyio.move_on_after(self._limits.keep_alive_s):
                await self._wait_change()
                continue
            if self._has_heard or not self._gate.is_open:  # while paused we do not read, so silence proves nothing
                is_silent = not self._has_heard
                self._has_heard = False
                unanswered = 0
                if not is_silent:
                    continue
            elif unanswered == self._limits.pings_unanswered_max:
                waited_s = unanswered * self._limits.keep_alive_s
                detail = f"answered no ping for {waited_s:g} s"
                self._end(Cause(End.TIMED_OUT, f"{self._peer} {detail}"), INTERNAL_ERROR, detail)
                await self._finish_soon()
                return
            else:
                unanswered += 1
            self._is_ping_due = True
            self._wake()
