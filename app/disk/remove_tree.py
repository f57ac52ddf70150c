"""Removing a folder with all that is in it, whatever its shape, without following a link.

An upstream may leave any tree behind: deeper than a stack or a path can be, wider than memory should be, with folders
that not even their owner may list. So nothing here recurses and no path is walked twice: each folder met on the way is
moved up into the topmost one, under a name nobody could guess, and is emptied there in its turn.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import Final

from .openat import open_folder

PASSES_MAX: Final = 5
"""A listing need not show all of a folder that is being emptied, nor what a process still running puts there."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PINNED: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove the folder, or the link, at the absolute path `path`, whose folder is resolved. Blocks.

    What cannot be removed is passed over, to remove as much as can be; nothing is raised for it. Anything else than a
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
            doomed = [*_empty(top, top)]
            while doomed:
                moved = doomed.pop()
                with suppress(OSError):
                    folder = os.open(moved, _FOLDER, dir_fd=top)
                    try:
                        doomed += _empty(folder, top)
                    finally:
                        os.close(folder)
                    os.rmdir(moved, dir_fd=top)
            with suppress(OSError):
                os.rmdir(name, dir_fd=parent)
                return
    finally:
        os.close(top)


def _empty(folder: int, top: int) -> list[str]:
    """Remove what is no folder, and move what is one up to `top`. Returns the names it has there."""
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
    """Let its owner, who may be us, list and change the folder `name`.

    Raises:
        OSError: it is not ours, or no folder any more.
    """
    if stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode) & 0o700 == 0o700:
        return
    # Not by its name, which might have become a link's by now.
    folder = os.open(name, _PINNED, dir_fd=parent)
    try:
        # A folder opened without permission to read it can be named in this way only.
        os.chmod(f"/proc/self/fd/{folder}" if hasattr(os, "O_PATH") else folder, 0o700)
    finally:
        os.close(folder)
