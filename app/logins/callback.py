"""The redirect URI of a login: a listener on 127.0.0.1 that waits for one browser."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import SocketStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

HOST: Final = "127.0.0.1"
HEAD_MAX_BYTES: Final = 32 * 1024
"""The longest head of a request; a browser sends some KB, and a code has some hundred characters. At it: no answer."""
HEAD_TIMEOUT_S: Final = 10.0
WAITING_MAX: Final = 16
"""The most visits that wait to be judged. At it: another is answered, and not judged."""

_REQUEST: Final = re.compile(rb"GET /callback(?:\?([!-~]*))? HTTP/1\.[01]\r\n")
_PAGE: Final = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Isthmus</title>"
    b"<p>Isthmus has the answer of the provider. Close this page and look at the terminal."
)
_NO_PAGE: Final = b"<!doctype html><html lang=en><meta charset=utf-8><title>Isthmus</title><p>Nothing is here."


class Callback:
    """An open listener. `port` is the one that it listens on."""

    def __init__(self, port: int, queries: MemoryObjectReceiveStream[str]) -> None:
        self.port = port
        self._queries = queries

    async def query(self) -> str:
        """Waits for a browser at the redirect URI. Returns its query, without "?"."""
        return await self._queries.receive()


@asynccontextmanager
async def listening(port: int) -> AsyncIterator[Callback]:
    """Listens on a port of 127.0.0.1 until the context is left. 0: any port.

    Raises:
        OSError: the port is taken.
    """
    listener = await anyio.create_tcp_listener(local_host=HOST, local_port=port)
    send, receive = anyio.create_memory_object_stream[str](WAITING_MAX)
    bound: int = listener.extra(anyio.abc.SocketAttribute.local_port)

    async def handle(stream: SocketStream) -> None:
        async with stream:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                with anyio.move_on_after(HEAD_TIMEOUT_S):
                    await _answer(stream, send)

    failure: Exception | None = None
    async with listener, send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        try:
            yield Callback(bound, receive)
        except Exception as error:  # raised below: a task group would put it into a group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _answer(stream: SocketStream, queries: MemoryObjectSendStream[str]) -> None:
    head = bytearray()
    while b"\r\n\r\n" not in head:
        head += await stream.receive()
        if len(head) > HEAD_MAX_BYTES:
            return
    found = _REQUEST.match(head)
    status, page = (b"404 Not Found", _NO_PAGE) if found is None else (b"200 OK", _PAGE)
    # Neither the page nor what it leads to may learn the code.
    await stream.send(
        b"HTTP/1.1 %b\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n"
        b"cache-control: no-store\r\nreferrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n"
        b"\r\n%b" % (status, len(page), page)
    )
    if found is not None:
        with contextlib.suppress(anyio.WouldBlock):
            queries.send_nowait((found[1] or b"").decode("ascii"))
