"""The file of `--trace`: opened so that writing never blocks, and given up if it cannot be written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from ..base.errors import StartError

_log = logging.getLogger("isthmus.server")


class Trace:
    """A trace file. If writing fails, the trace ends and the proxy goes on."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self._path = path
        self._file: BinaryIO | None = file

    def write(self, line: bytes) -> None:
        if self._file is not None:
            try:
                self._file.write(line)
            except OSError as error:
                self._give_up(self._file, error)

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._give_up(self._file, error)

    def _give_up(self, file: BinaryIO, error: OSError) -> None:
        self._file = None
        _log.error("the trace %s ends here: %s", self._path, error.strerror)
        with contextlib.suppress(OSError):
            file.close()


@contextlib.contextmanager
def open_trace(path: str) -> Iterator[Trace]:
    """Opens and locks the file, with mode 0600, empties it, and closes it when the context is left.

    Raises:
        StartError: the file cannot be written, or another run is writing it.
    """
    try:
        # O_NONBLOCK: opening a pipe without a reader, or writing to a full one, fails instead of blocking.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.fchmod(descriptor, 0o600)  # an existing file may have been readable by all
                os.ftruncate(descriptor, 0)
        except OSError:
            os.close(descriptor)
            raise
    except BlockingIOError as error:
        raise StartError(f"the trace {path} cannot be written: another run is writing it") from error
    except OSError as error:
        reason = "nobody reads that pipe" if error.errno == errno.ENXIO else error.strerror
        raise StartError(f"the trace {path} cannot be written: {reason}") from error
    trace = Trace(path, os.fdopen(descriptor, "wb"))
    try:
        yield trace
    finally:
        trace.close()
