"""Listing the files below folders that others may change meanwhile, without following a link.

Nothing recurses, and one folder is open at a time: each is reached from `/` by its path, every component refused if it
is a link (`confinement`). So a tree may have any shape, and may be moved or swapped for a link while it is
listed: what is listed lay below the folders that were named.
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
"""Characters of a path; the systems we run on open none that is longer."""
DEPTH_MAX: Final = 64
"""Levels below a folder that is listed. What each deeper one costs grows with its depth, and the trees that programs
make, those of packages in packages too, have some thirty."""
_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ListedFile(NamedTuple):
    path: str
    stat: os.stat_result


class Listing(NamedTuple):
    """`files` are the regular ones, ordered by their paths; `is_cut`: there was more than was looked at."""

    files: list[ListedFile]
    is_cut: bool


def list_files(
    folders: Sequence[str],
    *,
    entries_max: int,
    enters: Callable[[str], bool] = lambda path: True,
    with_any_name: bool = False,
) -> Listing:
    """What is in the folders, and in theirs, the upper levels first. Blocks.

    Passed over: what is gone, what may not be listed, links, devices, FIFOs, sockets.

    Args:
        folders: absolute, resolved paths.
        entries_max: entries to look at, of whatever kind.
        enters: whether to look into a folder.
        with_any_name: files as well whose path is no UTF-8, or too long to be opened by.
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
                if not with_any_name and not _is_sayable(path):
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
    """The entries of the folder at the absolute, resolved `path`.

    Raises:
        OSError: it cannot be listed.
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


def _is_sayable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return len(path) <= PATH_SIZE_MAX
