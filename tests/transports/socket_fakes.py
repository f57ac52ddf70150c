"""Independent WebSocket peers: frames put together by hand, and wsproto's own connection over a stream."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import anyio
import http_fakes
import ports
import pytest
import trio.testing
from anyio.abc import ByteStream
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.extensions import Extension, PerMessageDeflate

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(
    opcode: int, payload: bytes = b"", *, is_last: bool = True, is_masked: bool = True, is_compressed: bool = False
) -> bytes:
    """One frame, valid or not."""
    head = bytearray([is_last << 7 | is_compressed << 6 | opcode])
    size, masked = len(payload), is_masked << 7
    if size < 126:
        head.append(masked | size)
    elif size < 1 << 16:
        head += bytes([masked | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([masked | 127]) + size.to_bytes(8, "big")
    if not is_masked:
        return bytes(head) + payload
    key = os.urandom(4)
    return bytes(head) + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def closing(code: int, reason: str = "", *, is_masked: bool = True) -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big") + reason.encode(), is_masked=is_masked)


class SocketPeer:
    """The other end of a WebSocket, on either side.

    Attributes:
        subprotocol: what the server chose.
        rejected: the status of the response, if the upgrade was refused.
        pings: the number of pings so far. They are answered unless `is_mute`.
    """

    def __init__(self, stream: ByteStream, *, is_client: bool) -> None:
        self.stream = stream
        self.subprotocol: str | None = None
        self.rejected: int | None = None
        self.pings = 0
        self.is_mute = False
        self._ws = WSConnection(ConnectionType.CLIENT if is_client else ConnectionType.SERVER)
        self._events: list[Event] = []
        self._is_over = False

    async def request_upgrade(
        self, target: str = "/ws", *, protocols: tuple[str, ...] = ("mcp",), deflates: bool = False
    ) -> None:
        """Does a client's opening handshake."""
        extensions: list[Extension] = [PerMessageDeflate()] if deflates else []
        await self.send_event(Request("localhost:8932", target, extensions=extensions, subprotocols=list(protocols)))
        event = await self.event()
        if isinstance(event, RejectConnection):
            self.rejected = event.status_code
        else:
            assert isinstance(event, AcceptConnection), event
            self.subprotocol = event.subprotocol

    async def accept_upgrade(self, *, protocol: str | None = "mcp", deflates: bool = False) -> Request:
        """Does a server's opening handshake."""
        request = await self.event()
        assert isinstance(request, Request)
        await self.send_event(AcceptConnection(protocol, [PerMessageDeflate()] if deflates else []))
        return request

    async def send_event(self, event: Event) -> None:
        await self.send(self._ws.send(event))

    async def send(self, data: bytes) -> None:
        with anyio.fail_after(http_fakes.WAIT_S):
            await self.stream.send(data)

    async def send_text(self, *messages: str) -> None:
        for message in messages:
            await self.send_event(TextMessage(message))

    async def event(self) -> Event:
        """The next event. Nothing is answered here."""
        with anyio.fail_after(http_fakes.WAIT_S):
            while not self._events:
                if not self._is_over:
                    try:
                        self._ws.receive_data(await self.stream.receive())
                    except anyio.EndOfStream:
                        self._is_over = True
                        self._ws.receive_data(None)
                else:
                    raise anyio.EndOfStream
                self._events += self._ws.events()
        return self._events.pop(0)

    async def read(self) -> str | CloseConnection | Pong:
        """The next message, pong or close. Pings are answered and closes confirmed, as the protocol asks."""
        text = ""
        while True:
            event = await self.event()
            if isinstance(event, Ping):
                self.pings += 1
                if not self.is_mute:
                    await self.send_event(event.response())
            elif isinstance(event, CloseConnection):
                if self._ws.state.name == "REMOTE_CLOSING":
                    await self.send_event(event.response())
                return event
            elif isinstance(event, Pong):
                return event
            else:
                assert isinstance(event, Message) and not isinstance(event, BytesMessage), event
                text += event.data
                if event.message_finished:
                    return text

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self.send_event(CloseConnection(code, reason))

    async def wait_eof(self) -> None:
        """Waits until the other side closes the stream, and drops what comes before that."""
        with anyio.fail_after(http_fakes.WAIT_S):
            try:
                while True:
                    await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass


async def connected(stream: ByteStream, target: str = "/ws", *, deflates: bool = False) -> SocketPeer:
    """A client whose upgrade was accepted."""
    peer = SocketPeer(stream, is_client=True)
    await peer.request_upgrade(target, deflates=deflates)
    assert peer.rejected is None
    return peer


def jumping(test: Callable[[], Awaitable[None]]) -> None:
    """Runs a test on trio, whose clock jumps to the next deadline whenever nothing happens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_fakes, "WAIT_S", 1e6)
        patch.setattr(ports, "PATIENCE_S", 1e6)
        trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))
