"""File descriptors, read and written without blocking the event loop. Pipes, sockets and terminals are waited for by
readiness; files and devices, which have no readiness, are used in worker threads."""

from __future__ import annotations

import contextlib
import os
import select
import stat
from types import TracebackType

import anyio
from anyio import to_thread


class Descriptor:
    """A file descriptor that is read and written as its kind allows. Use it as a context: inside, it does not block.

    Leaving the context restores the blocking mode, because other processes may share the open file. The descriptor is
    not closed.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self.fd = fd
        self.is_stream = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        # A terminal's mode is shared with the shell, so it is left alone. Reading it once readable does not block.
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
        """Restores blocking mode. Call it after an event loop began to watch the descriptor: uvloop makes those
        non-blocking."""
        if self._was_blocking and not self.is_stream:
            os.set_blocking(self.fd, True)

    async def wait_readable(self) -> None:
        if self.is_readiness_known:
            await anyio.wait_readable(self.fd)

    async def read(self, size: int) -> bytes | None:
        """Returns up to `size` bytes, b"" at the end of the stream, None if nothing was there after all. Call it when
        readable."""
        if self.is_readiness_known:
            return self.read_now(size)
        return await to_thread.run_sync(self.read_now, size)

    def read_now(self, size: int) -> bytes | None:
        """Reads as `read` does, in the calling thread. A stream that fails counts as ended."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    @property
    def is_hung_up(self) -> bool:
        """True if the other end is closed, whatever is left to be read. A file or a device has no other end."""
        if not self.is_stream:
            return False
        poll = select.poll()
        poll.register(self.fd, 0)  # asks for the end alone
        return bool(poll.poll(0))

    async def write(self, data: bytes, *, stall_timeout_s: float | None = None) -> None:
        """Writes all of `data`.

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
