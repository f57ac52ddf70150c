"""The portable driver of a client's HTTP connection: an anyio stream, on any event loop.

Two tasks live as long as the connection: the *reader* receives, the *writer* sends. The connection's jobs are further
tasks. The tests of `http_server` run over this driver and over `asyncio_driver`, and expect the same of both.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import anyio
from anyio import CancelScope
from anyio.abc import ByteStream, TaskGroup

from ...core.access.identity import Peer
from ..base.abort import cut
from ..base.clock import loop_clock
from ..base.outbox import Outbox
from ..base.stream_socket import is_unix, peer_host_of, peer_of, socket_of
from ..base.wire import LINGER_S, Silent
from ..tls.stream import TlsStream
from .connection import Connection
from .shared import ServerContext

LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class StreamWire:
    """Serves one stream, and closes it. Call `run` once."""

    def __init__(self, stream: ByteStream, listening: ServerContext) -> None:
        self._stream = stream
        self._read_size_bytes = listening.limits.read_size_bytes
        self._outbox = Outbox(stream, write_timeout_s=listening.limits.write_timeout_s)
        self._now = loop_clock()
        self._deadline = float("inf")
        self._receiving: CancelScope | None = None
        self._waiting: CancelScope | None = None  # while reading is stopped
        self._is_read = True
        self._reads_again = anyio.Event()
        self._is_woken = False
        self._scope = CancelScope()
        self._tasks: TaskGroup  # set by `run`
        self.connection = Connection(self, listening)

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
                except (anyio.BrokenResourceError, OSError, RuntimeError):  # uvloop: RuntimeError if closed already
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

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._tasks.start_soon(work)

    async def take_stream(self) -> ByteStream:
        while self._receiving is not None:
            await anyio.lowlevel.checkpoint()
        return self._stream

    def end_sending(self) -> None:
        self._tasks.start_soon(self._end_sending)

    def close(self) -> None:
        self._scope.cancel()

    def cut(self) -> None:
        raw = socket_of(self._stream)
        if raw is not None:
            cut(raw.fileno())
        if isinstance(self._stream, TlsStream):
            self._stream.session.cut()

    @property
    def peer(self) -> Peer:
        if isinstance(self._stream, TlsStream):
            return Peer(peer_host_of(self._stream), is_secure=True, certificate=self._stream.session.certificate)
        raw = socket_of(self._stream)
        return peer_of(raw) if is_unix(raw) else Peer(peer_host_of(self._stream))

    # --- Tasks ------------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Receives until the stream ends or the connection is over."""
        while True:
            if not self._is_read:
                self._reads_again = anyio.Event()
                with CancelScope(deadline=self._deadline) as self._waiting:
                    await self._reads_again.wait()
                self._waiting = None
                if not self._is_read:
                    self._ring()
                continue
            data = b""
            with CancelScope(deadline=self._deadline) as self._receiving:
                try:
                    data = await self._stream.receive(self._read_size_bytes)
                except (anyio.EndOfStream, *LOST):
                    self._receiving = None
                    self.connection.receive_eof()
                    return
                finally:
                    self._receiving = None
            if data:
                self.connection.receive_data(data)
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
            self.connection.receive_lost()
        except Silent:
            self.connection.handle_stalled()

    async def _end_sending(self) -> None:
        try:
            await self._stream.send_eof()
        except (*LOST, OSError, RuntimeError):  # uvloop: RuntimeError if closed already
            pass  # the client notices the end when the connection closes
