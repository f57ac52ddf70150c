"""What people see: stdout and stderr may be closed, a pipe that nobody reads, a full disk, or of another alphabet."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Final

SHORT_MAX_CHARS: Final = 60
"""Names that people choose are shorter; a server may send one of megabytes."""


class Unheard(Exception):
    """Stdout takes nothing any more; the message says why."""


def set_up() -> None:
    """Escape characters that stdout's encoding lacks, as Python does for stderr; keep sockets from being either."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """Print a line on stdout, at once.

    Raises:
        Unheard: it cannot be written. What is said later goes nowhere.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):  # print drops what a full pipe does not take
        os.set_blocking(sys.stdout.fileno(), True)
    try:
        print(text, flush=True)
    except OSError as error:
        _silence()
        raise Unheard(f"stdout cannot be written: {error.strerror or error}") from error


def complain(text: str) -> None:
    """Print a line on stderr, if it takes one: in one write, as log lines may come between two."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"{text}\n", end="", file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """What others said, fit for a terminal: on one line, and without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def short(text: str) -> str:
    """As much of a name or a reason as a part of a line should take."""
    return text if len(text) <= SHORT_MAX_CHARS else f"{text[: SHORT_MAX_CHARS - 1]}…"


def finish() -> None:
    """Write out what others printed; what cannot be written is dropped, so that the interpreter's end is silent."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _silence()


def _silence() -> None:
    """What stdout still buffers would fail anew when the interpreter flushes it."""
    with contextlib.suppress(OSError):  # a stdout without a descriptor, as in tests
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
