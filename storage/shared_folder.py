"""A folder whose files several processes change: whose turn it is, whether it has changed, and who is alive.

A folder beside it, `<folder>.openers`, has a file for each process, and one, `changes`, that holds a count. Whoever
changes the folder holds the lock of that file, and counts once before and once after. So an odd count is that of a
change that is going on, or that a crash has interrupted. A process that has read the folder at an even count knows it
until the count is another.

Each opener holds the lock of a file of its own, named after it, as its temporary files are. The system frees that lock
when the process ends in any way: its temporary files are leftovers from then on.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

COUNT_NAME: Final = "changes"
_COUNT_BYTES: Final = 8
_OPENER: Final = re.compile(r"[0-9a-f]{32}")
_TEMPORARY: Final = re.compile(r"~([0-9a-f]{32})\.[0-9a-f]{32}")
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class SharedFolder:
    """One opener of the folder. Methods that take a lock block: they are to be called in a worker thread.

    Args:
        root: the folder, which exists.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, root: str) -> None:
        self._openers = f"{root}.openers"
        os.makedirs(self._openers, mode=0o700, exist_ok=True)
        self._count = os.open(os.path.join(self._openers, COUNT_NAME), _FLAGS, 0o600)
        self._opener = secrets.token_hex(16)
        try:
            self._own = _hold(self._opener_path(self._opener))
        except BaseException:
            os.close(self._count)
            raise
        self.close = weakref.finalize(self, _close, (self._count, self._own), self._opener_path(self._opener))

    def count(self) -> int:
        """Returns the count of changes. Does not wait for a lock."""
        return int.from_bytes(os.pread(self._count, _COUNT_BYTES, 0), "little")

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Keeps the folder as it is, and returns the count."""
        with self._locked(fcntl.LOCK_SH):
            yield self.count()

    @contextmanager
    def changing(self, count_min: int = 0) -> Iterator[tuple[int, int]]:
        """Lets nobody else change the folder. Returns the count before, and that of this change, which is greater than
        that of any earlier one. Afterwards the count is one more.

        Args:
            count_min: the count is made at least this.
        """
        with self._locked(fcntl.LOCK_EX):
            before = self.count()
            own = max(before, count_min) + 1 | 1
            self._write(own)
            try:
                yield before, own
            finally:
                self._write(own + 1)

    def temporary_name(self) -> str:
        """Returns a fresh name of a temporary file of this opener."""
        return f"~{self._opener}.{secrets.token_hex(16)}"

    def left(self, names: list[str], used: set[str]) -> list[str]:
        """Returns those of the folder's names that are temporary and belong to nobody. Forgets openers that are gone.

        Args:
            used: the names of temporary files that this opener uses.
        """
        others = {name for name in os.listdir(self._openers) if _OPENER.fullmatch(name) and name != self._opener}
        for opener in [each for each in others if _is_free(self._opener_path(each))]:
            others.remove(opener)
            with suppress(FileNotFoundError):
                os.unlink(self._opener_path(opener))
        found = []
        for name in names:
            match = _TEMPORARY.fullmatch(name)
            if name.startswith("~") and name not in used and (match is None or match[1] not in others):
                found.append(name)
        return found

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        fcntl.flock(self._count, how)
        try:
            yield
        finally:
            fcntl.flock(self._count, fcntl.LOCK_UN)

    def _write(self, count: int) -> None:
        os.pwrite(self._count, count.to_bytes(_COUNT_BYTES, "little"), 0)

    def _opener_path(self, opener: str) -> str:
        return os.path.join(self._openers, opener)


def _hold(path: str) -> int:
    """Creates and locks a file, and returns its descriptor."""
    while True:
        file = os.open(path, _FLAGS, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(file).st_ino:
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # a sweep removed the file before it was locked


def _is_free(path: str) -> bool:
    """True if nobody holds the lock of the file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # another sweep removes it, and what it left
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _close(files: tuple[int, ...], path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
    for file in files:
        with suppress(OSError):
            os.close(file)
