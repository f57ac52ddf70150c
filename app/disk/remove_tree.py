"""Removes a folder with all its content, of any shape, without following a link.

A server may leave any tree behind: deeper than a stack or a path can be, wider than memory should be, with folders that
not even their owner may list. So nothing here recurses, and no path is walked twice: each inner folder is moved up into
the topmost one, under a random name, and is emptied there later.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import Final

from .openat import open_folder

PASSES_MAX: Final = 5
"""Attempts to empty a folder: a listing need not show all entries of a folder that changes while it is read, and a
process that still runs may add more."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PINNED: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Removes the folder, or the link, at the absolute path `path`, whose parent is resolved. Blocks.

    Entries that cannot be removed are skipped without an error, to remove as much as possible. Anything else than a
    folder or a link is left alone.
    """
    with suppress(OSError):
        parent = open_folder(os.path.dirname(path))
        try:
            _remove(os.path.basename(path), parent)
        finally:
            os.close(parent)


def _remove(name: str, parent: int) -> None:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    _make_usable(name, parent)
    top = os.open(name, _FOLDER, dir_fd=parent)
    try:
        for _ in range(PASSES_MAX):
            to_remove = [*_empty(top, top)]
            while to_remove:
                moved = to_remove.pop()
                with suppress(OSError):
                    folder = os.open(moved, _FOLDER, dir_fd=top)
                    try:
                        to_remove += _empty(folder, top)
                    finally:
                        os.close(folder)
                    os.rmdir(moved, dir_fd=top)
            with suppress(OSError):
                os.rmdir(name, dir_fd=parent)
                return
    finally:
        os.close(top)


def _empty(folder: int, top: int) -> list[str]:
    """Removes entries that are no folders, and moves folders up to `top`. Returns their names there."""
    inner: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=folder)
    moved: list[str] = []
    for name in inner:
        with suppress(OSError):
            _make_usable(name, folder)
        if folder == top:
            moved.append(name)
            continue
        with suppress(OSError):
            new_name = secrets.token_hex(16)
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(new_name)
    return moved


def _make_usable(name: str, parent: int) -> None:
    """Gives the owner of the folder `name`, if that is us, permission to list and change it.

    Raises:
        OSError: it is not ours, or no longer a folder.
    """
    if stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode) & 0o700 == 0o700:
        return
    # The mode is changed by descriptor and not by name, which may be a link by now.
    folder = os.open(name, _PINNED, dir_fd=parent)
    try:
        # A descriptor opened with O_PATH cannot be given to fchmod; its path below /proc can be changed.
        os.chmod(f"/proc/self/fd/{folder}" if hasattr(os, "O_PATH") else folder, 0o700)
    finally:
        os.close(folder)
