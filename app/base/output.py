"""Output for people. Stdout and stderr may be closed, an unread pipe, a full disk, or of a narrower encoding."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Final

SHORT_MAX_CHARS: Final = 60
"""Names that people choose are shorter; a server may send one of several megabytes."""

LAYOUT: Final = "\n\t"
"""Controls in what this program prints. Where text of a peer is put into it, `plain` has escaped them."""


class OutputClosed(Exception):
    """Stdout can no longer be written; the message says why."""


def set_up() -> None:
    """Makes stdout escape characters that its encoding lacks, as Python does for stderr.

    Opens /dev/null for each closed standard descriptor, so that no socket gets the number 0, 1 or 2.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # `open` takes the lowest free number, which is this one
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """Prints a line, or several, on stdout and flushes it. Controls are escaped: peers chose parts of it.

    Raises:
        OutputClosed: stdout cannot be written. Later lines are discarded silently.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):  # print drops what a full pipe does not take
        os.set_blocking(sys.stdout.fileno(), True)
    try:
        print(plain(text, kept=LAYOUT), flush=True)
    except OSError as error:
        _silence()
        raise OutputClosed(f"stdout cannot be written: {error.strerror or error}") from error


def complain(text: str) -> None:
    """Prints a line on stderr, if it can be written: in one write, as log lines may come between two."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"{plain(text, kept=LAYOUT)}\n", end="", file=sys.stderr, flush=True)


def plain(text: str, *, kept: str = "") -> str:
    """Makes text of a peer fit for a terminal: on one line, each character that cannot be seen as an escape (`\\x1b`).

    Such are controls, line ends, marks of direction and half characters: they could recolour what others wrote, hide
    it, or begin a line that looks like another's. Those in `kept` stay.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def short(text: str) -> str:
    """Cuts a name or a reason to `SHORT_MAX_CHARS`."""
    return text if len(text) <= SHORT_MAX_CHARS else f"{text[: SHORT_MAX_CHARS - 1]}…"


def finish() -> None:
    """Flushes stdout. Drops what cannot be written, so that the interpreter does not report it when it ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _silence()


def _silence() -> None:
    """Points stdout to /dev/null: its buffer would fail again when the interpreter flushes it."""
    with contextlib.suppress(OSError):  # a stdout without a descriptor, as in tests
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
