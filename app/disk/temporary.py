"""A temporary folder for one run. Each run first removes the folders that killed runs left behind.

A folder is in use as long as its process holds a lock on the folder itself. The folder gets its final name only once
the lock is held, so a folder of that name without a lock is abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from typing import Final

from ...core.base.ids import is_minted
from .remove_tree import remove_tree
from .workspaces import tmp_folder

_NAME: Final = re.compile(r"isthmus-[0-9]+-[a-z0-9_]+")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Makes a folder in the system's folder for temporary files, and removes it when the context is left.

    Raises:
        OSError: the folder cannot be made.
    """
    parent = os.path.realpath(tempfile.gettempdir())
    for name in os.listdir(parent):
        if _NAME.fullmatch(name):
            with contextlib.suppress(OSError):
                _remove_abandoned(parent, name)
    unnamed = tempfile.mkdtemp(prefix=".isthmus-", dir=parent)
    path = os.path.join(parent, f"isthmus-{os.getpid()}-{unnamed.rpartition('-')[2]}")
    folder = os.open(unnamed, _FOLDER)
    try:
        with contextlib.suppress(OSError):  # on a system that cannot lock folders, none is ever found abandoned either
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unnamed, path)
        try:
            yield path
        finally:
            remove_tree(path)
    finally:
        os.close(folder)


def _remove_abandoned(parent: str, name: str) -> None:
    """Removes the folder if it is ours and not in use. Other users may put anything there under such a name.

    Raises:
        OSError: it is in use, or no folder, or may not be opened.
    """
    path = os.path.join(parent, name)
    folder = os.open(path, _FOLDER)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
            return
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        workspaces = os.path.join(path, "workspaces")
        for workspace in os.listdir(workspaces) if os.path.isdir(workspaces) else []:
            if is_minted(workspace):
                remove_tree(tmp_folder(parent, workspace))
        remove_tree(path)
    finally:
        os.close(folder)
