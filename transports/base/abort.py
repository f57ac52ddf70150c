"""Aborts a connection with a TCP reset, so that its peer cannot take the end for an orderly one."""

from __future__ import annotations

import contextlib
import os
import socket
import struct


def cut(fd: int) -> None:
    """Makes the coming close of this socket a reset. Data that was not delivered yet is lost."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
