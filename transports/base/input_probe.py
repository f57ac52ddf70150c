"""Whether something waits to be read on a socket: asked of the system, as the event loop may not have looked yet."""

from __future__ import annotations

import select
import sys
from typing import Protocol


class Socket(Protocol):
    def fileno(self) -> int: ...


class InputProbe:
    """Of one connection. One that has no socket never has input."""

    __slots__ = ("_fd", "_poll")

    def __init__(self, socket: Socket | None) -> None:
        self._fd = -1 if socket is None else socket.fileno()
        if self._fd >= 0 and sys.platform != "win32":
            self._poll = select.poll()
            self._poll.register(self._fd, select.POLLIN)

    def has_input(self) -> bool:
        """Whether bytes, the stream's end or an error are there. Never waits."""
        if self._fd < 0:
            return False
        if sys.platform == "win32":
            return bool(select.select([self._fd], [], [], 0)[0])
        return bool(self._poll.poll(0))
