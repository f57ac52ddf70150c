"""Lists the files that could be taken in for a session of a server, without changing any of them.

The same files are seen as could be collected: paths are judged in the same way (`permissions`), and folders are walked
without following a link (`walk`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Sequence
from typing import Final

from ...core.base.storage import SeenFile, Sighting, Survey, Surveyed
from .openat import is_within
from .permissions import MISSING, NotPermitted, Permissions, problem_of
from .walk import ListedFile, list_files, scanning

_NO_FILES: Final = ("/proc", "/sys", "/dev")
EMPTY_FOLDER: Final = "an empty folder"
BUSY_WITHIN_S: Final = 600.0
"""Seconds after its last change in which a listed file is checked for an open writer. The check takes four times as
long as listing the file, and a writer that is slower than this changes the stamp later anyway."""


def survey(order: Survey, permissions: Permissions, areas: Sequence[str], *, now_unix: float) -> Surveyed:
    """Carries out a `Survey`. Blocks.

    Args:
        areas: the folders that `order.areas` names, absolute and resolved.
        now_unix: wall time in seconds.
    """
    named = tuple(_look(spellings, permissions, order) for spellings in order.named)
    listing = list_files(areas, entries_max=order.entries_max)
    since = now_unix - BUSY_WITHIN_S
    seen = [_listed(file, permissions, since=since) for file in listing.files]
    return Surveyed(named, tuple(file for file in seen if file is not None), listing.is_cut)


def stamp_of(found: os.stat_result) -> str:
    """Returns the stamp of a file, as in `SeenFile`: another stamp means that it was written since, or replaced."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def _look(spellings: Sequence[str], permissions: Permissions, order: Survey) -> Sighting:
    """Returns the sighting of the first spelling that can be taken, else of the first that is not missing.

    A `~` is the name of a folder, or else stands for the home folder, which servers started here share with this
    process.
    """
    seen = Sighting(MISSING)
    for spelling in spellings:
        found = _look_for(spelling, permissions, order)
        if not found.problem:
            return found
        if seen.problem == MISSING:
            seen = found
    for spelling in spellings if seen.problem == MISSING else ():
        if spelling.startswith("~"):
            found = _look_for(os.path.expanduser(spelling), permissions, order)
            if not found.problem or found.left is not None:
                return found
    return seen


def _look_for(spelling: str, permissions: Permissions, order: Survey) -> Sighting:
    try:
        return _look_at(permissions.resolve(spelling), permissions, order)
    except NotPermitted as error:
        return Sighting(error.problem) if error.path is None else _left(error.problem, error.path)


def _left(problem: str, path: str) -> Sighting:
    """Returns the sighting of a path outside of the folders that files are taken from. What is there is not opened, and
    is shown only if it belongs to the user of this process, who also runs the servers started here."""
    if any(is_within(path, folder) for folder in _NO_FILES):
        return Sighting(problem)
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return Sighting(problem)
    is_folder = stat.S_ISDIR(found.st_mode)
    if found.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(found.st_mode)):
        return Sighting(problem)
    return Sighting(problem, is_folder=is_folder, left=_seen(path, found))


def _look_at(path: str, permissions: Permissions, order: Survey) -> Sighting:
    try:
        return Sighting(files=(_opened(path, permissions),))
    except IsADirectoryError:
        pass
    try:
        with scanning(path):
            pass
    except OSError as error:
        return Sighting(problem_of(error), is_folder=True)
    listing = list_files([path], entries_max=order.entries_max, enters=permissions.permits)
    files: list[SeenFile] = []
    for file in listing.files:
        seen = _listed(file, permissions) if permissions.permits(file.path) else None
        if seen is None:
            continue
        if len(files) == order.folder_max:
            return Sighting(files=tuple(files), is_folder=True, is_cut=True)
        files.append(seen)
    return Sighting("" if files else EMPTY_FOLDER, tuple(files), is_folder=True, is_cut=listing.is_cut)


def _listed(file: ListedFile, permissions: Permissions, *, since: float = 0.0) -> SeenFile | None:
    """Returns a listed file; None if it cannot be taken. A file unchanged since `since` is not opened."""
    if _changed_at(file.stat) < since:
        return _seen(file.path, file.stat) if permissions.permits_file(file.path, file.stat) else None
    try:
        return _opened(file.path, permissions)
    except (NotPermitted, IsADirectoryError):  # a folder was put in its place since
        return None


def _opened(path: str, permissions: Permissions) -> SeenFile:
    with permissions.open(path) as file:
        # Checked before the stamp is taken: a later writer changes the stamp, or is seen next time.
        is_busy = _is_written(file.fileno())
        return _seen(path, os.fstat(file.fileno()), is_busy=is_busy)


def _seen(path: str, found: os.stat_result, *, is_busy: bool = False) -> SeenFile:
    return SeenFile(path, found.st_size, stamp_of(found), _changed_at(found), is_busy)


def _changed_at(found: os.stat_result) -> float:
    return max(found.st_mtime, found.st_ctime)


def _is_written(file: int) -> bool:
    """True if another process has the file open for writing, as far as the system tells.

    The system refuses a read lease then (fcntl(2), "Leases"). A lease that is granted is given back at once. A process
    that opens the file for writing in between waits that long. The system signals the lease holder then: the default
    signal, SIGIO, would end the process, so SIGURG is set, which is ignored.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:  # other errors: not our file, or no leases on this file system, so unknown
        return error.errno in (errno.EAGAIN, errno.EWOULDBLOCK)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
