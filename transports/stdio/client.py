"""A client on a pair of descriptors, usually our own stdin and stdout, as one downstream channel.

Source: 2024-11-05 to 2026-07-28, basic/transports, "stdio".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import anyio

from ...core.base.effects import Close, Send
from ...core.base.events import Cause, End, PipeOpening
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.wire.ndjson import Line, LineReader, Oversize
from ...core.wire.oversize import answer_for
from ..base.descriptors import Descriptor
from ..base.gate import Gate
from ..base.port import Port
from .lines import read_lines, write_lines
from .outbox import Outbox

STDOUT: Final = 1
STDERR: Final = 2


async def at_once(channel: ChannelId) -> None:
    """Returns at once: a `wait_answered` for callers that do not wait for open calls."""


def _ignore(line: str) -> None:
    """Drops a log line."""


async def serve_pipe(
    port: Port,
    opening: PipeOpening,
    limits: Limits,
    *,
    stdin_fd: int = 0,
    stdout_fd: int = STDOUT,
    wait_answered: Callable[[ChannelId], Awaitable[None]] = at_once,
    log: Callable[[str], None] = _ignore,
    protocols: bool | None = None,
) -> None:
    """Serves one client on a pair of descriptors until it leaves or the channel is closed.

    The end of the client's input does not end the session: the client may still read. The channel is closed when
    `wait_answered` has returned (no call of this channel is open) and everything is written, or after `limits.drain_s`.
    A client that is paused and has closed its end is closed after `limits.drain_s` as well.

    While stdout is served it carries messages and nothing else: whatever else this process prints to it goes to stderr.

    Args:
        protocols: True to use callbacks of asyncio's event loop, False for the portable code; None: callbacks wherever
            possible.
    """
    with _reserved(stdout_fd) as reserved_fd, Descriptor(stdin_fd) as source, Descriptor(reserved_fd) as sink:
        await _PipeClient(port, limits, log, protocols=protocols).serve(opening, source, sink, wait_answered)


@contextlib.contextmanager
def _reserved(fd: int) -> Iterator[int]:
    if fd != STDOUT:
        yield fd
        return
    _flush()
    own_fd = os.dup(fd)
    try:
        os.dup2(STDERR, fd)
        yield own_fd
    finally:
        _flush()
        os.dup2(own_fd, fd)
        os.close(own_fd)


def _flush() -> None:
    with contextlib.suppress(OSError):  # a full device fails here too; the writer of messages will report it
        print(end="", flush=True)  # unlike sys.stdout.flush(), this works where sys.stdout is None


class _PipeClient:
    """The client at the other end of the pipe, as an `Outlet`."""

    def __init__(self, port: Port, limits: Limits, log: Callable[[str], None], *, protocols: bool | None) -> None:
        self._port = port
        self._limits = limits
        self._log = log
        self._protocols = protocols
        self._outbox = Outbox()
        self._gate = Gate()
        self._is_closing = False
        self._written = anyio.Event()

    def send(self, order: Send) -> None:
        self._outbox.put(order.message)

    def close(self, order: Close) -> None:
        self._is_closing = True
        self._outbox.end()

    def pause(self) -> None:
        self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    async def serve(
        self,
        opening: PipeOpening,
        source: Descriptor,
        sink: Descriptor,
        wait_answered: Callable[[ChannelId], Awaitable[None]],
    ) -> None:
        self._channel = self._port.open(opening, self)
        self._cause = Cause(End.DONE)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, source, wait_answered)
                tasks.start_soon(self._write, sink)
                tasks.start_soon(self._watch, source)
                await self._written.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._port.closed(self._channel, self._cause)

    async def _read(self, source: Descriptor, wait_answered: Callable[[ChannelId], Awaitable[None]]) -> None:
        lines = LineReader(line_size_max_bytes=self._limits.request_size_max_bytes)
        size_bytes = self._limits.read_size_bytes
        await read_lines(source, lines, self._gate, self._take, read_size_bytes=size_bytes, protocols=self._protocols)
        if not self._is_closing:
            self._cause = Cause(End.GONE, detail="the client closed its end")
        with anyio.move_on_after(self._limits.drain_s):
            await wait_answered(self._channel)
            self._outbox.end()
            await self._written.wait()
        self._written.set()

    async def _watch(self, source: Descriptor) -> None:
        """Ends the channel of a client that is gone while it is not read: its server may never take what has come, and
        then nobody would read the end of its input."""
        while True:
            await self._gate.wait_shut()
            with anyio.move_on_after(self._limits.drain_s) as scope:
                await self._gate.wait_open()
            if scope.cancelled_caught and source.is_hung_up:
                self._cause = Cause(End.GONE, detail="the client closed its end")
                self._written.set()
                return

    def _take(self, lines: Sequence[Line | Oversize]) -> None:
        for line in lines:
            if not self._is_closing:
                self._take_line(line)

    def _take_line(self, line: Line | Oversize) -> None:
        if isinstance(line, Line):
            self._port.message(self._channel, line.data)
        else:
            limit = self._limits.request_size_max_bytes
            self._log(f"dropped a line of {line.size_bytes} bytes from the client, the limit is {limit}")
            refusal = answer_for(line.head, line.size_bytes, limit, is_request=True, tail=line.tail)
            if refusal is not None:
                self._outbox.put(refusal, is_reported=False)

    async def _write(self, sink: Descriptor) -> None:
        try:
            stall_timeout_s, protocols = self._limits.write_timeout_s, self._protocols
            await write_lines(
                self._outbox, sink, self._report_sent, stall_timeout_s=stall_timeout_s, protocols=protocols
            )
        except TimeoutError:
            waited_s = self._limits.write_timeout_s
            self._cause = Cause(End.TIMED_OUT, detail=f"the client read nothing for {waited_s:g} s")
        except OSError as error:
            self._cause = Cause(End.GONE, detail=f"the client does not read any more: {error.strerror}")
        self._written.set()

    def _report_sent(self, size_bytes: int) -> None:
        if not self._is_closing:
            self._port.sent(self._channel, size_bytes)
