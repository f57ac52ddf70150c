"""Listeners on Unix domain sockets: for HTTP, and for clients that speak as on stdio, one JSON message a line.

Only the owner of the socket file may open it. With a gate, a client of lines must also be a user that the gate lets in:
it has no other credential. A client of lines that closes its
sending side may still read, as on stdio; one that closes both sides is gone. Over HTTP either counts as gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import time
from collections.abc import Awaitable, Callable

import anyio
import msgspec
from anyio.abc import SocketListener, TaskGroup, TaskStatus

from ...core.access.gate import Gate
from ...core.access.identity import Identity
from ...core.base.events import PipeOpening
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ..base.port import Port
from ..base.stream_socket import peer_of
from ..stdio.client import at_once, serve_pipe

BACKLOG = 128
ACCEPT_PAUSE_S = 0.1
"""Seconds before accepting is tried again, when the system had no room for a connection."""
ACCEPT_LOG_EVERY_S = 60.0


class PathInUse(OSError):
    """Raised when another process listens at the path, or something that is not a socket is there."""


def make_room(path: str) -> None:
    """Removes a socket file that a process left behind.

    Raises:
        PathInUse: a process listens there, or it is not a socket.
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
    """Removes the socket file of a closed listener."""
    with contextlib.suppress(OSError):
        os.unlink(path)


async def http_listener(path: str) -> SocketListener:
    """Creates a listener for `HttpServer.serve`.

    Raises:
        OSError: the path cannot be listened on.
    """
    make_room(path)
    return await anyio.create_unix_listener(path, mode=0o600, backlog=BACKLOG)


def listen_on(path: str) -> socket.socket:
    """Opens a listening socket that only its owner may connect to.

    Raises:
        OSError: the path cannot be listened on.
    """
    make_room(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        before = os.umask(0o177)  # so that at no moment another user may connect
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class LineListener:
    """Serves each client that connects to a Unix socket like one on stdio.

    Args:
        opening: the opening of each client's channel, to which the principal is added.
        listening: a socket that listens at the path already, as `listen_on` returns it, and whose file is that of
            somebody else; None: one is opened.
        gate: decides who a client is; None: nobody is asked.
        wait_answered: returns when no call of a channel is open.
        log: called with lines for people, without line ends.
        protocols: True to use callbacks of asyncio's event loop, False for the portable code; None: callbacks wherever
            possible.

    Raises:
        OSError: the path cannot be listened on.
    """

    def __init__(
        self,
        path: str,
        port: Port,
        opening: PipeOpening,
        limits: Limits,
        *,
        listening: socket.socket | None = None,
        gate: Gate | None = None,
        wait_answered: Callable[[ChannelId], Awaitable[None]] = at_once,
        log: Callable[[str], None],
        protocols: bool | None = None,
    ) -> None:
        self._path = path if listening is None else None
        self._port = port
        self._opening = opening
        self._gate = gate
        self._limits = limits
        self._wait_answered = wait_answered
        self._log = log
        self._protocols = protocols
        self._count = 0
        self._log_again_at = 0.0
        self._socket = listen_on(path) if listening is None else listening
        self._is_open = True
        self._waiting: anyio.CancelScope | None = None

    async def stop_accepting(self) -> None:
        """Accepts no more clients. Those that are connected go on."""
        self._is_open = False
        if self._waiting is not None:
            self._waiting.cancel()

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Accepts clients until cancelled. Then all of them are gone, and so is the socket file."""
        try:
            async with anyio.create_task_group() as clients:
                task_status.started()
                while self._is_open:
                    with anyio.CancelScope() as self._waiting:
                        await anyio.wait_readable(self._socket)
                    if self._is_open:
                        await self._accept(clients)
                self._socket.close()
                await anyio.sleep_forever()
        finally:
            self._socket.close()
            if self._path is not None:
                remove_socket(self._path)

    async def _accept(self, clients: TaskGroup) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if anyio.current_time() >= self._log_again_at:
                self._log(f"cannot accept a connection for now: {error.strerror}")
                self._log_again_at = anyio.current_time() + ACCEPT_LOG_EVERY_S
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
                opening = self._opening_of(connection)
                if opening is None:
                    return
                await serve_pipe(
                    self._port,
                    opening,
                    self._limits,
                    stdin_fd=fd,
                    stdout_fd=fd,
                    wait_answered=wait_answered,
                    log=self._log,
                    protocols=self._protocols,
                )
        finally:
            self._count -= 1

    def _opening_of(self, connection: socket.socket) -> PipeOpening | None:
        """Returns the opening of a client's channel; None if the gate does not let the client in."""
        if self._gate is None:
            return self._opening
        peer = peer_of(connection)
        found = self._gate.identify((), peer, (), time.time())
        if isinstance(found, Identity):
            return msgspec.structs.replace(self._opening, principal=found.principal)
        user = "a user that the system does not tell" if peer.uid is None else f"user {peer.uid}"
        self._log(f"turned away a process of {user}: set auth.unix_peers to let users of this machine in")
        return None


def _is_gone(fd: int) -> bool:
    """True if the peer of a Unix socket takes nothing any more. Some systems report that also for a peer that only
    closed its sending side."""
    poll = select.poll()
    poll.register(fd, 0)  # poll reports a hang-up without being asked for it
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))
