"""A line on stderr that says what goes on, and is overwritten in place on a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import Final

from ..base.output import complain, plain

_CLEAR: Final = "\r\x1b[K"


def columns() -> int:
    """Returns the width of what is shown to people: that of the terminal, or 80."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout is not None and sys.stdout.isatty() else 80


class StatusLine:
    """The line. Where stderr is no terminal, each state of it is a line of its own."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_shown = False

    def show(self, text: str) -> None:
        """Shows a text of a peer in place of the one before."""
        text = plain(text)
        if not self._is_terminal:
            complain(text)
            return
        room = shutil.get_terminal_size((80, 24)).columns - 1
        self._write(_CLEAR + (text if len(text) <= room else f"{text[: room - 1]}…"))
        self._is_shown = True

    def say(self, text: str) -> None:
        """Prints a line, or several, that stay."""
        self.clear()
        complain(text)

    def clear(self) -> None:
        if self._is_shown:
            self._write(_CLEAR)
            self._is_shown = False

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self._is_terminal = False
