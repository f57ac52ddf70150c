"""An asyncio transport as an anyio byte stream, for code that awaits its reads, and the transport below a stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import checkpoint


class TransportStream(asyncio.Protocol, ByteStream):
    """The bytes of a transport, as a stream. Nothing is read before `receive` asks for it, apart from one read at
    most."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._held: deque[bytes] = deque()  # one read at most
        self._is_eof = False
        self._is_lost = False
        self._is_blocked = False
        self._changed = anyio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._transport = transport
        transport.set_write_buffer_limits(0)
        transport.pause_reading()

    @property
    def untouched(self) -> asyncio.Transport | None:
        """The transport, if nothing was read from it yet."""
        return None if self._held or self._is_eof or self._transport.is_closing() else self._transport

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {SocketAttribute.raw_socket: lambda: self._transport.get_extra_info("socket")}

    def data_received(self, data: bytes) -> None:
        self._held.append(data)
        self._transport.pause_reading()
        self._notify()

    def eof_received(self) -> bool:
        self._is_eof = True
        self._notify()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._notify()

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await checkpoint()
        while not self._held:
            if self._is_eof:
                raise anyio.EndOfStream
            if self._is_lost:
                raise anyio.BrokenResourceError
            if not self._transport.is_closing():
                self._transport.resume_reading()
            await self._changed.wait()
        data = self._held.popleft()
        if len(data) > max_bytes:
            self._held.appendleft(data[max_bytes:])
        return data[:max_bytes]

    async def send(self, item: bytes) -> None:
        await checkpoint()
        if self._is_lost or self._transport.is_closing():
            raise anyio.BrokenResourceError
        self._transport.write(item)
        while self._is_blocked:
            if self._is_lost:
                raise anyio.BrokenResourceError
            await self._changed.wait()

    async def send_eof(self) -> None:
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    async def aclose(self) -> None:
        self._transport.abort()
        await checkpoint()


def transport_of(stream: ByteStream) -> asyncio.Transport | None:
    """Returns the transport below a stream that was just connected, to be taken over. Returns None if the stream must
    stay: with TLS, on another event loop, or if something was read from it already.

    anyio offers no public way to the transport. If it cannot be found, the stream serves as well, at a higher cost.
    """
    if isinstance(stream, TransportStream):
        return stream.untouched
    transport = getattr(stream, "_transport", None)
    if not hasattr(transport, "set_protocol"):
        return None
    transport = cast(asyncio.Transport, transport)
    reader = transport.get_protocol()
    if transport.is_closing() or getattr(reader, "is_at_eof", True) or getattr(reader, "read_queue", True):
        return None
    return transport
