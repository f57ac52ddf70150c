"""The asyncio driver of an HTTP connection: a protocol, without a task of its own.

Received bytes are parsed, reported and answered within the callback that brought them. A transport buffers at most one
write: it calls `pause_writing` as soon as bytes are left over, and `resume_writing` once all have left.

One timer serves both deadlines, for bytes to arrive and for bytes to leave. It is set anew only if it would ring too
late, and when it rings too early it is set again. The tests of `http_server` and `reverse_proxy` run over this driver
and over `anyio_wire`, and expect the same of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, cast

from ...core.base.limits import KIB
from .wire import FOREVER, WireUser

JOIN_MAX_BYTES: Final = 64 * KIB
"""Parts of one write are joined up to this size. Above it, copying costs more than it saves."""

_log: Final = logging.getLogger("isthmus.http")


class ProtocolWire(asyncio.Protocol):
    """Moves the bytes of one connection, and closes it.

    Args:
        write_timeout_s: how long the peer may take nothing.

    Attributes:
        connection: what is told of everything. Set before the transport is.
    """

    __slots__ = (
        "_deadline",
        "_has_ended",
        "_is_blocked",
        "_is_made",
        "_is_resuming",
        "_loop",
        "_on_close",
        "_timer",
        "_timer_at",
        "_transport",
        "_unsent_bytes",
        "_write_deadline",
        "_write_timeout_s",
        "connection",
    )

    connection: WireUser

    def __init__(self, write_timeout_s: float) -> None:
        self._write_timeout_s = write_timeout_s
        self._on_close: Callable[[], None] | None = None  # called once, when the connection is closed
        self._loop = asyncio.get_running_loop()
        self._deadline = FOREVER
        self._write_deadline = FOREVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = FOREVER
        self._is_blocked = False
        self._unsent_bytes = 0
        self._has_ended = False
        self._is_made = False
        self._is_resuming = False
        self._transport: asyncio.Transport  # set by `connection_made`

    # --- Callbacks of the transport ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._transport = transport
        self._is_made = True
        transport.set_write_buffer_limits(0)
        if self._has_ended:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self.connection.receive_data(data)
        except Exception:
            self._fail()

    def eof_received(self) -> bool:
        try:
            self.connection.receive_eof()
        except Exception:
            self._fail()
        return True  # keeps the transport open, so that a due reply can still be written

    def connection_lost(self, error: Exception | None) -> None:
        try:
            self.connection.receive_lost()
        except Exception:
            self._fail()

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._is_resuming = True
        self._write_deadline = FOREVER
        try:
            self.connection.handle_written()
        except Exception:
            self._fail()
        finally:
            self._is_resuming = False

    def _fail(self) -> None:
        """Ends this connection after an error of our own, which must not disturb other clients."""
        _log.exception("a connection failed")
        self.connection.stop()

    # --- Orders of the connection -----------------------------------------------------------------------------------

    def write(self, parts: list[bytes | bytearray]) -> bool:
        transport = self._transport
        if transport.is_closing():  # the client is gone; `connection_lost` follows
            return False
        if len(parts) == 1:
            transport.write(parts[0])
        elif sum(map(len, parts)) <= JOIN_MAX_BYTES:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)
        if self._is_blocked:
            self._unsent_bytes = transport.get_write_buffer_size()
            self._write_deadline = self._loop.time() + self._write_timeout_s
            self._ring_by(self._write_deadline)
        return not (self._is_blocked or transport.is_closing())

    def read(self, is_wanted: bool) -> None:
        if self._transport.is_closing():
            return
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def set_timeout(self, timeout_s: float) -> None:
        if timeout_s == FOREVER:
            self._deadline = FOREVER
            return
        self._deadline = deadline = self._loop.time() + timeout_s
        if deadline < self._timer_at:
            self._ring_by(deadline)

    def rest(self) -> None:
        self._deadline = FOREVER
        if self._timer is not None and self._write_deadline == FOREVER:
            self._timer.cancel()
            self._timer, self._timer_at = None, FOREVER

    def wake(self, at_once: bool) -> None:
        if not at_once:
            self._loop.call_soon(self.wake, True)
            return
        try:
            self.connection.handle_wake()
        except Exception:
            self._fail()

    def end_sending(self) -> None:
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the last write may have found that the client is gone
                self._transport.write_eof()

    def close(self) -> None:
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._is_resuming:  # asyncio closes a transport twice that is aborted while it resumes its protocol
            self._loop.call_soon(self._transport.abort)
        elif self._is_made:
            self._transport.abort()
        if self._on_close is not None:
            self._on_close()

    # --- Time -------------------------------------------------------------------------------------------------------

    def _ring_by(self, at: float) -> None:
        """Sets the timer to ring at `at`, or before."""
        if at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, FOREVER
        now = self._loop.time()
        try:
            if now >= self._write_deadline:
                self._look_at_progress(now)
            if now >= self._deadline:
                self._deadline = FOREVER
                self.connection.handle_timeout()
        except Exception:
            self._fail()
        if not self._has_ended:
            self._ring_by(min(self._deadline, self._write_deadline))

    def _look_at_progress(self, now: float) -> None:
        """Reports a peer that took nothing since the last check, and gives one that took some bytes more time."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes >= self._unsent_bytes:
            self._write_deadline = FOREVER
            self.connection.handle_stalled()
        else:
            self._unsent_bytes = unsent_bytes
            self._write_deadline = now + self._write_timeout_s
