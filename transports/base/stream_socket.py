"""The socket below an anyio stream, where there is one. A closed stream on uvloop has none, and anyio's attributes then
fail."""

from __future__ import annotations

import socket
from typing import Final

from anyio.abc import ByteStream, SocketAttribute

_CLOSED: Final = (AttributeError, ValueError)  # which of them depends on whether the socket was looked at before


def socket_of(stream: ByteStream) -> socket.socket | None:
    try:
        return stream.extra(SocketAttribute.raw_socket, None)
    except _CLOSED:
        return None


def peer_host_of(stream: ByteStream) -> str:
    """Returns the peer's IP address; the empty string if it has none or is gone."""
    try:
        address = stream.extra(SocketAttribute.remote_address, None)
    except _CLOSED:
        return ""
    return address[0] if isinstance(address, tuple) else ""
