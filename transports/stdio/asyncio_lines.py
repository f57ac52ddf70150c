"""The asyncio driver of line-based pipes: reads and writes lines in callbacks of the event loop, at lower cost than
`lines`.

A descriptor stays registered with the loop as long as its lines are wanted. Lines are handed over in the callback that
reads them, and messages queued in one turn of the loop are written together in the next. So no task wakes for a
message: the task that awaits `run` is woken by the end only. The tests of `stdio` and `unix` run over these callbacks
(on asyncio and uvloop) and over the portable code in `lines`, and expect the same of both.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final

from ...core.wire.ndjson import Line, LineReader, Oversize, encode_lines
from ..base.descriptors import Descriptor
from ..base.gate import Gate
from .outbox import Outbox

TURN_LINES: Final = 100
"""Lines handed over before other callbacks get their turn: some milliseconds of work."""


Take = Callable[[Sequence[Line | Oversize]], None]
"""A function that takes the lines of one read, in their order; at least one."""


class LineReading:
    """Reads the lines of `source`, whose readiness must be known, and hands those of one read at once to `take`, while
    the gate is open."""

    def __init__(
        self,
        source: Descriptor,
        lines: LineReader,
        gate: Gate,
        take: Take,
        *,
        read_size_bytes: int,
    ) -> None:
        assert source.is_readiness_known
        self._source = source
        self._lines = lines
        self._gate = gate
        self._take = take
        self._read_size_bytes = read_size_bytes
        self._left: list[Line | Oversize] = []  # read, but not handed over yet
        self._is_listening = False
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Returns at the end of the stream.

        Raises:
            Exception: any that `take` raised.
        """
        self._gate.watcher = self._listen
        self._listen()
        try:
            await self._end
        except asyncio.CancelledError:
            if self._left:  # they were read from the pipe, so nobody else can read them
                self._take(self._left)
            raise
        finally:
            self._gate.watcher = None
            self._listen()

    def _listen(self) -> None:
        """Registers the descriptor with the event loop while the gate is open, and removes it otherwise."""
        is_wanted = self._gate.is_open and not self._end.done()
        if is_wanted is not self._is_listening:
            self._is_listening = is_wanted
            if is_wanted:
                self._loop.add_reader(self._source.fd, self._receive)
                self._source.keep_mode()
            else:
                self._loop.remove_reader(self._source.fd)

    def _receive(self) -> None:
        if self._left or self._end.done():
            return
        try:
            data = self._source.read_now(self._read_size_bytes)
            if data:
                self._left = self._lines.receive_bytes(data)
                self._hand_over()
            elif data is not None:
                if cut := self._lines.receive_eof():
                    self._take(cut)
                self._finish(None)
        except Exception as error:
            self._finish(error)

    def _go_on(self) -> None:
        if self._end.done():
            return
        try:
            self._hand_over()
        except Exception as error:
            self._finish(error)

    def _hand_over(self) -> None:
        """Hands over `TURN_LINES` lines at a time, so that others get their turn: one read may hold thousands of short
        lines."""
        lines, self._left = self._left[:TURN_LINES], self._left[TURN_LINES:]
        if lines:
            self._take(lines)
        if self._left:
            self._loop.call_soon(self._go_on)

    def _finish(self, error: Exception | None) -> None:
        _settle(self._end, error)
        self._listen()


class LineWriting:
    """Writes the messages of an outbox to a stream until the outbox ends."""

    def __init__(
        self, outbox: Outbox, sink: Descriptor, report: Callable[[int], None], *, stall_timeout_s: float | None
    ) -> None:
        assert sink.is_stream
        self._fd = sink.fd
        self._outbox = outbox
        self._report = report
        self._stall_timeout_s = stall_timeout_s
        self._left: collections.deque[bytes | memoryview] = collections.deque()
        self._left_size_bytes = 0  # bytes to report once all of `_left` is written
        self._is_due = False
        self._is_blocked = False
        self._moved_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Returns when all is written.

        Raises:
            OSError: the reader is gone.
            TimeoutError: the reader took nothing for `stall_timeout_s`.
        """
        self._outbox.watcher = self._plan
        self._plan()
        try:
            await self._end
        finally:
            self._outbox.watcher = None
            self._set_blocked(False)
            if self._watch is not None:
                self._watch.cancel()

    def _plan(self) -> None:
        """Schedules a write for the next turn of the loop, since more messages may be queued in this one."""
        if not (self._is_due or self._is_blocked):
            self._is_due = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        if self._end.done():
            return
        if self._is_blocked:
            self._moved_at = self._loop.time()  # the descriptor is writable, so the reader took something
        try:
            if not self._left:
                messages, self._left_size_bytes = self._outbox.take()
                self._left.extend(encode_lines(messages))
            self._set_blocked(not self._is_written())
            if self._is_blocked:
                return
            if self._left_size_bytes:
                self._report(self._left_size_bytes)
            if not self._outbox.is_empty:
                self._plan()
            elif self._outbox.is_ended:
                self._end.set_result(None)
        except Exception as error:
            _settle(self._end, error)

    def _is_written(self) -> bool:
        """Writes what is left, as far as the reader takes it. Returns True if all is written."""
        left = self._left
        with contextlib.suppress(BlockingIOError):
            while left:
                piece = left[0]
                size = os.write(self._fd, piece)
                if size < len(piece):
                    left[0] = memoryview(piece)[size:]
                    break
                left.popleft()
        return not left

    def _set_blocked(self, is_blocked: bool) -> None:
        if is_blocked is self._is_blocked:
            return
        self._is_blocked = is_blocked
        if not is_blocked:
            self._loop.remove_writer(self._fd)
            return
        self._loop.add_writer(self._fd, self._write)
        self._moved_at = self._loop.time()
        if self._stall_timeout_s is not None and self._watch is None:
            self._watch = self._loop.call_at(self._moved_at + self._stall_timeout_s, self._check)

    def _check(self) -> None:
        """Checks for a stall. The timer is set at the first wait and set again while the current wait is shorter than
        allowed."""
        assert self._stall_timeout_s is not None
        self._watch = None
        if not self._is_blocked or self._end.done():
            return
        gives_up_at = self._moved_at + self._stall_timeout_s
        if self._loop.time() < gives_up_at:
            self._watch = self._loop.call_at(gives_up_at, self._check)
        else:
            self._end.set_exception(TimeoutError())


def _settle(end: asyncio.Future[None], error: Exception | None) -> None:
    """Completes the future, unless its task was cancelled already."""
    if not end.done():
        if error is None:
            end.set_result(None)
        else:
            end.set_exception(error)
