"""An upstream server as a child process: messages on its stdin and stdout, and its stderr as log lines.

A child runs in a session and process group of its own, so that the processes it starts can be ended with it. It ends in
one of three ways, each of which leads to one `Port.closed`:

- By order: queued messages are written, stdin is closed, then it has `Limits.stop_grace_s` to exit, gets TERM, has that
  time again, and gets KILL.
- By itself: it exits, or closes its stdout or stdin, which counts as an exit. Messages it wrote before are still
  delivered.
- By cancellation of `Child.run`: TERM, a short wait, KILL.

In each case `run` returns when the process is reaped and its group and marked descendants were killed.

Source: 2024-11-05 to 2026-07-28, basic/transports "stdio" and basic/lifecycle "Shutdown".
"""

from __future__ import annotations

import collections
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final

import anyio
import msgspec
from anyio import to_thread

from ...core.base.budget import Share
from ...core.base.effects import Close, Send
from ...core.base.events import Cause, Connected, End
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.base.setting_names import KEYS, SettingNames
from ...core.jsonrpc.envelope import LARGE_BYTES
from ...core.wire.ndjson import Line, LineReader, Oversize
from ..base.descriptors import Descriptor
from ..base.gate import Gate
from ..base.port import Port
from .asyncio_lines import Take
from .environment import inherited
from .exit_reason import describe_end, explain_start, is_exhausted
from .lines import messages_in, read_lines, write_lines
from .missing_variables import hint_about
from .orphan_guard import MARK_NAME, ORPHAN_GUARD, OrphanGuard, end_marked
from .outbox import Outbox
from .processes import exits_within, has_exited, signal_group, wait_exit

STDERR_LINE_MAX_BYTES: Final = 4096
FLUSH_GRACE_S: Final = 1.0
"""Seconds a child that is to stop may take to read what was queued for it."""
EXIT_GRACE_S: Final = 1.0
"""Seconds from the end of a child's stdout to its exit: normally it takes milliseconds."""
QUICK_GRACE_S: Final = 1.0
"""Seconds between TERM and KILL when no orderly stop was ordered."""
KILL_WAIT_S: Final = 5.0
"""Seconds from KILL to the exit. A process that outlasts it belongs to another user or is stuck in the kernel."""
LAST_WORDS_MAX_BYTES: Final = 1024 * 1024
"""Bytes read from the pipe of a child that has exited. Linux pipes hold at most this much."""


class ChildSpec(msgspec.Struct, frozen=True):
    """The command and environment that start a server.

    Attributes:
        command: the program, looked up on PATH, and its arguments.
        env: variables added to the inherited environment, which they override.
        cwd: its working directory; None: ours.
        inherit_env: pass on all of our environment, instead of what `environment.inherited` returns.
    """

    command: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None
    inherit_env: bool = False


def environment_for(spec: ChildSpec, ours: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a child, without its mark."""
    return (dict(ours) if spec.inherit_env else inherited(ours)) | spec.env


class StartError(Exception):
    """Raised when a child could not be started. The message says why and what would help. No process runs."""


class Child:
    """One server process, from its start to its end, as the `Outlet` of its channel.

    Orders may be given from the beginning; messages sent before the process runs are queued. Run it as a task:
    `tasks.start_soon(child.run)`.

    Args:
        log: called with each line of stderr and other lines for people, without line ends.
        share: takes the bytes of a message that is arriving and is larger than most.
        names: the names of settings in messages about it.
        protocols: True to use callbacks of asyncio's event loop, False for the portable code; None: callbacks wherever
            possible.
    """

    def __init__(
        self,
        spec: ChildSpec,
        channel: ChannelId,
        port: Port,
        limits: Limits,
        *,
        log: Callable[[str], None],
        orphan_guard: OrphanGuard = ORPHAN_GUARD,
        share: Share | None = None,
        protocols: bool | None = None,
        names: SettingNames = KEYS,
    ) -> None:
        assert spec.command
        self.pid: int | None = None
        self._spec = spec
        self._channel = channel
        self._port = port
        self._limits = limits
        self._log = log
        self._share = share
        self._orphan_guard = orphan_guard
        self._protocols = protocols
        self._names = names
        self._outbox = Outbox()
        self._gate = Gate()
        self._stderr: collections.deque[str] = collections.deque(maxlen=limits.stderr_ring_lines)
        self._over = anyio.Event()
        self._written = anyio.Event()
        self._is_closing = False
        self._is_reported = False
        self._is_terminated = False
        self._is_killed = False
        self._has_spoken = False

    @property
    def last_stderr(self) -> list[str]:
        """The last lines of stderr, at most `Limits.stderr_ring_lines`."""
        return list(self._stderr)

    def send(self, order: Send) -> None:
        self._outbox.put(order.message)

    def close(self, order: Close) -> None:
        self._is_closing = True
        self._outbox.end()
        self._gate.open()  # its output is still read, and dropped, so that it does not block on a full pipe
        self._over.set()

    def pause(self) -> None:
        if not self._is_closing:
            self._gate.shut()

    def resume(self) -> None:
        self._gate.open()

    async def run(self) -> None:
        """Starts the process and runs until it is gone."""
        try:
            if not self._is_closing:
                await self._live()
        except StartError as error:
            is_ours = is_exhausted(error.__cause__)
            self._report_end(Cause(End.UNREACHABLE, detail=str(error), unsent=True, is_ours=is_ours))
        except Exception:  # an error of our own: it goes to the caller, but the channel has to end too
            self._report_end(Cause(End.BROKEN, detail="internal error"))
            raise
        finally:
            if self._share is not None:
                self._share.give_all_back()
            self._report_end(Cause(End.DONE))

    async def _live(self) -> None:
        mark = self._orphan_guard.mint_mark()
        process = await to_thread.run_sync(self._start, mark)
        try:
            await self._serve(process)
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish(process, mark)

    def _start(self, mark: str) -> subprocess.Popen[bytes]:
        """Starts the process. Runs in a worker thread, since it may take milliseconds."""
        try:
            self._orphan_guard.start()
        except OSError as error:
            self._log(f"children will outlive a sudden death of this process: {error}")
        environment = environment_for(self._spec, os.environ) | {MARK_NAME: mark}
        try:
            process = subprocess.Popen(
                self._spec.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._spec.cwd,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError, MemoryError, subprocess.SubprocessError) as error:
            spec, path = self._spec, environment.get("PATH")
            raise StartError(explain_start(spec.command[0], spec.cwd, path, error)) from error
        self._orphan_guard.watch(process.pid)
        self.pid = process.pid
        return process

    async def _serve(self, process: subprocess.Popen[bytes]) -> None:
        """Carries messages until the channel ends, by order or by itself."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with Descriptor(process.stdout.fileno()) as stdout, Descriptor(process.stderr.fileno()) as stderr:
            stdout_lines = LineReader(
                line_size_max_bytes=self._limits.reply_size_max_bytes,
                joined_size_max_bytes=LARGE_BYTES,
                share=self._share,
            )
            stderr_lines = LineReader(line_size_max_bytes=STDERR_LINE_MAX_BYTES)
            if not self._is_closing:
                self._port.opened(self._channel, Connected())
            writing = anyio.CancelScope()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_exit, process)
                tasks.start_soon(self._write, process.stdin, writing)
                tasks.start_soon(self._read_stdout, stdout, stdout_lines)
                tasks.start_soon(self._read_stderr, stderr, stderr_lines)
                await self._over.wait()
                if self._is_closing:
                    await self._stop(process, writing)
                else:
                    writing.cancel()
                    await exits_within(process, EXIT_GRACE_S)
                tasks.cancel_scope.cancel()
            is_gone = has_exited(process)
            if is_gone:
                self._kill_group(process)  # before it is reaped; no descendant may go on writing to its stdout
            _read_last(stdout, stdout_lines, self._take_stdout)
            _read_last(stderr, stderr_lines, self._take_stderr)
            if not self._is_closing:
                self._report_end(Cause(End.BROKEN, detail=self._describe_end(process, is_gone)))

    async def _watch_exit(self, process: subprocess.Popen[bytes]) -> None:
        await wait_exit(process)
        self._over.set()

    async def _write(self, stdin: IO[bytes], writing: anyio.CancelScope) -> None:
        try:
            with writing, Descriptor(stdin.fileno()) as sink:
                await write_lines(self._outbox, sink, self._report_sent, protocols=self._protocols)
        except OSError:
            self._over.set()  # it closed its stdin, so no message can reach it
        finally:
            stdin.close()
            self._written.set()

    async def _read_stdout(self, source: Descriptor, lines: LineReader) -> None:
        await self._read(source, lines, self._gate, self._take_stdout)
        self._over.set()

    async def _read_stderr(self, source: Descriptor, lines: LineReader) -> None:
        await self._read(source, lines, Gate(), self._take_stderr)

    async def _read(self, source: Descriptor, lines: LineReader, gate: Gate, take: Take) -> None:
        size_bytes = self._limits.read_size_bytes
        await read_lines(source, lines, gate, take, read_size_bytes=size_bytes, protocols=self._protocols)

    def _take_stdout(self, lines: Sequence[Line | Oversize]) -> None:
        if self._is_closing:
            return
        first = lines[0]
        if isinstance(first, Line) and first.rest:  # a long line that ends in this read is its first line
            self._has_spoken = True
            self._port.pieces(self._channel, (first.data, *first.rest))
            lines = lines[1:]
        messages = messages_in(lines, self._limits.reply_size_max_bytes, self._log)
        if messages:
            self._has_spoken = True
            self._port.arrived(self._channel, messages)

    def _take_stderr(self, lines: Sequence[Line | Oversize]) -> None:
        for line in lines:
            text = (line.head if isinstance(line, Oversize) else line.data).decode("utf-8", "replace")
            self._stderr.append(text)
            self._log(text)

    def _report_sent(self, size_bytes: int) -> None:
        if not self._is_closing:
            self._port.sent(self._channel, size_bytes)

    def _report_end(self, cause: Cause) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._port.closed(self._channel, cause)

    async def _stop(self, process: subprocess.Popen[bytes], writing: anyio.CancelScope) -> None:
        """Stops the process in order: flush, close of stdin, TERM."""
        with anyio.move_on_after(FLUSH_GRACE_S):
            await self._written.wait()
        writing.cancel()
        if not await exits_within(process, self._limits.stop_grace_s):
            await self._terminate(process, self._limits.stop_grace_s)

    async def _terminate(self, process: subprocess.Popen[bytes], grace_s: float) -> None:
        self._is_terminated = True
        signal_group(process, signal.SIGTERM)
        await exits_within(process, grace_s)

    def _kill_group(self, process: subprocess.Popen[bytes]) -> None:
        """Kills the group, once: the system may use its number again after its leader is reaped."""
        if not self._is_killed:
            self._is_killed = True
            signal_group(process, signal.SIGKILL)

    async def _finish(self, process: subprocess.Popen[bytes], mark: str) -> None:
        """Makes sure that no process and no descriptor of the child is left."""
        if not self._is_terminated and not has_exited(process):
            await self._terminate(process, min(QUICK_GRACE_S, self._limits.stop_grace_s))
        self._kill_group(process)
        if await exits_within(process, KILL_WAIT_S):
            process.wait()
            self._orphan_guard.forget(process.pid)
        else:
            self._log(f"process {process.pid} could not be killed and is left behind")
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        await to_thread.run_sync(end_marked, mark, QUICK_GRACE_S)

    def _describe_end(self, process: subprocess.Popen[bytes], is_gone: bool) -> str:
        stderr, hint = self.last_stderr, None
        if not self._has_spoken:
            hint = hint_about(stderr, os.environ, environment_for(self._spec, os.environ), self._names)
        return describe_end(process.wait() if is_gone else None, stderr, has_spoken=self._has_spoken, hint=hint)


def _read_last(source: Descriptor, lines: LineReader, take: Take) -> None:
    """Takes what the pipe holds already. A process that has exited adds nothing, and its descendants are not waited
    for."""
    left = LAST_WORDS_MAX_BYTES
    while left > 0 and (data := source.read_now(left)):
        left -= len(data)
        if read := lines.receive_bytes(data):
            take(read)
    if cut := lines.receive_eof():
        take(cut)
