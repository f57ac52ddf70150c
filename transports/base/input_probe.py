"""A check whether a socket has unread input. It asks the operating system, as the event loop may not have polled
yet."""

from __future__ import annotations

import select
import sys
from typing import Protocol


class Socket(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int: ...


class InputProbe:
    """A probe of one connection. A connection without a socket never has input."""

    __slots__ = ("_fd", "_poll")

    def __init__(self, socket: Socket | None) -> None:
        self._fd = -1 if socket is None else socket.fileno()
        if self._fd >= 0 and sys.platform != "win32":
            self._poll = select.poll()
            self._poll.register(self._fd, select.POLLIN)

    def has_input(self) -> bool:
        """True if bytes, the end of the stream or an error are waiting. Never blocks."""
        if self._fd < 0:
            return False
        if sys.platform == "win32":
            return bool(select.select([self._fd], [], [], 0)[0])
        return bool(self._poll.poll(0))
