"""One process of a worker, as its supervisor sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

import anyio
import msgspec
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from .messages import (
    LINE_MAX_BYTES,
    WORKER_VARIABLE,
    Handover,
    Message,
    Probed,
    Retire,
    Serving,
    decode,
    encode,
    hand_over,
)

MAIN = f"{__name__.rpartition('.workers.')[0]}.main"
"""The module that is run. Its name is another one in a renamed copy."""


class WorkerProcess:
    """A started worker.

    Attributes:
        code: its exit code, negative for a signal; None: it runs.
        is_serving: it has accepted connections.
    """

    def __init__(self, process: anyio.abc.Process, channel: UNIXSocketStream) -> None:
        self._process = process
        self._channel = channel
        self.is_serving = False
        self.code: int | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, *, when_serving: Callable[[], None], when_probed: Callable[[str], None]) -> int:
        """Hears what the worker tells, and returns its exit code when it has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear, when_serving, when_probed)
            code = self.code = await self._process.wait()
            tasks.cancel_scope.cancel()
        await self._channel.aclose()
        return code

    async def retire(self) -> None:
        """Has it accept no more connections, and end with its last session."""
        await self._tell(Retire())

    def signal(self, number: signal.Signals) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _tell(self, message: Message) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._channel.send(encode(message))

    async def _hear(self, when_serving: Callable[[], None], when_probed: Callable[[str], None]) -> None:
        lines = BufferedByteReceiveStream(self._channel)
        try:
            while True:
                match decode(await lines.receive_until(b"\n", LINE_MAX_BYTES)):
                    case Serving():
                        self.is_serving = True
                        when_serving()
                    case Probed(screen=screen):
                        when_probed(screen)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            return  # it ends
        except (anyio.DelimiterNotFound, msgspec.MsgspecError, UnicodeDecodeError):
            self.signal(signal.SIGKILL)


async def started(handover: Handover, arguments: Sequence[str]) -> WorkerProcess:
    """Starts a worker and hands over to it.

    Args:
        arguments: those of the command. They are what `ps` shows; a worker reads the options of the log from them.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        descriptors = [each for group in handover.sockets.values() for each in group]
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", MAIN, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None,
            env={**os.environ, WORKER_VARIABLE: str(theirs.fileno())},
            pass_fds=(theirs.fileno(), *descriptors),
            start_new_session=True,  # signals of a terminal are for the supervisor, which passes them on in order
        )
    ours.setblocking(False)
    channel = await UNIXSocketStream.from_socket(ours)
    found = WorkerProcess(process, channel)
    with contextlib.suppress(anyio.BrokenResourceError):  # it has ended already
        await channel.send(hand_over(handover))
    return found
