"""Plays a conversation with a server of its own on stdio: one process for each, gone when it is over."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from typing import IO, Final

from ...core.oracle.observations import PIPE_CHANNEL, Role, Said
from ...transports.stdio import ChildSpec, environment_for
from ..errors import Failed
from .answering import answer_to
from .steps import Conversation, decoded, encode
from .survey import Played

LINE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above what a server says to small questions; a longer line ends what is kept."""
MESSAGES_MAX: Final = 5_000
"""Kept of one conversation, which has some dozens."""
GRACE_S: Final = 2.0
"""From the end of stdin to TERM, and from there to KILL."""
QUIET_S: Final = 0.05
"""Waited at the end for what nobody asked for, such as a second answer."""
LAST_WORDS: Final = 5


class PipePlayer:
    """Args: `spec`: how to start the server. `timeout_s`: how long each answer may take."""

    def __init__(self, spec: ChildSpec, timeout_s: float) -> None:
        self._spec = spec
        self._timeout_s = timeout_s

    def __call__(self, conversation: Conversation) -> Played:
        """Raises:
        Failed: the server cannot be started.
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
        talk = _Talk(process, self._timeout_s)
        try:
            for step in conversation.steps:
                talk.say(step.body)
                if step.waits:
                    talk.wait_answered()
            talk.wait_answered()
            talk.hear(QUIET_S)
        finally:
            end(process)
        if not any(seen.sender is Role.SERVER for seen in talk.seen) and process.returncode and talk.words:
            talk.last_words.join(GRACE_S)
            raise Failed(f"the server ended at once, and said: {' | '.join(talk.words)}")
        return Played([(0, seen) for seen in talk.seen], talk.is_cut)


class _Talk:
    """What is said on one pipe, and what is owed."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.seen: list[Said] = []
        self.words: deque[str] = deque(maxlen=LAST_WORDS)
        self.is_cut = False
        self._stdin = process.stdin.fileno()
        self._timeout_s = timeout_s
        self._owed: Counter[str | int] = Counter()
        self._is_over = False
        self._lines: queue.Queue[bytes | None] = queue.Queue(MESSAGES_MAX)
        os.set_blocking(self._stdin, False)
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        self.last_words = threading.Thread(target=self._overhear, args=(process.stderr,), daemon=True)
        self.last_words.start()

    def say(self, text: str) -> None:
        self.hear(0)
        self.seen.append(Said(PIPE_CHANNEL, Role.CLIENT, text.encode(), at=time.monotonic()))
        for message in decoded(text):
            id = message.get("id")
            if message.get("jsonrpc") == "2.0" and "method" in message and isinstance(id, str | int):
                self._owed[id] += 1
            elif message.get("method") == "notifications/cancelled":
                self._owed.pop(message.get("params", {}).get("requestId"), None)
        self._write(text.encode() + b"\n")

    def wait_answered(self) -> None:
        """Until nothing is owed, the time is up, or the server has gone."""
        until = time.monotonic() + self._timeout_s
        while any(count > 0 for count in self._owed.values()) and not self._is_over:
            if not self.hear(until - time.monotonic()):
                self._owed.clear()  # it was waited for once
                return

    def hear(self, patience_s: float) -> bool:
        """Take in what the server has said, waiting for the first of it. Whether there was something."""
        has_heard = False
        while not self._is_over:
            try:
                line = self._lines.get(timeout=max(0.0, patience_s)) if patience_s > 0 else self._lines.get_nowait()
            except queue.Empty:
                break
            has_heard, patience_s = True, 0
            if line is None or len(self.seen) >= MESSAGES_MAX or len(line) > LINE_MAX_BYTES:
                self._is_over, self.is_cut = True, line is not None
                break
            self.seen.append(Said(PIPE_CHANNEL, Role.SERVER, line, at=time.monotonic()))
            for message in decoded(line):
                if "method" not in message and isinstance(id := message.get("id"), str | int):
                    self._owed[id] -= 1
                answer = answer_to(message)
                if answer is not None:
                    text = encode(answer)
                    self.seen.append(Said(PIPE_CHANNEL, Role.CLIENT, text.encode(), at=time.monotonic()))
                    self._write(text.encode() + b"\n")
        return has_heard

    def _write(self, data: bytes) -> None:
        """As much as the server reads in time; what it does not read, it does not answer."""
        until = time.monotonic() + self._timeout_s
        rest = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while rest and (left := until - time.monotonic()) > 0:
                if select.select([], [self._stdin], [], left)[1]:
                    with contextlib.suppress(BlockingIOError):
                        rest = rest[os.write(self._stdin, rest) :]

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
                if len(pending) > LINE_MAX_BYTES:
                    self._put(bytes(pending))
                    return
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        with contextlib.suppress(queue.Full):  # more than is kept: `hear` sees that it is full
            self._lines.put(line, timeout=self._timeout_s)

    def _overhear(self, stderr: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := stderr.readline(4096):
                self.words.append(line.decode(errors="replace").strip())


def end(process: subprocess.Popen[bytes]) -> None:
    """Close stdin, be patient, TERM, be patient, KILL: the group, so that what it started goes too."""
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
