"""Ending a connection so that its peer cannot take the end for an orderly one."""

from __future__ import annotations

import contextlib
import os
import socket
import struct


def cut(fd: int) -> None:
    """Make the closing of this socket a reset: what was not delivered yet is lost as well."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
