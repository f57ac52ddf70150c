"""Ending a connection so that its peer cannot take the end for an orderly one."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

from anyio.abc import ByteStream, SocketAttribute


def cut(stream: ByteStream) -> None:
    """Make the closing of `stream` a reset, where it is a socket: what was not delivered yet is lost as well."""
    raw = stream.extra(SocketAttribute.raw_socket, None)
    if raw is not None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(raw.fileno())) as copy:
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
