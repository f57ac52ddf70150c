"""The HTTP listener: Streamable HTTP for MCP clients, uploads, downloads and pages, on any stream of bytes."""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio import CancelScope
from anyio.abc import ByteStream, Listener, TaskStatus

from ..core.limits import Limits
from ..core.wire.http_server import Surface, refusal
from .http_connection import Connection
from .http_listening import Listening, Pages
from .port import FileService, Port

_log: Final = logging.getLogger("isthmus.http")


class HttpServer:
    """Serves any number of listeners, and connections handed to it one by one.

    Args:
        surface: what exists, and by which names it may be reached.
        pages: status, content type and body of the page at a path, or None if there is none. Must not block.
        scheme: `https` when the streams given to `handle` are TLS.
    """

    def __init__(
        self,
        surface: Surface,
        port: Port,
        files: FileService,
        limits: Limits,
        *,
        pages: Pages,
        scheme: str = "http",
    ) -> None:
        self._on = Listening(surface, port, files, limits, pages, scheme)
        self._connections: set[Connection] = set()
        self._accepting: set[CancelScope] = set()
        self._all_gone = anyio.Event()

    async def serve(
        self, listener: Listener[ByteStream], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept connections until `drain`, and return when the last of them is through. Closes the listener."""
        async with anyio.create_task_group() as timers:
            timers.start_soon(self._keep_alive)
            async with anyio.create_task_group() as connections, listener:
                with anyio.CancelScope() as accepting:
                    self._accepting.add(accepting)
                    if self._on.is_draining:
                        accepting.cancel()
                    task_status.started()
                    await listener.serve(self.handle, connections)
                self._accepting.discard(accepting)
                await listener.aclose()
            timers.cancel_scope.cancel()

    async def handle(self, stream: ByteStream) -> None:
        """Serve one connection, and close it. Raises nothing but cancellation: a failure here is logged."""
        if len(self._connections) >= self._on.limits.connections_max:
            await _turn_away(stream)
            return
        connection = Connection(stream, self._on)
        self._connections.add(connection)
        try:
            await connection.run()
        except Exception:  # whatever went wrong with one client must not disturb another
            _log.exception("a connection failed")
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._all_gone.set()

    async def drain(self) -> None:
        """Accept nothing more, finish the replies that are due, and return when no connection is left.

        Event streams end when the engine closes them, so the caller bounds this wait.
        """
        self._on.is_draining = True
        for accepting in self._accepting:
            accepting.cancel()
        for connection in list(self._connections):
            connection.drain()
        while self._connections:
            self._all_gone = anyio.Event()
            await self._all_gone.wait()

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(self._on.limits.keep_alive_s)
            for connection in list(self._connections):
                connection.keep_alive()


async def _turn_away(stream: ByteStream) -> None:
    """Say 503 without spending more on a client than that."""
    refused = refusal(503, "got more connections than this server takes, expected fewer; try again later")
    lines = [b"HTTP/1.1 503 Service Unavailable", b"connection: close", b"retry-after: 1"]
    lines += [name + b": " + value for name, value in refused.headers]
    with anyio.move_on_after(1.0):
        try:
            await stream.send(b"\r\n".join([*lines, b"", refused.body]))
            await stream.receive()  # closing before the request was read could take the answer with it
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
    with anyio.move_on_after(1.0, shield=True):
        await stream.aclose()
