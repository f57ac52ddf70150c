"""Messages as lines over file descriptors, and our own stdin and stdout as one downstream channel.

Descriptors are read and written without blocking the event loop: pipes, sockets and terminals through readiness,
files and devices, which know no readiness, in worker threads.

Source: 2024-11-05 to 2026-07-28, basic/transports, "stdio".
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Final

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from ..core.effects import Cause, Close, End, PipeOpening, Send
from ..core.ids import ChannelId
from ..core.limits import Limits
from ..core.wire.ndjson import Line, LineReader, Oversize, Truncated, encode_line
from ..core.wire.oversize import answer_for
from .port import Port

STDOUT: Final = 1
STDERR: Final = 2
TURN_LINES: Final = 100
"""Lines handed over before others get their turn: some milliseconds of work."""


class Descriptor:
    """A file descriptor that is read or written as its kind allows; a context within which it does not block.

    Leaving the context puts the blocking mode back, for others may share what lies behind the descriptor. It is not
    closed.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self.fd = fd
        self._is_stream = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        # A terminal's mode is the shell's too, so it stays; reading what is there does not block.
        self._is_readiness_known = self._is_stream or os.isatty(fd)
        self._was_blocking = True

    def __enter__(self) -> Descriptor:
        if self._is_stream:
            self._was_blocking = os.get_blocking(self.fd)
            os.set_blocking(self.fd, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_stream and self._was_blocking:
            os.set_blocking(self.fd, True)

    async def wait_readable(self) -> None:
        if self._is_readiness_known:
            await anyio.wait_readable(self.fd)

    async def read(self, size: int) -> bytes | None:
        """Up to `size` bytes, b"" at the end, None if there was nothing after all. To be called when readable."""
        if self._is_readiness_known:
            return self.read_now(size)
        return await to_thread.run_sync(self.read_now, size)

    def read_now(self, size: int) -> bytes | None:
        """As `read`. A stream that fails has ended."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    async def write(self, data: bytes, *, stall_timeout_s: float | None = None) -> None:
        """Write all of it.

        Raises:
            OSError: the reader is gone.
            TimeoutError: the reader took nothing for `stall_timeout_s`.
        """
        left = memoryview(data)
        while left:
            if not self._is_stream:
                left = left[await to_thread.run_sync(os.write, self.fd, left) :]
                continue
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self.fd, left) :]
            if left:
                with anyio.fail_after(stall_timeout_s):
                    await anyio.wait_writable(self.fd)


class Gate:
    """Open or shut: whoever comes while it is shut waits."""

    def __init__(self) -> None:
        self._opening: anyio.Event | None = None

    @property
    def is_open(self) -> bool:
        return self._opening is None

    def shut(self) -> None:
        if self._opening is None:
            self._opening = anyio.Event()

    def open(self) -> None:
        if self._opening is not None:
            self._opening.set()
            self._opening = None

    async def wait_open(self) -> None:
        while self._opening is not None:
            await self._opening.wait()


class Outbox:
    """Messages on their way out. Those that gather while a write is under way leave together in the next one."""

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._unreported_bytes = 0
        self._wake = anyio.Event()
        self._is_ended = False

    def put(self, message: bytes, *, is_reported: bool = True) -> None:
        """Queue a message; after `end` it is dropped. Only what the owner ordered is reported to it as sent."""
        if not self._is_ended:
            self._messages.append(message)
            self._unreported_bytes += 0 if is_reported else len(message)
            self._wake.set()

    def end(self) -> None:
        """Nothing more will come; what is queued still leaves."""
        self._is_ended = True
        self._wake.set()

    async def write_to(
        self, sink: Descriptor, report: Callable[[int], None], *, stall_timeout_s: float | None = None
    ) -> None:
        """Write what is queued and what will be, until the end; `report` the sizes written, framing not counted.

        Raises:
            OSError, TimeoutError: as `Descriptor.write`.
        """
        while True:
            if batch := self._messages:
                size_bytes = sum(map(len, batch)) - self._unreported_bytes
                self._messages, self._unreported_bytes = [], 0
                await sink.write(b"".join(map(encode_line, batch)), stall_timeout_s=stall_timeout_s)
                if size_bytes:
                    report(size_bytes)
            elif self._is_ended:
                return
            else:
                self._wake = anyio.Event()
                await self._wake.wait()


async def read_lines(
    source: Descriptor,
    lines: LineReader,
    gate: Gate,
    take: Callable[[Line | Oversize | Truncated], None],
    *,
    read_size_bytes: int,
) -> None:
    """Hand each line of `source` to `take` while the gate is open; return at the end of the stream."""
    while True:
        await gate.wait_open()
        await source.wait_readable()
        if not gate.is_open:
            continue
        data = await source.read(read_size_bytes)
        if data == b"":
            break
        await _hand_over(lines.receive_bytes(data or b""), take)
    for cut in lines.receive_eof():
        take(cut)


async def _hand_over(lines: Sequence[Line | Oversize], take: Callable[[Line | Oversize | Truncated], None]) -> None:
    """A read may hold thousands of short lines: now and then others get their turn."""
    left = iter(lines)
    try:
        for count, line in enumerate(left, 1):
            take(line)
            if count % TURN_LINES == 0:
                await checkpoint()
    except anyio.get_cancelled_exc_class():
        for line in left:  # they have been read, and nobody could read them again
            take(line)
        raise


async def at_once(channel: ChannelId) -> None:
    """Nothing to wait for."""


def _ignore(line: str) -> None:
    """Nobody reads the log."""


async def serve_pipe(
    port: Port,
    opening: PipeOpening,
    limits: Limits,
    *,
    stdin_fd: int = 0,
    stdout_fd: int = STDOUT,
    wait_answered: Callable[[ChannelId], Awaitable[None]] = at_once,
    log: Callable[[str], None] = _ignore,
) -> None:
    """Serve one client on a pair of descriptors until it leaves or the channel is closed.

    The client's end of input is not its departure: it may still read. So the channel is closed when `wait_answered` (no
    call of this channel is open) has returned and all is written, or after `limits.drain_s`.

    While stdout is served it carries messages and nothing else: what others in this process print goes to stderr.
    """
    with _reserved(stdout_fd) as reserved_fd, Descriptor(stdin_fd) as source, Descriptor(reserved_fd) as sink:
        await _PipeClient(port, limits, log).serve(opening, source, sink, wait_answered)


@contextlib.contextmanager
def _reserved(fd: int) -> Iterator[int]:
    if fd != STDOUT:
        yield fd
        return
    print(end="", flush=True)  # unlike sys.stdout.flush(), at home where there is no stdout object
    own_fd = os.dup(fd)
    try:
        os.dup2(STDERR, fd)
        yield own_fd
    finally:
        print(end="", flush=True)
        os.dup2(own_fd, fd)
        os.close(own_fd)


class _PipeClient:
    """The client at the other end, as an `Outlet`."""

    def __init__(self, port: Port, limits: Limits, log: Callable[[str], None]) -> None:
        self._port = port
        self._limits = limits
        self._log = log
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
                await self._written.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._port.closed(self._channel, self._cause)

    async def _read(self, source: Descriptor, wait_answered: Callable[[ChannelId], Awaitable[None]]) -> None:
        lines = LineReader(line_size_max_bytes=self._limits.request_size_max_bytes)
        await read_lines(source, lines, self._gate, self._take, read_size_bytes=self._limits.read_size_bytes)
        if not self._is_closing:
            self._cause = Cause(End.GONE, detail="the client closed its end")
        with anyio.move_on_after(self._limits.drain_s):
            await wait_answered(self._channel)
            self._outbox.end()
            await self._written.wait()
        self._written.set()

    def _take(self, line: Line | Oversize | Truncated) -> None:
        if self._is_closing:
            return
        if isinstance(line, Line):
            self._port.message(self._channel, line.data)
        elif isinstance(line, Truncated):
            self._log(f"the client's input ended within a line, which is dropped: {line.data[:80]!r}")
        else:
            limit = self._limits.request_size_max_bytes
            self._log(f"dropped a line of {line.size_bytes} bytes from the client, the limit is {limit}")
            refusal = answer_for(line.head, line.size_bytes, limit, is_request=True, tail=line.tail)
            if refusal is not None:
                self._outbox.put(refusal, is_reported=False)

    async def _write(self, sink: Descriptor) -> None:
        try:
            await self._outbox.write_to(sink, self._report_sent, stall_timeout_s=self._limits.write_timeout_s)
        except TimeoutError:
            waited_s = self._limits.write_timeout_s
            self._cause = Cause(End.TIMED_OUT, detail=f"the client read nothing for {waited_s:g} s")
        except OSError as error:
            self._cause = Cause(End.GONE, detail=f"the client does not read any more: {error.strerror}")
        self._written.set()

    def _report_sent(self, size_bytes: int) -> None:
        if not self._is_closing:
            self._port.sent(self._channel, size_bytes)
