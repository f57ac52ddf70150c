"""A terminal as a screen that is drawn anew in place, and given back as it was."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, without a cursor, and with lines that are cut off at its edge."""
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_KEYS_MAX_BYTES: Final = 64
"""Bytes of keys that are read at a time; the others are read next."""


class Ended(BaseException):
    """A signal ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)


class Screen:
    """The terminal of stdout, and the keys of that of stdin."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._modes: list[Any] = []
        self._wake = (-1, -1)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Screen:
        self._wake = os.pipe()
        for end in self._wake:
            os.set_blocking(end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGWINCH: lambda number, frame: None,  # it ends the wait, and the next drawing has the new size
            signal.SIGTSTP: lambda number, frame: self._pause(),
            signal.SIGTERM: _end,
            signal.SIGHUP: _end,
        }
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        os.set_blocking(self._out, True)
        self._take()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._give_back()
        for end in self._wake:
            os.close(end)

    @property
    def rows(self) -> int:
        return max(1, os.get_terminal_size(self._out).lines)

    def show(self, lines: list[str]) -> None:
        """Draws the lines in the place of those before.

        Raises:
            OSError: the terminal is gone.
        """
        # The last line has no line end: it would scroll the screen.
        self._write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def wait(self, seconds: float) -> str:
        """Waits for keys or a new size, for so long at most. Returns the keys."""
        watched = [self._wake[0], *([] if self._keys is None else [self._keys])]
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], _KEYS_MAX_BYTES)
        if self._keys is None or self._keys not in ready:
            return ""
        return os.read(self._keys, _KEYS_MAX_BYTES).decode(errors="replace") or "q"  # no byte: the terminal is gone

    def _take(self) -> None:
        if self._keys is not None:
            self._modes = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._write(_ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            self._write(_LEAVE)
            if self._keys is not None:
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def _pause(self) -> None:
        """Stops this process, as Ctrl-Z orders, with the terminal given back until it goes on."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8", errors="backslashreplace")
        while data:
            data = data[os.write(self._out, data) :]


def _end(number: int, frame: FrameType | None) -> None:
    raise Ended(number)
