"""Plays a conversation with a server on stdio. Each conversation starts a process, and ends it afterwards."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections import deque
from typing import IO, Final

from ....core.oracle.observations import PIPE_CHANNEL, AnyObservation, Role, Said
from ....transports.stdio.server_process import ChildSpec, environment_for
from ...base.errors import Failed
from ..script.steps import Conversation
from ..script.survey import Played
from .duplex import MESSAGE_MAX_BYTES, OBSERVATIONS_MAX, ScriptedClient

GRACE_S: Final = 2.0
"""Seconds from closing stdin to TERM, and from there to KILL."""
LAST_WORDS: Final = 5


class StdioClient:
    """A scripted client of a server on stdio.

    Args:
        spec: how to start the server.
        timeout_s: timeout of each response.
    """

    def __init__(self, spec: ChildSpec, timeout_s: float) -> None:
        self._spec = spec
        self._timeout_s = timeout_s
        self._has_spoken = False

    def __call__(self, conversation: Conversation) -> Played:
        """Plays a conversation.

        Raises:
            Failed: the server cannot be started, or it ended with an error and no run of it ever sent anything.
        """
        try:
            process = subprocess.Popen(
                self._spec.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment_for(self._spec, os.environ),
                cwd=self._spec.cwd,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Failed(f"the server cannot be started: {error}") from error
        pipe = _Pipe(process, self._timeout_s)
        try:
            played = ScriptedClient(pipe, conversation, self._timeout_s).play()
        finally:
            end(process)
        self._has_spoken |= any(isinstance(seen, Said) and seen.sender is Role.SERVER for _, seen in played.seen)
        if not self._has_spoken and process.returncode:
            pipe.last_words.join(GRACE_S)
        if not self._has_spoken and process.returncode and pipe.words:
            raise Failed(f"the server ended at once, and said: {' | '.join(pipe.words)}")
        return played


class _Pipe:
    """The stdin and stdout of a server, and the last lines that it wrote to stderr."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.words: deque[str] = deque(maxlen=LAST_WORDS)
        self._stdin = process.stdin.fileno()
        self._timeout_s = timeout_s
        self._lines: queue.Queue[bytes | None] = queue.Queue(OBSERVATIONS_MAX)
        os.set_blocking(self._stdin, False)
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        self.last_words = threading.Thread(target=self._read_stderr, args=(process.stderr,), daemon=True)
        self.last_words.start()

    def send(self, text: str) -> list[AnyObservation]:
        data = text.encode()
        said = Said(PIPE_CHANNEL, Role.CLIENT, data, at=time.monotonic())
        until = time.monotonic() + self._timeout_s
        rest = memoryview(data + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while rest and (left := until - time.monotonic()) > 0:
                if select.select([], [self._stdin], [], left)[1]:
                    with contextlib.suppress(BlockingIOError):
                        rest = rest[os.write(self._stdin, rest) :]
        return [said]

    def receive(self, patience_s: float) -> AnyObservation:
        try:
            line = self._lines.get(timeout=patience_s) if patience_s > 0 else self._lines.get_nowait()
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            raise EOFError
        return Said(PIPE_CHANNEL, Role.SERVER, line, at=time.monotonic())

    def _read(self, stdout: IO[bytes]) -> None:
        pending = bytearray()
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(stdout.fileno(), 65536):
                pending += chunk
                *lines, rest = pending.split(b"\n") if b"\n" in chunk else (pending,)
                for line in lines:
                    if line.strip():
                        self._put(bytes(line).removesuffix(b"\r"))
                pending = bytearray(rest)
                if len(pending) > MESSAGE_MAX_BYTES:
                    self._put(bytes(pending))
                    return
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        with contextlib.suppress(queue.Full):  # dropped: `ScriptedClient` notices that there were more than it keeps
            self._lines.put(line, timeout=self._timeout_s)

    def _read_stderr(self, stderr: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := stderr.readline(4096):
                self.words.append(line.decode(errors="replace").strip())


def end(process: subprocess.Popen[bytes]) -> None:
    """Closes stdin, then sends TERM, then KILL to the process group, `GRACE_S` apart.

    The group is killed at the end in any case, so that processes that the server started end too.
    """
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(GRACE_S)
            break
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
    process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
