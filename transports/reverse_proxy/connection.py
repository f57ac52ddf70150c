"""A connection to a transparent server: bytes on the socket's side, h11 events on the other."""

from __future__ import annotations

import contextlib
import select

import anyio
import h11
from anyio.abc import ByteStream

from ...core.base.limits import Limits
from ..base.dialer import LOST
from ..base.stream_socket import socket_of


class UpstreamConnection:
    """One connection, for one request after another.

    Attributes:
        was_used: it has carried a request before, so the server may have closed it since.
        has_heard: a byte of the current response has arrived.
        is_stream: it is in use for an event stream that a client listens on.
    """

    def __init__(self, stream: ByteStream, limits: Limits) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_size_max_bytes)
        self.was_used = False
        self.has_heard = False
        self.is_stream = False
        self.idle_since = 0.0
        self._read_size = limits.read_size_bytes
        self._write_timeout_s = limits.write_timeout_s

    async def send(self, *events: h11.Event) -> None:
        """Sends the events.

        Raises:
            OSError, or an exception of anyio in `LOST`: the server takes no more. What it sent before may still be
                received.
        """
        parts = [part for event in events for part in self.http.send_with_data_passthrough(event) or ()]
        await self.send_bytes(b"".join(parts))

    async def send_bytes(self, data: bytes) -> None:
        """Sends bytes that are not HTTP, with the errors of `send`."""
        if data:
            with anyio.fail_after(self._write_timeout_s):
                await self.stream.send(data)

    async def receive(self) -> bytes:
        """Returns received bytes; b"" at the end of the stream, orderly or not."""
        try:
            data = await self.stream.receive(self._read_size)
        except LOST:
            return b""
        self.has_heard = True
        return data

    def recycle(self) -> bool:
        """Prepares the connection for another request. Returns False if it cannot carry one."""
        http = self.http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE or http.trailing_data != (b"", False):
            return False
        http.start_next_cycle()
        self.was_used = True
        self.has_heard = False
        return True

    def is_alive(self) -> bool:
        """True if nothing has arrived since the last response. Input would be the end of the stream, or bytes that no
        request asked for."""
        raw = socket_of(self.stream)
        if raw is None:
            return True
        poll = select.poll()
        poll.register(raw.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True), contextlib.suppress(*LOST):
            await anyio.aclose_forcefully(self.stream)
