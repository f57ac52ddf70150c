"""The portable driver of upstream HTTP connections: an anyio stream, on any event loop, with two tasks per connection.

The tasks live as long as the connection. The writer waits for the next request, so a request costs no task, no cancel
scope and no timer. On asyncio, a connection without TLS may be handed over to a `ProtocolDriver` as soon as it is made.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

from ...core.base.events import Cause, End
from ..base.dialer import LOST, Dialer, Unreachable
from ..base.input_probe import InputProbe
from ..base.stream_socket import socket_of
from .connection import Connection, Step

_log: Final = logging.getLogger("isthmus.http")

LINGER_S: Final = 1.0
"""Seconds a connection that takes no more bytes may still deliver the response that says why."""


class StreamDriver:
    """Makes one connection and carries its bytes. Run it as a task: `tasks.start_soon(driver.run)`.

    Args:
        hand_over: called with the new stream before anything is read or written. Returns True if it took the stream
            over.
    """

    def __init__(
        self, connection: Connection, dialer: Dialer, read_size_bytes: int, hand_over: Callable[[ByteStream], bool]
    ) -> None:
        self._connection = connection
        self._dialer = dialer
        self._read_size = read_size_bytes
        self._hand_over = hand_over
        self._scope = anyio.CancelScope()
        self._probe: InputProbe | None = None
        self._has_request = anyio.Event()
        self._resumed: anyio.Event | None = None  # while the connection holds back its reply

    def wake(self) -> None:
        self._has_request.set()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()

    def close(self) -> None:
        self._scope.cancel()

    def has_input(self) -> bool:
        return self._probe is not None and self._probe.has_input()

    def rest(self) -> None:
        """Releases nothing: what could be released is little beside two tasks."""

    async def run(self) -> None:
        """Connects, and carries bytes until the connection is closed or handed over."""
        connection = self._connection
        stream: ByteStream | None = None
        is_ours = True
        try:
            with self._scope:
                stream = await self._dialer.connect(connection.alpn)
                is_ours = self._scope.cancel_called or not self._hand_over(stream)
                if is_ours:
                    self._probe = InputProbe(socket_of(stream))
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._write, stream)
                        await self._read(stream)
                        tasks.cancel_scope.cancel()
        except Unreachable as error:
            connection.receive_unreachable(str(error), is_version_refused=error.is_alpn_refused)
        except Exception:  # a failure of one connection must not end the others
            _log.exception("a connection to a server failed")
            connection.fail(Cause(End.BROKEN, "internal error"))
        finally:
            if is_ours:
                connection.retire()
                if stream is not None:
                    with anyio.CancelScope(shield=True), contextlib.suppress(*LOST):
                        await stream.aclose()
                connection.settle()

    async def _write(self, stream: ByteStream) -> None:
        connection = self._connection
        while True:
            await self._has_request.wait()
            self._has_request = anyio.Event()
            if not connection.begin():
                return
            try:
                while (piece := connection.next_piece()) is not None:
                    await stream.send(piece)
            except LOST:
                # The reader notices the end too, after whatever the server sent before it.
                await anyio.sleep(LINGER_S)
                connection.give_up()
                return
            connection.receive_written()

    async def _read(self, stream: ByteStream) -> None:
        """Reads until the connection can no longer be used."""
        connection = self._connection
        step = Step.READ
        while step is not Step.CLOSE:
            if step is Step.READ:
                data: bytes | None
                try:
                    data = await stream.receive(self._read_size)
                except anyio.EndOfStream:
                    data = b""
                except LOST:
                    data = None
                step = connection.receive(data)
            elif step is Step.TURN:
                await checkpoint()
                step = connection.advance()
            else:
                self._resumed = anyio.Event()
                await self._resumed.wait()
                self._resumed = None
                step = connection.advance()
