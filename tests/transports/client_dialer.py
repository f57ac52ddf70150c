"""A client that dials, and the usual answers of a server to it."""

from __future__ import annotations

import contextlib
import logging

from client_fakes import FakePort, Peer, Report, new_client, until
from client_fakes import anyio_backend as anyio_backend
from client_fakes import in_order as in_order
from isthmus.core.base.effects import Close, Delete, Listen, Post
from isthmus.core.base.events import Cause, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.port import Outlet
from isthmus.transports.base.tokens import UpstreamTokens
from isthmus.transports.http_client.client import HttpClient

DONE = Cause(End.DONE)
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
NOW = Post("s", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
LIMITS = Limits()
TYPE = b"Content-Type: application/json\r\n"


def reply(body: bytes = ANSWER, status: bytes = b"200 OK", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Type: application/json", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes) -> bytes:
    return chunk(b"event: message\ndata: " + data + b"\n\n")


async def answer_all(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(reply(b'{"on":%d}' % peer.number))


class Dialer:
    """A client with a port. Dialled channels are numbered 1, 2, 3 …"""

    def __init__(self, client: HttpClient, port: FakePort) -> None:
        self.client = client
        self.port = port
        self.count = 0
        self.tokens: UpstreamTokens | None = None

    def __call__(self, endpoint: Endpoint, target: Post | Listen | Delete = NOW) -> Outlet:
        self.count += 1
        return self.client.dial(endpoint, target, ChannelId(self.count), self.port, tokens=self.tokens)

    async def exchange(self, endpoint: Endpoint, target: Post | Listen | Delete = NOW) -> list[Report]:
        self(endpoint, target)
        return await self.port.until_closed(self.count)

    async def until_unheld(self, count: int) -> None:
        """Waits until `count` connections are held by no exchange."""
        await until(lambda: len(self.client.unheld) == count)


class Failures(logging.Handler):
    """Collects the failures that the client logs when one of its connections fails by its own fault."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(record.exc_info)


@contextlib.asynccontextmanager
async def dialer(limits: Limits = LIMITS, *, failures: int = 0, only_h11: bool = False):  # type: ignore[no-untyped-def]
    """A `Dialer`. At the end, exactly `failures` connections must have failed by themselves."""
    kept = Failures()
    logger = logging.getLogger("isthmus.http")
    logger.addHandler(kept)
    try:
        async with new_client(limits, only_h11=only_h11) as client:
            yield Dialer(client, FakePort())
    finally:
        logger.removeHandler(kept)
    assert len(kept.seen) == failures, kept.seen


CLOSE = Close(ChannelId(1))
