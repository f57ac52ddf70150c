"""An upstream server on a Unix domain socket, which speaks as on stdio: one JSON message a line, both ways."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from ...core.base.budget import Share
from ...core.base.effects import Close, Send
from ...core.base.events import Cause, Connected, End
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.wire.ndjson import Line, LineReader, Oversize
from ..base.descriptors import Descriptor
from ..base.gate import Gate
from ..base.port import Port
from ..stdio.lines import messages_in, read_lines, write_lines
from ..stdio.outbox import Outbox

FLUSH_GRACE_S: Final = 1.0
"""Seconds that queued messages may still take to reach the server when the session is closed."""


@dataclass(frozen=True)
class UnixAddress:
    """The address of a server on a Unix domain socket.

    Args:
        path: of the socket.
    """

    path: str


class UnixServer:
    """One session with a server on a Unix socket, from the connect to its end, as the `Outlet` of its channel. Run it
    as a task: `tasks.start_soon(server.run)`.

    Args:
        log: called with lines for people, without line ends.
        share: takes the bytes of a message that is arriving and is larger than most.
        protocols: True to use callbacks of asyncio's event loop, False for the portable code; None: callbacks wherever
            possible.
    """

    def __init__(
        self,
        address: UnixAddress,
        channel: ChannelId,
        port: Port,
        limits: Limits,
        *,
        log: Callable[[str], None],
        share: Share | None = None,
        protocols: bool | None = None,
    ) -> None:
        self._address = address
        self._channel = channel
        self._port = port
        self._limits = limits
        self._log = log
        self._share = share
        self._protocols = protocols
        self._outbox = Outbox()
        self._gate = Gate()
        self._over = anyio.Event()
        self._written = anyio.Event()
        self._is_closing = False

    def send(self, order: Send) -> None:
        self._outbox.put(order.message)

    def close(self, order: Close) -> None:
        self._is_closing = True
        self._outbox.end()
        self._over.set()

    def pause(self) -> None:
        if not self._is_closing:
            self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    async def run(self) -> None:
        """Connects, and runs until either side ends the session."""
        cause = Cause(End.BROKEN, "shutting down")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.setblocking(False)
                problem = await self._connect(connection)
                cause = await self._live(connection.fileno()) if problem is None else problem
        finally:
            if self._share is not None:
                self._share.give_all_back()
            self._port.closed(self._channel, Cause(End.DONE) if self._is_closing else cause)

    async def _connect(self, connection: socket.socket) -> Cause | None:
        """Connects. Returns the cause of a failure, or None."""
        path = self._address.path
        try:
            code = connection.connect_ex(path)
            with anyio.fail_after(self._limits.connect_timeout_s):
                while code == errno.EAGAIN:  # the server's backlog is full
                    await anyio.sleep(0.05)
                    code = connection.connect_ex(path)
        except TimeoutError:
            detail = f"no connection to {path} within {self._limits.connect_timeout_s:g} s"
            return Cause(End.UNREACHABLE, detail, unsent=True)
        except (OSError, ValueError) as error:  # a path too long, or with a NUL
            return Cause(End.UNREACHABLE, f"cannot connect to {path}: {error}", unsent=True)
        if code == 0:
            return None
        hint = {errno.ENOENT: "; does the server run?", errno.ECONNREFUSED: "; is the server running?"}.get(code, "")
        return Cause(End.UNREACHABLE, f"cannot connect to {path}: {os.strerror(code)}{hint}", unsent=True)

    async def _live(self, fd: int) -> Cause:
        if not self._is_closing:
            self._port.opened(self._channel, Connected())
        with Descriptor(fd) as source, Descriptor(fd) as sink:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, sink)
                tasks.start_soon(self._read, source)
                await self._over.wait()
                if self._is_closing:
                    with anyio.move_on_after(FLUSH_GRACE_S):
                        await self._written.wait()
                tasks.cancel_scope.cancel()
        return Cause(End.BROKEN, "it closed the connection")

    async def _read(self, source: Descriptor) -> None:
        lines = LineReader(line_size_max_bytes=self._limits.reply_size_max_bytes, share=self._share)
        size_bytes = self._limits.read_size_bytes
        await read_lines(source, lines, self._gate, self._take, read_size_bytes=size_bytes, protocols=self._protocols)
        self._over.set()

    async def _write(self, sink: Descriptor) -> None:
        try:
            await write_lines(self._outbox, sink, self._report_sent, protocols=self._protocols)
        except OSError:
            self._over.set()
        self._written.set()

    def _take(self, lines: Sequence[Line | Oversize]) -> None:
        if self._is_closing:
            return
        limit = self._limits.reply_size_max_bytes
        if messages := messages_in(lines, limit, self._log):
            self._port.arrived(self._channel, messages)

    def _report_sent(self, size_bytes: int) -> None:
        if not self._is_closing:
            self._port.sent(self._channel, size_bytes)
