"""Output for people. Stdout and stderr may be closed, an unread pipe, a full disk, or of a narrower encoding."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import sys
from collections.abc import Callable
from typing import Final

import msgspec

SHORT_MAX_CHARS: Final = 60
"""Names that people choose are shorter; a server may send one of several megabytes."""

_RUN: Final = re.compile(r"[^\n\t'\\]+")
"""Text of which `repr` escapes what cannot be seen, and nothing else."""
_WIDE: Final = re.compile(r"[^\x00-\x7e]+")
"""Text that an encoder of JSON may leave as it is although it cannot be seen."""


class OutputClosed(Exception):
    """Stdout can no longer be written; the message says why."""


def set_up() -> None:
    """Makes stdout escape characters that its encoding lacks, as Python does for stderr.

    Gives stdout a buffer where `PYTHONUNBUFFERED` took it. Without one Python drops the rest of a write that is
    interrupted, as when the process is stopped and goes on.

    Opens /dev/null for each closed standard descriptor, so that no socket gets the number 0, 1 or 2.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # `open` takes the lowest free number, which is this one
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            buffer = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 (open until the process ends)
            sys.stdout = io.TextIOWrapper(buffer, sys.stdout.encoding, sys.stdout.errors, line_buffering=True)


def say(text: str, paint: Callable[[str], str] | None = None, *, is_raw: bool = False) -> None:
    """Prints a line, or several, on stdout and flushes it. Controls are escaped: peers chose parts of it.

    Args:
        paint: adds colours, if stdout is a terminal that has them.
        is_raw: leave controls as they are, for a text that is the whole output, and no terminal gets it.

    Raises:
        OutputClosed: stdout cannot be written. Later lines are discarded silently.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):  # print drops what a full pipe does not take
        os.set_blocking(sys.stdout.fileno(), True)
    try:
        shown = text if is_raw else laid_out(text)
        print(shown if paint is None or not has_colours() else paint(shown), flush=True)
    except OSError as error:
        _silence()
        raise OutputClosed(f"stdout cannot be written: {error.strerror or error}") from error


def write(data: bytes) -> None:
    """Writes bytes to stdout and flushes it.

    Raises:
        OutputClosed: as `say`.
    """
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _silence()
        raise OutputClosed(f"stdout cannot be written: {error.strerror or error}") from error


def has_reader() -> bool:
    """False if stdout is a pipe that nobody reads any more, which else shows when the next line is written."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # a stdout without a descriptor, as in tests
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return not any(events & select.POLLERR for _, events in poll.poll(0))
    return True


def has_colours() -> bool:
    """True if stdout is a terminal with colours, and nobody refuses them (https://no-color.org)."""
    is_refused = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return not is_refused and sys.stdout is not None and sys.stdout.isatty()


def say_json(value: object) -> None:
    """Prints a value as JSON, a line for each member.

    Raises:
        OutputClosed: as `say`.
    """
    say(plain_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def complain(text: str) -> None:
    """Prints a line on stderr, if it can be written: in one write, as log lines may come between two."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"{laid_out(text)}\n", end="", file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """Makes text of a peer fit for a terminal: on one line, each character that cannot be seen as an escape (`\\x1b`).

    Such are controls, line ends, marks of direction and lone surrogates: they could recolour what others wrote, hide
    it, or begin a line that looks like another's.
    """
    return text if text.isprintable() else laid_out(text).replace("\n", "\\n").replace("\t", "\\t")


def laid_out(text: str) -> str:
    """Escapes as `plain` does, except for line ends and tabs: where a peer's text is part of it, `plain` did that."""
    # By `repr`, for a peer that floods the log with controls must not take all of a core.
    return text if text.isprintable() else _RUN.sub(lambda run: repr(run[0])[1:-1], text)


def plain_json(text: str) -> str:
    """Escapes what cannot be seen in JSON, as JSON does; only line ends between members stay."""
    return text if text.isprintable() else _WIDE.sub(_json_escaped, text)


def _json_escaped(run: re.Match[str]) -> str:
    return run[0] if run[0].isprintable() else json.dumps(run[0])[1:-1].replace("\x7f", "\\u007f")


def short(text: str) -> str:
    """Cuts a name or a reason to `SHORT_MAX_CHARS`."""
    return cut(text, SHORT_MAX_CHARS)


def cut(text: str, columns: int) -> str:
    """Cuts a text to a number of characters, and marks that it is cut."""
    return text if len(text) <= columns else f"{text[: columns - 1]}…"


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
