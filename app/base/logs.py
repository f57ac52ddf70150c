"""Log lines on stderr, as text for people or JSON for programs. Payloads and secrets are never logged.

Whoever logs must not wait for whoever reads stderr, or a terminal that was stopped would stop every session. So a
thread writes the lines; what it cannot keep up with is dropped, and counted.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from datetime import UTC, datetime
from typing import Final

import msgspec

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
WAITING_MAX_CHARS: Final = 4 * 1024 * 1024
"""Lines not yet written. A server that reports every step writes some 100 KB a second."""
FLUSH_TIMEOUT_S: Final = 1.0
"""How long the end of the process waits for the last lines to be taken."""


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = f"{at} {record.levelname.lower():7} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _Unhurried(logging.Handler):
    """Formats a record at once, and leaves the writing to a thread.

    The thread writes to the descriptor, past Python's stream: at the end of the process a lock held by a thread that
    waits for its reader would be fatal.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._size_chars = 0
        self._dropped = 0
        self._is_writing = False
        self._is_closed = False
        threading.Thread(target=self._write, name="log lines", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            self.put(line)

    def put(self, line: str) -> None:
        """Write a line as it is, when its turn has come."""
        line += "\n"
        with self._changed:
            if self._size_chars + len(line) > WAITING_MAX_CHARS:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._size_chars += len(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Return when all is written, or after `FLUSH_TIMEOUT_S`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._has_lines and not self._is_writing, FLUSH_TIMEOUT_S)

    def close(self) -> None:
        """Let the thread end when it is through."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    @property
    def _has_lines(self) -> bool:
        return bool(self._lines or self._dropped)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._has_lines or self._is_closed)
                if not self._has_lines:
                    return
                lines, dropped = self._lines, self._dropped
                self._lines, self._size_chars, self._dropped = [], 0, 0
                self._is_writing = True
            if dropped:
                lines.append(self._say_dropped(dropped))
            try:
                _write_all(self._fd, "".join(lines).encode("utf-8", "backslashreplace"))
            except OSError:
                continue  # whoever read it is gone

    def _say_dropped(self, count: int) -> str:
        text = f"{count} log line{'' if count == 1 else 's'} dropped: stderr was not read fast enough"
        return f"{self.format(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))}\n"


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:  # whoever shares it with us made it so
            select.select([], [fd], [])


def set_up(level: str, format: str) -> None:
    """Log to stderr from now on. `level` is one of `LEVELS`; `format` is text or json."""
    handler = _handler()
    handler.setFormatter(_Json() if format == "json" else _Text())
    root = logging.getLogger("isthmus")
    for replaced in root.handlers:
        replaced.flush()
        replaced.close()
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level.upper())


def say(text: str) -> None:
    """A line for people among the log's, whatever the level; it waits for nobody either."""
    for handler in logging.getLogger("isthmus").handlers:
        if isinstance(handler, _Unhurried):
            handler.put(text)
        else:
            print(text, file=sys.stderr, flush=True)


def _handler() -> logging.Handler:
    try:
        return _Unhurried(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # not a file: nobody has to be waited for
        return logging.StreamHandler(sys.stderr)
