"""The socket below an anyio stream, where there is one. A closed stream on uvloop has none, and anyio's attributes then
fail."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Final, TypeGuard

from anyio.abc import ByteStream, SocketAttribute

from ...core.access.identity import Peer

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid
_CLOSED: Final = (AttributeError, ValueError)  # which of them depends on whether the socket was looked at before


def socket_of(stream: ByteStream) -> socket.socket | None:
    try:
        return stream.extra(SocketAttribute.raw_socket, None)
    except _CLOSED:
        return None


def is_unix(raw: socket.socket | None) -> TypeGuard[socket.socket]:
    """True for a Unix socket."""
    return raw is not None and raw.family == socket.AF_UNIX


def peer_of(raw: socket.socket) -> Peer:
    """Returns the peer of a Unix socket, with the user id that its process had when it connected, where the system
    tells that."""
    option = getattr(socket, "SO_PEERCRED", None)
    uid: int | None = None
    if option is not None:
        with contextlib.suppress(OSError):
            _, uid, _ = _CREDENTIALS.unpack(raw.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return Peer(uid=uid, is_unix=True)


def peer_host_of(stream: ByteStream) -> str:
    """Returns the peer's IP address; the empty string if it has none or is gone."""
    try:
        address = stream.extra(SocketAttribute.remote_address, None)
    except _CLOSED:
        return ""
    return address[0] if isinstance(address, tuple) else ""
