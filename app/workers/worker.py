"""A worker, as its own process sees it: what it got from its supervisor, and what it tells."""

from __future__ import annotations

import os
import socket
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketListener, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.stapled import MultiListener

from ...core.wire.http.admin_routes import Page
from ...transports.tls.server import ServerTls
from ..runtime.listeners import HttpListener
from .listening import LINES, PORT, SOCKET
from .messages import LINE_MAX_BYTES, WORKER_VARIABLE, Handover, Message, Retire, decode, encode, take_over
from .pages import Answer, AnswerAlone, Question, WorkerPages
from .servers import NOT_HERE


class Worker:
    """One worker.

    Args:
        channel: its socket to the supervisor.

    Attributes:
        is_retiring: it accepts no more connections, and ends with its last session.

    Raises:
        EOFError: the supervisor is gone.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.handover: Final[Handover] = take_over(channel)
        self.is_retiring = False
        self._stream: UNIXSocketStream | None = None

    @property
    def tag(self) -> str:
        return self.handover.tag

    @property
    def base_url(self) -> str:
        return self.handover.base_url

    async def listeners(self, tls: ServerTls | None) -> list[HttpListener]:
        """Returns the listeners for HTTP.

        Args:
            tls: that of the port; None: it speaks plain HTTP.
        """
        found: list[HttpListener] = []
        for name, spoken in ((PORT, tls), (SOCKET, None)):
            sockets = [_inherited(each) for each in self.handover.sockets.get(name, ())]
            if sockets:
                found.append((MultiListener([await SocketListener.from_socket(each) for each in sockets]), spoken))
        return found

    def lines(self, server: str) -> socket.socket:
        """Returns the listening socket of a server that speaks lines."""
        (descriptor,) = self.handover.sockets[f"{LINES}{server}"]
        return _inherited(descriptor)

    def pages(self, answer_alone: AnswerAlone) -> WorkerPages:
        """Returns the pages of all workers."""

        async def answer(question: Question) -> Answer:
            if self.is_retiring and question.page in (Page.START, Page.RESTART):
                body = {"error": f"worker {self.tag} is being replaced, and starts no server", "code": NOT_HERE}
                return Answer(NOT_HERE, msgspec.json.encode(body))
            return await answer_alone(question)

        return WorkerPages(self.handover.folder, self.tag, answer)

    async def tell(self, message: Message) -> None:
        """Tells the supervisor. Nothing is told to one that is gone: `wait_retired` returns then."""
        stream = await self._connected()
        try:
            await stream.send(encode(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def wait_retired(self) -> bool:
        """Returns True when the supervisor orders `Retire`, and False when it is gone."""
        lines = BufferedByteReceiveStream(await self._connected())
        try:
            while not isinstance(decode(await lines.receive_until(b"\n", LINE_MAX_BYTES)), Retire):
                pass
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            return False
        self.is_retiring = True
        return True

    async def _connected(self) -> UNIXSocketStream:
        if self._stream is None:
            self._channel.setblocking(False)
            self._stream = await UNIXSocketStream.from_socket(self._channel)
        return self._stream


def own_channel() -> socket.socket | None:
    """Returns the socket to the supervisor; None if this process is no worker. Children do not inherit it."""
    number = os.environ.pop(WORKER_VARIABLE, None)
    return None if number is None else _inherited(int(number))


def _inherited(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    found.set_inheritable(False)
    return found
