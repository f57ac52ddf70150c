"""The file of the audit log. Several processes may append to it, and others may move it away."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import Final

BEGINNING: Final = b'{"time":"'
"""The beginning of each record."""
TORN_MAX_BYTES: Final = 256 * 1024
"""Bytes at the end of the file that are searched for the beginning of a line that was cut off. Lines are shorter. At
it: the line stays, and the next one begins after a line end."""


class AuditFile:
    """A file to which whole lines are appended, or none of them.

    A block of lines is one write, under a lock that all processes take. So a block that does not fit, since the disk is
    full, is taken back before anybody else writes. A line that the end of a process has cut off is removed by the next
    block.

    Args:
        is_durable: a block is on the disk when `write` returns.
    """

    def __init__(self, path: str, *, is_durable: bool) -> None:
        self.name = path
        self._is_durable = is_durable
        self._file = -1

    def open(self) -> None:
        """Opens the file, with mode 0600 if it is new.

        Raises:
            OSError: it cannot be opened, or is no regular file.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(self.name, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(0, "it is no regular file")
            if self._is_durable:
                _sync_folder(os.path.dirname(self.name) or ".")
        except OSError:
            os.close(file)
            raise
        self.close()
        self._file = file

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def write(self, lines: list[bytes]) -> None:
        """Appends lines, each with its line end, and removes them from the list.

        Raises:
            OSError: nothing was appended. If the lines could not be brought to the disk, they may be in the file.
        """
        if not self._is_there():
            self.open()
        file = self._file
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            _append(file, b"".join([_mend(file), *lines]))
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
        if self._is_durable:
            os.fsync(file)
        lines.clear()

    def _is_there(self) -> bool:
        """True if the open file is the one at its path."""
        if self._file < 0:
            return False
        try:
            found = os.stat(self.name)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._file))


def _append(file: int, block: bytes) -> None:
    size = os.fstat(file).st_size
    left = memoryview(block)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        with contextlib.suppress(PermissionError):  # the file may only grow (chattr +a)
            os.ftruncate(file, size)
        raise


def _mend(file: int) -> bytes:
    """Removes a record whose end is missing from the end of the file. Returns what is to stand before the next record:
    a line end, if it or another text has to stay."""
    size = os.fstat(file).st_size
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return b""
    length = min(size, TORN_MAX_BYTES)
    torn = os.pread(file, length, size - length).rpartition(b"\n")[2]
    if not torn.startswith(BEGINNING) and not BEGINNING.startswith(torn):
        return b"\n"
    try:
        os.ftruncate(file, size - len(torn))
    except PermissionError:
        return b"\n"
    return b""


def _sync_folder(path: str) -> None:
    """Brings the name of a new file to the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
