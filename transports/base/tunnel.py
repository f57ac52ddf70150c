"""A tunnel to a server through an HTTP proxy (CONNECT)."""

from __future__ import annotations

import anyio
import h11
from anyio.abc import ByteStream

from ...core.base.limits import Limits
from ...core.wire.http.egress import Proxy
from .endpoint import Address


class TunnelRefused(Exception):
    """Raised when the proxy does not make a tunnel. The message says why, and what to do."""


async def open_tunnel(stream: ByteStream, proxy: Proxy, address: Address, limits: Limits) -> None:
    """Has the proxy at the other end of `stream` connect to a server. After that, `stream` leads to the server.

    Raises:
        TunnelRefused: the proxy refused, or its response is not HTTP.
        OSError, or an exception of anyio in `LOST`: the connection broke.
    """
    host = f"[{address.host}]" if ":" in address.host else address.host
    target = f"{host}:{address.port}".encode()
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_size_max_bytes)
    request = h11.Request(method="CONNECT", target=target, headers=[(b"host", target), *proxy.headers])
    await stream.send((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    received_size = 0
    try:
        while not isinstance(event := http.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                data = await _receive(stream, limits.read_size_bytes)
                received_size += len(data)
                if received_size > limits.head_size_max_bytes:  # interim responses count
                    raise h11.RemoteProtocolError(f"head over the limit of {limits.head_size_max_bytes} bytes")
                http.receive_data(data)
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("no response to CONNECT")
        if event.status_code < 300 and http.trailing_data[0]:
            raise h11.RemoteProtocolError("bytes behind the response, before the server was asked for any")
    except h11.RemoteProtocolError as error:
        start = f"the proxy {proxy.where}, which {proxy.source} names, does not answer CONNECT as a proxy would"
        raise TunnelRefused(f"{start}: {str(error)[:200]}; {proxy.mend(address.host)}") from None
    if event.status_code >= 300:
        raise TunnelRefused(proxy.explain_refusal(event.status_code, tuple(event.headers), address.host))


async def _receive(stream: ByteStream, size_bytes: int) -> bytes:
    """Returns received bytes; b"" at the end of the stream."""
    try:
        return await stream.receive(size_bytes)
    except anyio.EndOfStream:
        return b""
