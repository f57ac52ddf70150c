"""The socket below an anyio stream, where there is one. A closed stream on uvloop has none, and anyio's attributes then
fail."""

from __future__ import annotations

import socket
import struct
from typing import Final

from anyio.abc import ByteStream, SocketAttribute

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid
_CLOSED: Final = (AttributeError, ValueError)  # which of them depends on whether the socket was looked at before


def socket_of(stream: ByteStream) -> socket.socket | None:
    try:
        return stream.extra(SocketAttribute.raw_socket, None)
    except _CLOSED:
        return None


def peer_uid_of(raw: socket.socket) -> int | None:
    """Returns the user id of the process at the other end of a Unix socket, as it was when it connected; None for any
    other socket, and on systems that do not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or raw.family != socket.AF_UNIX:
        return None
    try:
        _, uid, _ = _CREDENTIALS.unpack(raw.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    except OSError:
        return None
    return int(uid)


def peer_host_of(stream: ByteStream) -> str:
    """Returns the peer's IP address; the empty string if it has none or is gone."""
    try:
        address = stream.extra(SocketAttribute.remote_address, None)
    except _CLOSED:
        return ""
    return address[0] if isinstance(address, tuple) else ""
