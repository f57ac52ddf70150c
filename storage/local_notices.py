"""Notices among processes of one machine: each has a Unix datagram socket in a folder that all of them know."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ConnectedUNIXDatagramSocket, TaskGroup, UNIXDatagramSocket

from .interface import StorageError
from .notices import Inbox, MemoryNotices

ENDING: Final = ".notices"
"""The end of the name of each socket; the name of its process is before it."""
RETRY_S: Final = 0.1
"""Seconds after which a process is looked for again that took no more notices."""
_GONE: Final = (FileNotFoundError, ConnectionRefusedError)


class LocalNotices(MemoryNotices):
    """The notices of one process. See `Notices`.

    A notice is sent to each process by a task of its own, so one that does not keep up holds up nobody. Nothing is lost
    while a process listens: a socket that is full is waited for. A process that is gone is told nothing, and the one
    that takes its place begins with `EVERYTHING`. What has not been sent when this process ends is lost.
    """

    def __init__(self, folder: str, name: str, tasks: TaskGroup) -> None:
        super().__init__()
        self._folder = folder
        self._name = f"{name}{ENDING}"
        self._tasks = tasks
        self._outboxes: dict[str, Inbox] = {}  # by the names of sockets, while something is sent there

    async def publish(self, topic: str) -> None:
        await super().publish(topic)
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:  # the supervisor is gone, and so are all that listened there
            return
        except OSError as error:
            raise StorageError(f"the sockets of other processes cannot be found: {error}") from error
        for name in names:
            if name.endswith(ENDING) and name != self._name:
                if name not in self._outboxes:
                    self._outboxes[name] = Inbox()
                    self._tasks.start_soon(self._send, name, self._outboxes[name])
                self._outboxes[name].put(topic)

    async def run(self, socket: UNIXDatagramSocket) -> None:
        """Receives notices until it is cancelled."""
        async for data, _ in socket:
            for inbox in self._inboxes:
                inbox.put(data.decode("ascii", "replace"))

    async def _send(self, name: str, outbox: Inbox) -> None:
        """Sends all that waits for a process, until nothing does or the process is gone."""
        path = os.path.join(self._folder, name)
        try:
            while not outbox.is_empty:
                try:
                    async with await anyio.create_connected_unix_datagram_socket(path) as socket:
                        await _send_all(outbox, socket)
                except _GONE:
                    # Nobody has the socket. What waits was stored before, so a process that opens it now reads it then.
                    return
                except (OSError, anyio.BrokenResourceError):  # such as no room for one more open file
                    await anyio.sleep(RETRY_S)
        finally:
            del self._outboxes[name]


async def _send_all(outbox: Inbox, socket: ConnectedUNIXDatagramSocket) -> None:
    while not outbox.is_empty:
        topic = await outbox.take()
        try:
            await socket.send(topic.encode())
        except anyio.BrokenResourceError:
            outbox.put(topic)  # for the process that has taken the place of this one, if there is one
            raise


@asynccontextmanager
async def local_notices(folder: str, name: str) -> AsyncIterator[LocalNotices]:
    """Opens the socket of this process, and closes it when the context is left.

    Args:
        folder: a folder of sockets that no other user may open.
        name: of this process; no other running process has it.

    Raises:
        OSError: the socket cannot be opened.
    """
    path, failure = os.path.join(folder, f"{name}{ENDING}"), None
    async with await anyio.create_unix_datagram_socket(local_path=path, local_mode=0o600) as socket:
        async with anyio.create_task_group() as tasks:
            found = LocalNotices(folder, name, tasks)
            tasks.start_soon(found.run, socket)
            try:
                yield found
            except Exception as error:  # raised below, as the group would wrap it
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
