"""Peers in our own process: a client and a server that speak over lists instead of bytes.

For tests, for probing a server as any client would, and for those who embed the proxy beside their own MCP code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from ..core.base.effects import Cause, Close, Connected, End, PipeOpening, Send
from ..core.base.errors import LocalProtocolError
from ..core.base.ids import ChannelId
from .base.gate import Gate
from .base.port import Port


class MemoryPeer:
    """One end of a channel: what the engine sends is read with `receive`, what `say` is given reaches the engine.

    A message counts as sent once it was read, so that the engine pauses what feeds a peer that does not read: what
    waits here is bounded by `Limits.outbox_high_bytes`.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._channel: ChannelId | None = None
        self._arrived: deque[bytes] = deque()
        self._changed = anyio.Event()
        self._gate = Gate()
        self._is_closed = False

    def send(self, order: Send) -> None:
        """The engine's side: keep one message until it is read; after the end it is dropped."""
        if not self._is_closed:
            self._arrived.append(order.message)
            self._change()

    def close(self, order: Close) -> None:
        self._end(Cause(End.DONE))

    def pause(self) -> None:
        if not self._is_closed:
            self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def say(self, message: bytes) -> None:
        """The peer's side: send one message to the engine.

        Raises:
            LocalProtocolError: the channel was never opened.
            anyio.BrokenResourceError: it is closed. The engine may close it at any time, so this is nobody's fault.
        """
        if self._channel is None:
            raise LocalProtocolError("got a message for a channel that is not open")
        if self._is_closed:
            raise anyio.BrokenResourceError
        self._port.message(self._channel, message)

    async def ready(self) -> None:
        """Return when the engine wants to hear more. Who says much awaits this before each message; `say` itself
        refuses nothing, since what it is given is in memory already."""
        await self._gate.wait_open()

    async def receive(self) -> bytes:
        """The next message of the engine; what was sent before the channel closed can still be read.

        Raises:
            anyio.EndOfStream: there will be none: the channel is closed.
        """
        while not self._arrived:
            if self._is_closed:
                raise anyio.EndOfStream
            await self._changed.wait()
        message = self._arrived.popleft()
        if self._channel is not None and not self._is_closed:
            self._port.sent(self._channel, len(message))
        return message

    def leave(self) -> None:
        """Hang up."""
        self._end(Cause(End.GONE))

    def _end(self, cause: Cause) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._gate.open()
        self._change()
        if self._channel is not None:
            self._port.closed(self._channel, cause)

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class MemoryClient(MemoryPeer):
    """A client: opens a session of its own with one server."""

    def open(self, opening: PipeOpening) -> None:
        self._channel = self._port.open(opening, self)
        if self._is_closed:  # before there was a channel to say it of
            self._port.closed(self._channel, Cause(End.DONE))


class MemoryServer(MemoryPeer):
    """A server: the channel of one session that the engine dialled."""

    def connect(self, channel: ChannelId) -> None:
        self._channel = channel
        self._port.opened(channel, Connected())


@dataclass(frozen=True)
class MemoryUpstream:
    """A server's address in our own process: `serve` runs as a task for each session, until it returns."""

    serve: Callable[[MemoryServer], Awaitable[None]]
