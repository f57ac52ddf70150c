"""A forward proxy that makes tunnels, for tests of the HTTP client."""

from __future__ import annotations

import anyio
from anyio.abc import ByteStream
from client_fakes import Peer

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def tunnel(peer: Peer) -> None:
    """A proxy: connects to the target of CONNECT, and carries the bytes of both."""
    request = await peer.request()
    assert request.startswith(b"CONNECT "), request
    host, _, port = request.split(b" ")[1].decode().rpartition(":")
    async with await anyio.connect_tcp(host.replace("server.invalid", "localhost"), int(port)) as far:
        await peer.send(ESTABLISHED)

        async def carry(source: ByteStream, sink: ByteStream, scope: anyio.CancelScope) -> None:
            try:
                while True:
                    await sink.send(await source.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry, peer.stream, far, tasks.cancel_scope)
            tasks.start_soon(carry, far, peer.stream, tasks.cancel_scope)
