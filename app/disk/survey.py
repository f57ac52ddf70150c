"""Looking at the files that a session of a server may have taken in, and touching none of them.

What is looked at is what could be collected: it is judged in the same way (`reach`), and walked without following a
link (`walking`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Sequence
from typing import Final

from ...core.base.effects import SeenFile, Sighting, Survey, Surveyed
from .permissions import MISSING, OutOfReach, Reach, problem_of
from .walk import ListedFile, list_files, scanning

EMPTY_FOLDER: Final = "an empty folder"
BUSY_WITHIN_S: Final = 600.0
"""A listed file that has not changed for so long is not asked whether it is written to: that takes four times as long
as to list it, and whoever writes that slowly changes the stamp again."""


def survey(order: Survey, reach: Reach, areas: Sequence[str], *, now_unix: float) -> Surveyed:
    """Carry out a `Survey`. Blocks.

    Args:
        areas: the folders that `order.areas` names, absolute and resolved.
    """
    named = tuple(_look(spellings, reach, order) for spellings in order.named)
    listing = list_files(areas, entries_max=order.entries_max)
    since = now_unix - BUSY_WITHIN_S
    seen = [_listed(file, reach, since=since) for file in listing.files]
    return Surveyed(named, tuple(file for file in seen if file is not None), listing.is_cut)


def stamp_of(found: os.stat_result) -> str:
    """Of a file's content, as in `SeenFile`: another one means that it was written since, or is another file."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def _look(spellings: Sequence[str], reach: Reach, order: Survey) -> Sighting:
    """What the first spelling is of that names something to take, or else of the first that is not missing."""
    seen = Sighting(MISSING)
    for spelling in spellings:
        try:
            found = _look_at(reach.resolve(spelling), reach, order)
        except OutOfReach as error:
            found = Sighting(error.problem)
        if not found.problem:
            return found
        if seen.problem == MISSING:
            seen = found
    return seen


def _look_at(path: str, reach: Reach, order: Survey) -> Sighting:
    try:
        return Sighting(files=(_opened(path, reach),))
    except IsADirectoryError:
        pass
    try:
        with scanning(path):
            pass
    except OSError as error:
        return Sighting(problem_of(error), is_folder=True)
    listing = list_files([path], entries_max=order.entries_max, enters=reach.permits)
    files: list[SeenFile] = []
    for file in listing.files:
        seen = _listed(file, reach) if reach.permits(file.path) else None
        if seen is None:
            continue
        if len(files) == order.folder_max:
            return Sighting(files=tuple(files), is_folder=True, is_cut=True)
        files.append(seen)
    return Sighting("" if files else EMPTY_FOLDER, tuple(files), is_folder=True, is_cut=listing.is_cut)


def _listed(file: ListedFile, reach: Reach, *, since: float = 0.0) -> SeenFile | None:
    """A file that a listing found; None: it cannot be taken. One that did not change `since` is not opened."""
    if _changed_at(file.stat) < since:
        return _seen(file.path, file.stat) if reach.permits_file(file.stat) else None
    try:
        return _opened(file.path, reach)
    except (OutOfReach, IsADirectoryError):  # the latter: swapped since
        return None


def _opened(path: str, reach: Reach) -> SeenFile:
    with reach.open(path) as file:
        # Asked first: who begins to write afterwards changes the stamp, or is seen next time.
        is_busy = _is_written(file.fileno())
        return _seen(path, os.fstat(file.fileno()), is_busy=is_busy)


def _seen(path: str, found: os.stat_result, *, is_busy: bool = False) -> SeenFile:
    return SeenFile(path, found.st_size, stamp_of(found), _changed_at(found), is_busy)


def _changed_at(found: os.stat_result) -> float:
    return max(found.st_mtime, found.st_ctime)


def _is_written(file: int) -> bool:
    """Whether anybody has the open file open for writing, as far as the system tells its owner.

    It is refused a read lease then (fcntl(2), "Leases"). One that is had is given back at once. Whoever opens the file
    for writing in between waits that long, and the signal that tells us of it is one that is ignored: the usual one
    would end the process.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:  # not ours, or a file system without leases: not to be told
        return error.errno in (errno.EAGAIN, errno.EWOULDBLOCK)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
