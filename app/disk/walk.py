"""Lists the files below folders that other processes may change meanwhile, without following a link.

Nothing recurses, and one folder is open at a time. Each is reached from `/` by its path, and a component that is a link
is refused (`openat`). So a tree may have any shape, and may be moved or replaced by a link while it is listed: every
listed file was below one of the given folders.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from .openat import open_folder

PATH_SIZE_MAX: Final = 4096
"""Characters of a path; the systems that we run on open no longer ones. At it: the file is passed over."""
DEPTH_MAX: Final = 64
"""Levels below a folder that are listed. The cost of a level grows with its depth, and trees that programs make, nested
packages included, have some thirty. At it: deeper files are not seen, and the result says so."""
_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ListedFile(NamedTuple):
    path: str
    stat: os.stat_result


class Listing(NamedTuple):
    """The regular `files`, ordered by path; `is_cut` is true if there was more than was listed."""

    files: list[ListedFile]
    is_cut: bool


def list_files(
    folders: Sequence[str],
    *,
    entries_max: int,
    enters: Callable[[str], bool] = lambda path: True,
    with_any_name: bool = False,
) -> Listing:
    """Lists the regular files in the folders and below, upper levels first. Blocks.

    Skipped: entries that are gone, folders that may not be listed, links, devices, FIFOs and sockets.

    Args:
        folders: absolute, resolved paths.
        entries_max: entries to look at, of any kind.
        enters: called with the path of a folder; true to list it.
        with_any_name: include files whose path is not UTF-8, or too long to be opened.
    """
    files: list[ListedFile] = []
    waiting = deque((folder, 0) for folder in folders)
    left = entries_max
    is_cut = False
    while waiting:
        folder, depth = waiting.popleft()
        start = folder if folder.endswith("/") else folder + "/"
        with suppress(OSError), scanning(folder) as entries:
            for entry in entries:
                if not left:
                    return Listing(sorted(files), is_cut=True)
                left -= 1
                path = start + entry.name
                if not with_any_name and not _is_usable(path):
                    continue
                with suppress(OSError):  # gone since
                    if entry.is_dir(follow_symlinks=False):
                        if depth == DEPTH_MAX:
                            is_cut = True
                        elif enters(path):
                            waiting.append((path, depth + 1))
                    elif stat.S_ISREG((found := entry.stat(follow_symlinks=False)).st_mode):
                        files.append(ListedFile(path, found))
    return Listing(sorted(files), is_cut)


@contextmanager
def scanning(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Gives the entries of the folder at the absolute, resolved `path`, until the context is left.

    Raises:
        OSError: the folder cannot be listed.
    """
    place = open_folder(path)
    try:
        folder = os.open(".", _LISTED, dir_fd=place)
    finally:
        os.close(place)
    try:
        with os.scandir(folder) as entries:
            yield entries
    finally:
        os.close(folder)


def _is_usable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return len(path) <= PATH_SIZE_MAX
