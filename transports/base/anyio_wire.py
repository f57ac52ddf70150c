"""The portable driver of an HTTP connection: an anyio stream, on any event loop.

Two tasks live as long as the connection: the *reader* receives, the *writer* sends. The tests of `http_server` and
`reverse_proxy` run over this driver and over `asyncio_wire`, and expect the same of both.
"""

from __future__ import annotations

import anyio
from anyio import CancelScope
from anyio.abc import ByteStream, TaskGroup

from ...core.base.limits import Limits
from .clock import loop_clock
from .dialer import LOST
from .outbox import Outbox
from .wire import LINGER_S, Silent, WireUser


class StreamWire:
    """Moves the bytes of one stream, and closes it. Call `run` once.

    Attributes:
        connection: what is told of everything. Set before `run`.
    """

    connection: WireUser

    def __init__(self, stream: ByteStream, limits: Limits) -> None:
        self._stream = stream
        self._read_size_bytes = limits.read_size_bytes
        self._outbox = Outbox(stream, write_timeout_s=limits.write_timeout_s)
        self._now = loop_clock()
        self._deadline = float("inf")
        self._receiving: CancelScope | None = None
        self._waiting: CancelScope | None = None  # while reading is stopped
        self._is_read = True
        self._reads_again = anyio.Event()
        self._is_woken = False
        self._is_at_eof = False
        self._scope = CancelScope()
        self._tasks: TaskGroup  # set by `run`

    async def run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    self._tasks.start_soon(self._send)
                    await self._receive()
        finally:
            self.connection.stop()
            with anyio.move_on_after(LINGER_S, shield=True):
                try:
                    await self._stream.aclose()
                except (*LOST, RuntimeError):  # uvloop: RuntimeError if closed already
                    pass

    # --- Orders of the connection -----------------------------------------------------------------------------------

    def write(self, parts: list[bytes | bytearray]) -> bool:
        for part in parts:
            self._outbox.put(bytes(part))
        return False

    def read(self, is_wanted: bool) -> None:
        self._is_read = is_wanted
        if is_wanted:
            self._reads_again.set()
        elif self._receiving is not None:
            self._receiving.cancel()

    def set_timeout(self, timeout_s: float) -> None:
        self._deadline = self._now() + timeout_s
        for scope in (self._receiving, self._waiting):
            if scope is not None:
                scope.deadline = self._deadline

    def rest(self) -> None:
        self.set_timeout(float("inf"))

    def wake(self, at_once: bool) -> None:
        self._is_woken = True
        self._outbox.wake()

    def end_sending(self) -> None:
        self._tasks.start_soon(self._end_sending)

    def close(self) -> None:
        self._scope.cancel()

    # --- Tasks ------------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Receives until the connection is over. Behind the end of the stream only the timeout is left."""
        while True:
            if not self._is_read or self._is_at_eof:
                self._reads_again = anyio.Event()
                with CancelScope(deadline=self._deadline) as self._waiting:
                    await (anyio.sleep_forever() if self._is_at_eof else self._reads_again.wait())
                self._waiting = None
                if not self._is_read or self._is_at_eof:
                    self._ring()
                continue
            data = b""
            with CancelScope(deadline=self._deadline) as self._receiving:
                try:
                    data = await self._stream.receive(self._read_size_bytes)
                except LOST:
                    self._is_at_eof = True
                finally:
                    self._receiving = None
            if data:
                self.connection.receive_data(data)
            elif self._is_at_eof:
                self.connection.receive_eof()
            elif self._is_read:
                self._ring()

    def _ring(self) -> None:
        if self._now() >= self._deadline:
            self._deadline = float("inf")
            self.connection.handle_timeout()

    async def _send(self) -> None:
        """Sends until the connection is over."""
        try:
            while True:
                await self._outbox.wait()
                if self._is_woken:
                    self._is_woken = False
                    self.connection.handle_wake()
                while not self._outbox.is_empty:
                    await self._outbox.flush()
                    self.connection.handle_written()
        except LOST:
            self.connection.receive_refused()
        except Silent:
            self.connection.handle_stalled()

    async def _end_sending(self) -> None:
        try:
            await self._stream.send_eof()
        except (*LOST, RuntimeError):  # uvloop: RuntimeError if closed already; TLS has no half-close
            pass  # the peer notices the end when the connection closes
