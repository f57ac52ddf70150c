"""A folder for one run. Whoever is killed cannot clean up, so each run begins by removing what such others left.

A folder is in use as long as its process has a lock on the folder itself, and it gets the name by which it is found
only when it has that lock: so one that is found without belongs to nobody.
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
    """A folder of our own in the system's one for temporary files, removed when the context is left.

    Raises:
        OSError: it cannot be made.
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
        with contextlib.suppress(OSError):  # where folders cannot be locked, none is taken for abandoned either
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unnamed, path)
        try:
            yield path
        finally:
            remove_tree(path)
    finally:
        os.close(folder)


def _remove_abandoned(parent: str, name: str) -> None:
    """Remove the folder if it is ours and nobody uses it. Others may put there whatever they like under such a name.

    Raises:
        OSError: it is in use, or no folder, or not ours to look at.
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
