"""A descriptor held in reserve, so that a client can be refused when no other is left.

The kernel completes connections without asking. Where a process has no descriptor to accept one, its client waits
until a time limit of its own. One descriptor, given up for a moment, is enough to accept the connection, answer it and
close it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import Final

from ...core.wire.http.error_responses import refusal

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a system call that found no descriptor: of the process, or of the whole system."""
REQUEST_READ_MAX_BYTES: Final = 64 * 1024
"""Bytes read of a refused connection: a head of the usual limit. Closing a socket with unread bytes could discard the
answer."""


_NO_DESCRIPTOR_LEFT: Final = "this server has no free file descriptor; try again later"


class Reserve:
    """The descriptor held for one listener."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self.fill()

    def fill(self) -> None:
        """Takes the descriptor, unless it is held. Where none is free, a later call takes it."""
        if self._fd is None:
            with contextlib.suppress(OSError):
                self._fd = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """Gives the descriptor up."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def turn_away(self, listener: socket.socket, count_max: int, *, is_told: bool = True) -> None:
        """Accepts the connections that wait, at most `count_max`, answers each with a 503 and closes it. Nothing
        blocks. Without the descriptor, they go on waiting.

        Args:
            listener: a socket that listens and does not block.
            is_told: clients get the answer; else they speak TLS, and are closed without one.
        """
        self.fill()
        for _ in range(count_max):
            if self._fd is None:
                return
            self.close()
            try:
                accepted, _ = listener.accept()
            except OSError:  # BlockingIOError: no connection is left
                return
            else:
                _refuse(accepted, turned_away(_NO_DESCRIPTOR_LEFT) if is_told else b"")
            finally:
                self.fill()


def turned_away(message: str) -> bytes:
    """Returns a whole 503 response, after which the connection is closed."""
    refused = refusal(503, message)
    lines = [b"HTTP/1.1 503 Service Unavailable", b"connection: close", b"retry-after: 1"]
    lines += [name + b": " + value for name, value in refused.headers]
    return b"\r\n".join([*lines, b"", refused.body])


def _refuse(accepted: socket.socket, answer: bytes) -> None:
    with accepted, contextlib.suppress(OSError):
        accepted.setblocking(False)
        accepted.send(answer)
        accepted.shutdown(socket.SHUT_WR)
        accepted.recv(REQUEST_READ_MAX_BYTES)
