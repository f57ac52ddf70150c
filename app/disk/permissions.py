"""Decides which files may be taken in for a session of a server.

A path is judged by where it really leads, all links resolved. It may lead into the session's own folders or into one
of the server's artifact roots, but never into anything private.

A hard link does not show where else its file has a name. So a file with several names is taken only from roots for
which the operator allows it, and even there not if one of its names is private.
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
"""Entries of private folders that are searched when a file has several names; takes some 30 ms. Ordinary output has one
name. At it: such a file is not taken."""


class NotPermitted(Exception):
    """A path cannot be taken.

    Attributes:
        problem: the reason, for people; it reveals nothing about files elsewhere.
        path: where the path leads, if that is neither private nor in a folder that files are taken from.
    """

    def __init__(self, problem: str, path: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


class Permissions:
    """The permissions of one order. Private folders are read at most once. All methods block.

    Args:
        own: the session's folders, resolved.
        start: the folder that relative candidates start from.
        roots: further folders whose files may be taken, resolved.
        hard_linked_roots: those of `roots` in which a file may have several names, resolved.
        private: files and folders that nothing is taken from, except `own` below them; resolved.
        private_prefix: paths with this prefix are private too, except `own`.
    """

    def __init__(
        self,
        *,
        own: Sequence[str],
        start: str,
        roots: Sequence[str],
        hard_linked_roots: Sequence[str],
        private: Sequence[str],
        private_prefix: str,
    ) -> None:
        self._own = tuple(own)
        self._start = start
        self._roots = tuple(roots)
        self._hard_linked_roots = tuple(hard_linked_roots)
        self._private = tuple(private)
        self._private_prefix = private_prefix

    def resolve(self, candidate: str) -> str:
        """Returns where a path leads, all links resolved, whether anything exists there or not.

        Raises:
            NotPermitted: the candidate cannot be a path, or leads where it may not.
        """
        if not candidate or len(candidate) > PATH_SIZE_MAX or "\0" in candidate:
            raise NotPermitted(MISSING)
        try:
            path = os.path.realpath(os.path.join(self._start, candidate))
            path.encode()
        except UnicodeEncodeError:
            raise NotPermitted(f"{FORBIDDEN}: its name is not UTF-8") from None
        except (RecursionError, OSError):  # chains of links: up to Python 3.12, realpath recurses for each
            raise NotPermitted(f"{FORBIDDEN}: it leads through too many links") from None
        # Checked before existence, so that a server does not learn which files exist elsewhere.
        if not self.permits(path):
            raise NotPermitted(FORBIDDEN, None if self._is_private(path) else path)
        return path

    def open(self, path: str) -> BinaryIO:
        """Opens the regular file at a path from `resolve` for reading, unbuffered.

        Raises:
            IsADirectoryError: the path is a folder.
            NotPermitted: the file cannot be taken.
        """
        try:
            file = open_regular(path, may_be_linked=self._may_be_linked(path))
        except IsADirectoryError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise NotPermitted(MISSING) from None
        except OSError as error:
            raise NotPermitted(problem_of(error)) from error
        if not self.permits_file(path, os.fstat(file.fileno())):
            file.close()
            raise NotPermitted(FORBIDDEN)
        return file

    def permits(self, path: str) -> bool:
        """True if `path`, absolute and resolved, may be taken."""
        if self._is_own(path):
            return True
        if self._is_private(path):
            return False
        return any(is_within(path, folder) for folder in self._roots)

    def permits_file(self, path: str, found: os.stat_result) -> bool:
        """True if the file found at a permitted path has one name, or may have several and none of them is private."""
        if found.st_nlink <= 1:
            return True
        if not self._may_be_linked(path):
            return False
        twins = self._private_files
        return twins is not None and (found.st_dev, found.st_ino) not in twins

    @cached_property
    def _private_files(self) -> frozenset[tuple[int, int]] | None:
        """Device and inode of each private file with several names; None if there are too many entries to search."""
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
            with suppress(OSError):  # it does not exist, so it has no other name
                stats.append(os.stat(path, follow_symlinks=False))
        return frozenset((stat.st_dev, stat.st_ino) for stat in stats if stat.st_nlink > 1)

    def _may_be_linked(self, path: str) -> bool:
        return any(is_within(path, folder) for folder in self._hard_linked_roots)

    def _is_private(self, path: str) -> bool:
        return path.startswith(self._private_prefix) or any(is_within(path, private) for private in self._private)

    def _is_own(self, path: str) -> bool:
        return any(is_within(path, folder) for folder in self._own)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def problem_of(error: OSError) -> str:
    """Returns the problem, for people, of a file that exists and cannot be taken."""
    if error.errno == errno.ENAMETOOLONG:
        return MISSING
    return f"{FORBIDDEN if isinstance(error, PermissionError) else 'unreadable'}: {reason_of(error)}"
