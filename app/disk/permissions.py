"""What a session of a server may have taken in: where its relative paths start, where paths may lead, and where never.

A path is judged by where it really leads, all links resolved: into the session's own folders, or into one of the
server's artifact roots, but never into anything private. A private file stays so under a second name too: a hard link
to it in a session's own folder is not taken.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import BinaryIO, Final

from .openat import is_within, open_regular, reason_of
from .walk import PATH_SIZE_MAX, list_files

MISSING: Final = "missing"
FORBIDDEN: Final = "not permitted"
PRIVATE_ENTRIES_MAX: Final = 20_000
"""Entries of private folders that are looked through for a file with several names, some 30 ms. Where there are more,
such a file is not taken: ordinary output has one name."""


class OutOfReach(Exception):
    """What is named cannot be taken. `problem` says why, for people, and nothing of what there is elsewhere."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class Reach:
    """Made for one order; what private folders hold is read once, if at all. Its methods block.

    Args:
        own: the session's folders, resolved.
        start: what relative candidates start from.
        roots: further folders files may be named in, resolved.
        private: files and folders that nothing is taken from, but for `own` below them; resolved.
        private_prefix: what begins so is private as well, but for `own`.
    """

    def __init__(
        self, *, own: Sequence[str], start: str, roots: Sequence[str], private: Sequence[str], private_prefix: str
    ) -> None:
        self._own = tuple(own)
        self._start = start
        self._roots = tuple(roots)
        self._private = tuple(private)
        self._private_prefix = private_prefix

    def resolve(self, candidate: str) -> str:
        """Where a path leads, whether anything is there or not.

        Raises:
            OutOfReach: it cannot be a path, or leads where it may not.
        """
        if not candidate or len(candidate) > PATH_SIZE_MAX or "\0" in candidate:
            raise OutOfReach(MISSING)
        try:
            path = os.path.realpath(os.path.join(self._start, candidate))
            path.encode()
        except UnicodeEncodeError:
            raise OutOfReach(f"{FORBIDDEN}: its name is not UTF-8") from None
        except (RecursionError, OSError):  # links to links to links: up to Python 3.12 each takes a piece of the stack
            raise OutOfReach(f"{FORBIDDEN}: it leads through too many links") from None
        # Before looking whether it is there: nobody learns what exists outside.
        if not self.permits(path):
            raise OutOfReach(FORBIDDEN)
        return path

    def open(self, path: str) -> BinaryIO:
        """The regular file at a path that was resolved here, for reading, unbuffered.

        Raises:
            IsADirectoryError: it is a folder.
            OutOfReach: it cannot be taken.
        """
        try:
            file = open_regular(path)
        except IsADirectoryError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise OutOfReach(MISSING) from None
        except OSError as error:
            raise OutOfReach(problem_of(error)) from error
        if not self.permits_file(os.fstat(file.fileno())):
            file.close()
            raise OutOfReach(FORBIDDEN)
        return file

    def permits(self, path: str) -> bool:
        """Whether what lies at `path`, absolute and resolved, may be taken."""
        if self._is_own(path):
            return True
        if path.startswith(self._private_prefix) or any(is_within(path, private) for private in self._private):
            return False
        return any(is_within(path, folder) for folder in self._roots)

    def permits_file(self, found: os.stat_result) -> bool:
        """Whether a file that lies where it may is none that has another name where it may not."""
        if found.st_nlink <= 1:
            return True
        twins = self._private_files
        return twins is not None and (found.st_dev, found.st_ino) not in twins

    @cached_property
    def _private_files(self) -> frozenset[tuple[int, int]] | None:
        """Device and inode of each private file that has several names; None: there are too many to tell."""
        beside, prefix = os.path.split(self._private_prefix)
        paths = [*self._private, *(os.path.join(beside, name) for name in _names_in(beside) if name.startswith(prefix))]
        found = list_files(
            [path for path in paths if not self._is_own(path)],
            entries_max=PRIVATE_ENTRIES_MAX,
            enters=lambda path: not self._is_own(path),
            with_any_name=True,
        )
        if found.is_cut:
            return None
        stats = [file.stat for file in found.files]
        for path in self._private:
            with suppress(OSError):  # nothing there that could have another name
                stats.append(os.stat(path, follow_symlinks=False))
        return frozenset((stat.st_dev, stat.st_ino) for stat in stats if stat.st_nlink > 1)

    def _is_own(self, path: str) -> bool:
        return any(is_within(path, folder) for folder in self._own)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def problem_of(error: OSError) -> str:
    """Why something that is there cannot be taken."""
    if error.errno == errno.ENAMETOOLONG:
        return MISSING
    return f"{FORBIDDEN if isinstance(error, PermissionError) else 'unreadable'}: {reason_of(error)}"
