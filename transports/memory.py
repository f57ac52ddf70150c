"""Peers in our own process: a client and a server that exchange messages with the engine without bytes or sockets.

They serve tests, probing a server as any client would, and programs that embed the proxy beside their own MCP code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from ..core.base.effects import Close, Send
from ..core.base.errors import LocalProtocolError
from ..core.base.events import Cause, Connected, End, PipeOpening
from ..core.base.ids import ChannelId
from .base.gate import Gate
from .base.port import Port


class MemoryPeer:
    """One end of a channel: `receive` returns the engine's messages, `say` sends messages to the engine.

    A message counts as sent once it was received, so the engine applies backpressure to the sender if a peer does not
    read: at most about `Limits.outbox_high_bytes` wait here.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._channel: ChannelId | None = None
        self._arrived: deque[bytes] = deque()
        self._changed = anyio.Event()
        self._gate = Gate()
        self._is_closed = False

    def send(self, order: Send) -> None:
        """Keeps one message of the engine until it is received. After the end it is dropped."""
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
        """Sends one message to the engine.

        Raises:
            LocalProtocolError: the channel was never opened.
            anyio.BrokenResourceError: the channel is closed. The engine may close it at any time, so this is no error
                of the caller.
        """
        if self._channel is None:
            raise LocalProtocolError("got a message for a channel that is not open")
        if self._is_closed:
            raise anyio.BrokenResourceError
        self._port.message(self._channel, message)

    async def ready(self) -> None:
        """Returns when the engine accepts more. A peer that sends much awaits this before each message. `say` itself
        refuses nothing, since its message is in memory already."""
        await self._gate.wait_open()

    async def receive(self) -> bytes:
        """Returns the next message of the engine. Messages sent before the channel closed can still be received.

        Raises:
            anyio.EndOfStream: the channel is closed, and no message is left.
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
        """Hangs up."""
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
    """A client that opens a session of its own with one server."""

    def open(self, opening: PipeOpening) -> None:
        self._channel = self._port.open(opening, self)
        if self._is_closed:  # the engine closed it before the channel's id was known
            self._port.closed(self._channel, Cause(End.DONE))


class MemoryServer(MemoryPeer):
    """A server at the other end of a channel that the engine dialled, for one session."""

    def connect(self, channel: ChannelId) -> None:
        self._channel = channel
        self._port.opened(channel, Connected())


@dataclass(frozen=True)
class MemoryUpstream:
    """The address of a server in our own process. `serve` runs as a task for each session, until it returns."""

    serve: Callable[[MemoryServer], Awaitable[None]]
