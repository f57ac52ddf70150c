"""File descriptors, read and written without blocking the event loop: pipes, sockets and terminals through readiness,
files and devices, which know no readiness, in worker threads.
"""

from __future__ import annotations

import contextlib
import os
import stat
from types import TracebackType

import anyio
from anyio import to_thread


class Descriptor:
    """A file descriptor that is read or written as its kind allows; a context within which it does not block.

    Leaving the context puts the blocking mode back, for others may share what lies behind the descriptor. It is not
    closed.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self.fd = fd
        self.is_stream = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        # A terminal's mode is the shell's too, so it stays: reading what is there does not block.
        self.is_readiness_known = self.is_stream or os.isatty(fd)
        self._was_blocking = True

    def __enter__(self) -> Descriptor:
        self._was_blocking = os.get_blocking(self.fd)
        if self.is_stream:
            os.set_blocking(self.fd, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_blocking:
            os.set_blocking(self.fd, True)

    def keep_mode(self) -> None:
        """To be called when an event loop was told to watch it: uvloop makes non-blocking whatever it watches."""
        if self._was_blocking and not self.is_stream:
            os.set_blocking(self.fd, True)

    async def wait_readable(self) -> None:
        if self.is_readiness_known:
            await anyio.wait_readable(self.fd)

    async def read(self, size: int) -> bytes | None:
        """Up to `size` bytes, b"" at the end, None if there was nothing after all. To be called when readable."""
        if self.is_readiness_known:
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
            if not self.is_stream:
                left = left[await to_thread.run_sync(os.write, self.fd, left) :]
                continue
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self.fd, left) :]
            if left:
                with anyio.fail_after(stall_timeout_s):
                    await anyio.wait_writable(self.fd)
