"""Unix domain sockets to listen on: for HTTP, and for clients that speak as on stdio, one JSON message a line.

Whoever may open the file may speak to the server, so it is the owner's alone. A client of lines that closes its sending
side has said all and may still read, as on stdio; one that closes both is gone. Over HTTP either is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import SocketListener, TaskGroup, TaskStatus

from ...core.base.effects import PipeOpening
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ..base.port import Port
from ..stdio.client import at_once, serve_pipe

BACKLOG = 128
ACCEPT_PAUSE_S = 0.1
"""Before accepting is tried again where the system had no room for a connection."""


class PathInUse(OSError):
    """Another process listens at that path, or something else than a socket is there."""


def make_room(path: str) -> None:
    """Remove a socket that a process left behind.

    Raises:
        PathInUse: it is not left behind, or no socket.
        OSError: it cannot be removed.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise PathInUse(errno.EADDRINUSE, "something else than a socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        code = caller.connect_ex(path)
    if code != errno.ECONNREFUSED:
        raise PathInUse(errno.EADDRINUSE, "another process listens there")
    os.unlink(path)


def remove_socket(path: str) -> None:
    """The listener is closed: nobody shall find its file."""
    with contextlib.suppress(OSError):
        os.unlink(path)


async def http_listener(path: str) -> SocketListener:
    """A listener for `HttpServer.serve`.

    Raises:
        OSError: nothing can listen there.
    """
    make_room(path)
    return await anyio.create_unix_listener(path, mode=0o600, backlog=BACKLOG)


class LineListener:
    """Serves every client that connects to a socket as a pipe.

    Args:
        opening: what each client opens.
        wait_answered: returns when the client of a channel is owed no answer.
        log: called with what people may want to know, without line ends.
        protocols: whether the event loop's callbacks carry messages; None: wherever that is possible.

    Raises:
        OSError: nothing can listen there.
    """

    def __init__(
        self,
        path: str,
        port: Port,
        opening: PipeOpening,
        limits: Limits,
        *,
        wait_answered: Callable[[ChannelId], Awaitable[None]] = at_once,
        log: Callable[[str], None],
        protocols: bool | None = None,
    ) -> None:
        make_room(path)
        self._path = path
        self._port = port
        self._opening = opening
        self._limits = limits
        self._wait_answered = wait_answered
        self._log = log
        self._protocols = protocols
        self._count = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            before = os.umask(0o177)  # no moment in which others may connect
            try:
                self._socket.bind(path)
            finally:
                os.umask(before)
            self._socket.listen(BACKLOG)
        except BaseException:
            self._socket.close()
            raise

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Accept clients until cancelled; then all of them are gone, and so is the socket."""
        try:
            async with anyio.create_task_group() as clients:
                task_status.started()
                while True:
                    await anyio.wait_readable(self._socket)
                    await self._accept(clients)
        finally:
            self._socket.close()
            remove_socket(self._path)

    async def _accept(self, clients: TaskGroup) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._log(f"cannot accept a connection for now: {error.strerror}")
            await anyio.sleep(ACCEPT_PAUSE_S)
            return
        if self._count >= self._limits.connections_max:
            self._log(f"turned a client away: {self._count} are connected, the most allowed")
            connection.close()
            return
        self._count += 1
        clients.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        async def wait_answered(channel: ChannelId) -> None:
            if not _is_gone(fd):
                await self._wait_answered(channel)

        try:
            with connection:
                fd = connection.fileno()
                await serve_pipe(
                    self._port,
                    self._opening,
                    self._limits,
                    stdin_fd=fd,
                    stdout_fd=fd,
                    wait_answered=wait_answered,
                    log=self._log,
                    protocols=self._protocols,
                )
        finally:
            self._count -= 1


def _is_gone(fd: int) -> bool:
    """Whether the other side of a Unix socket takes nothing any more. Some systems say so of one that has said all."""
    poll = select.poll()
    poll.register(fd, 0)  # what is told unasked is the end
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))
