"""The socket below a stream of anyio, where there is one: uvloop has none any more below what is closed, and anyio's
attributes then fail as such."""

from __future__ import annotations

import socket
from typing import Final

from anyio.abc import ByteStream, SocketAttribute

_CLOSED: Final = (AttributeError, ValueError)  # by whether the socket was looked at before


def socket_of(stream: ByteStream) -> socket.socket | None:
    try:
        return stream.extra(SocketAttribute.raw_socket, None)
    except _CLOSED:
        return None


def peer_host_of(stream: ByteStream) -> str:
    """The address of the peer; nothing where it has none, or is gone."""
    try:
        address = stream.extra(SocketAttribute.remote_address, None)
    except _CLOSED:
        return ""
    return address[0] if isinstance(address, tuple) else ""
