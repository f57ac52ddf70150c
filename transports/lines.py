"""Messages as lines over file descriptors.

Descriptors are read and written without blocking the event loop: pipes, sockets and terminals through readiness,
files and devices, which know no readiness, in worker threads.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from ..core.wire.ndjson import Line, LineReader, Oversize, Truncated, encode_line
from ..core.wire.oversize import answer_for

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


def salvage(
    line: Oversize | Truncated, size_max_bytes: int, log: Callable[[str], None], *, source: str
) -> bytes | None:
    """What a server's line that is no message is taken for: an answer in its place, if it may be one.

    Args:
        source: what it stood in, for people.
    """
    if isinstance(line, Truncated):
        log(f"{source} ended within a line, which is dropped: {line.data[:80]!r}")
        return None
    log(f"dropped a line of {line.size_bytes} bytes, the limit is {size_max_bytes}: {line.head[:80]!r}")
    return answer_for(line.head, line.size_bytes, size_max_bytes, tail=line.tail)
