"""Log lines on stderr, as text for people or JSON for programs. Payloads and secrets are never logged.

Logging must not wait for the reader of stderr: a stopped terminal would stop every session. So a thread writes the
lines. Lines that come faster than they can be written are dropped and counted.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from .output import laid_out, plain, plain_json

REQUESTS: Final = "isthmus.requests"
"""The name of the log of clients' requests."""
T = TypeVar("T")

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
WAITING_MAX_CHARS: Final = 4 * 1024 * 1024
"""Characters of lines not yet written. A server that logs every step writes some 100 KB a second."""
FLUSH_TIMEOUT_S: Final = 1.0
"""Seconds that the end of the process waits for the last lines to be written."""
LATER_CHARS: Final = 200
"""Characters that a line which is not made yet counts for."""
GATHER_S: Final = 0.01
"""Seconds that the first of several lines waits to be written with the others."""
_CLEAR: Final = "\r\x1b[K"
"""Moves a terminal's cursor to the beginning of its line, and clears that."""
_INDENT: Final = "    "
"""Before each line of a traceback."""


class _Text(logging.Formatter):
    def __init__(self, process: str = "") -> None:
        super().__init__()
        self.process = process
        self.prefix = f"{process}: " if process else ""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = f"{at} {record.levelname.lower():7} {self.prefix}{plain(record.getMessage())}"
        if not record.exc_info:
            return line
        # Indented: an error's text may have lines that look like those of the log.
        trace = laid_out(self.formatException(record.exc_info))
        return f"{line}\n{textwrap.indent(trace, _INDENT)}"


class _Json(logging.Formatter):
    def __init__(self, process: str = "") -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"worker": self.process} if self.process else {}),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return plain_json(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


class _Later(NamedTuple):
    """A line of the log `name` that is made of a thing when it is written."""

    name: str
    render: Callable[[Any], str]
    thing: Any
    at_unix: float


class _ThreadedHandler(logging.Handler):
    """A log handler that formats a record at once and leaves the writing to a thread.

    The thread writes to the descriptor, not to Python's stream. A thread that blocks in a write holds the stream's
    lock, and the interpreter aborts when it cannot take that lock at the end of the process.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._changed = threading.Condition()
        self._lines: list[str | _Later] = []
        self._second = -1
        self._head = ""
        self._size_chars = 0
        self._dropped = 0
        self.later_dropped = 0  # lines of `write_later`, from the start
        self._is_writing = False
        self._is_closed = False
        self._is_hurried = False
        self._has_news = False
        self._written = ""
        self._shown = ""  # what stands on the terminal's last line, and is overwritten
        self.can_overwrite = os.isatty(fd) and os.environ.get("TERM", "dumb") != "dumb"
        threading.Thread(target=self._write, name="log lines", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            self.put(line)

    def put(self, line: str) -> None:
        """Queues a line to be written as it is. Drops it if `WAITING_MAX_CHARS` would be exceeded."""
        line += "\n"
        with self._changed:
            if self._size_chars + len(line) > WAITING_MAX_CHARS:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._size_chars += len(line)
                if len(self._lines) > 1:
                    return  # the thread is awake
            self._changed.notify_all()

    def put_later(self, later: _Later) -> None:
        """Queues a line that is made when it is written."""
        with self._changed:
            if self._size_chars + LATER_CHARS > WAITING_MAX_CHARS:
                self._dropped += 1
                self.later_dropped += 1
            else:
                self._lines.append(later)
                self._size_chars += LATER_CHARS
                if len(self._lines) > 1:
                    return
            self._changed.notify_all()

    def show(self, line: str) -> None:
        """Shows a line below the log, in place of the one that was shown before; "": none."""
        with self._changed:
            if line != self._shown:
                self._shown, self._has_news = line, True
                self._changed.notify_all()

    def flush(self) -> None:
        """Returns when all lines are written, or after `FLUSH_TIMEOUT_S`."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._has_lines and not self._is_writing, FLUSH_TIMEOUT_S)
            self._is_hurried = False

    def close(self) -> None:
        """Lets the thread end once it has written all lines."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    @property
    def _has_lines(self) -> bool:
        return bool(self._lines or self._dropped or self._has_news)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._has_lines or self._is_closed)
                if not self._has_lines:
                    return
                # More lines come at once where many requests do, and waking the thread for each costs more than them.
                self._changed.wait_for(lambda: self._is_hurried or self._is_closed, GATHER_S)
                waiting, dropped = self._lines, self._dropped
                self._lines, self._size_chars, self._dropped = [], 0, 0
                before, self._written, self._has_news = self._written, self._shown, False
                self._is_writing = True
            lines = [line if isinstance(line, str) else self._text(line) for line in waiting]
            if dropped:
                lines.append(self._dropped_line(dropped))
            if before:
                lines.insert(0, _CLEAR)
            lines.append(self._written)
            try:
                _write_all(self._fd, "".join(lines).encode("utf-8", "backslashreplace"))
            except OSError:
                continue  # the reader of stderr is gone

    def _text(self, later: _Later) -> str:
        text, second = later.render(later.thing), int(later.at_unix)
        if isinstance(self.formatter, _Json):
            record = _record(logging.INFO, text, later.name)
            record.created = later.at_unix
            return f"{self.format(record)}\n"
        if second != self._second:
            self._second = second
            self._head = f"{datetime.fromtimestamp(second, UTC).strftime('%H:%M:%S')} info   "
        prefix = self.formatter.prefix if isinstance(self.formatter, _Text) else ""
        return f"{self._head} {prefix}{plain(text)}\n"

    def _dropped_line(self, count: int) -> str:
        text = f"{count} log line{'' if count == 1 else 's'} dropped: stderr was not read fast enough"
        return f"{self.format(_record(logging.WARNING, text))}\n"


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:  # another process that shares the descriptor made it non-blocking
            select.select([], [fd], [])


def set_up(level: str, format: str, *, requests: bool | None = None, worker: str = "") -> None:
    """Sends the log to stderr from now on, and with it what libraries log and the error that ends the process.

    Args:
        level: one of `LEVELS`.
        format: text or json.
        requests: log a line for each request of a client, whatever the level; None: as that says.
        worker: the tag of this process, which each line bears, among those that write to the same stderr.
    """
    handler = _handler()
    handler.setFormatter(_Json(worker) if format == "json" else _Text(worker))
    root = logging.getLogger("isthmus")
    for replaced in root.handlers:
        replaced.flush()
        replaced.close()
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    of_requests = logging.NOTSET if requests is None else logging.INFO if requests else logging.WARNING
    logging.getLogger(REQUESTS).setLevel(of_requests)
    logging.lastResort = handler  # of loggers without a handler, such as that of asyncio
    sys.excepthook = _log_crash


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger(__name__).critical("ended by an error", exc_info=(kind, error, trace))


def say(text: str) -> None:
    """Writes a line for people to where the log goes, whatever the level, without waiting either.

    In a log that is JSON, the line is one of its objects.
    """
    for handler in logging.getLogger("isthmus").handlers:
        is_json = isinstance(handler.formatter, _Json)
        prefix = handler.formatter.prefix if isinstance(handler.formatter, _Text) else ""
        line = handler.format(_record(logging.INFO, text)) if is_json else f"{prefix}{laid_out(text)}"
        if isinstance(handler, _ThreadedHandler):
            handler.put(line)
        else:
            print(line, file=sys.stderr, flush=True)


def write_later(name: str, render: Callable[[T], str], thing: T) -> None:
    """Logs a line at level info, which the thread makes of a thing that does not change.

    Many of these in a row cost a fraction of what each costs where it happens, between other work.
    """
    for handler in logging.getLogger("isthmus").handlers:
        if isinstance(handler, _ThreadedHandler):
            handler.put_later(_Later(name, render, thing, time.time()))
        else:
            handler.handle(_record(logging.INFO, render(thing), name))


def later_dropped() -> int:
    """Returns the number of lines of `write_later` that were dropped."""
    handlers = logging.getLogger("isthmus").handlers
    return sum(handler.later_dropped for handler in handlers if isinstance(handler, _ThreadedHandler))


def can_overwrite() -> bool:
    """True if the log goes to a terminal, as text: a line can be shown below it that is overwritten in place."""
    return any(
        isinstance(handler, _ThreadedHandler) and handler.can_overwrite and not isinstance(handler.formatter, _Json)
        for handler in logging.getLogger("isthmus").handlers
    )


def show(text: str) -> None:
    """Shows what goes on: in place of what was shown before where that can be, else as a line of its own."""
    if not can_overwrite():
        say(text)
        return
    for handler in logging.getLogger("isthmus").handlers:
        if isinstance(handler, _ThreadedHandler):
            handler.show(plain(text))


def end_shown() -> None:
    """Takes back what is shown. Returns when it is gone, so that another stream can go on."""
    for handler in logging.getLogger("isthmus").handlers:
        if isinstance(handler, _ThreadedHandler) and handler.can_overwrite:
            handler.show("")
            handler.flush()


def _record(level: int, text: str, name: str = __name__) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 0, text, None, None)


def _handler() -> logging.Handler:
    try:
        return _ThreadedHandler(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # not a file, so writing does not block
        return logging.StreamHandler(sys.stderr)
