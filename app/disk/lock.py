"""Folders that belong to one process at a time, and to nobody when it has ended, however it ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Final

LOCK_NAME: Final = ".lock"


class InUse(Exception):
    """Another process holds the folder."""


@contextlib.contextmanager
def holding(folder: str) -> Iterator[None]:
    """Hold `folder`, made with mode 0700 if it is missing, until the context is left. Our children do not hold it.

    Raises:
        InUse: another process does. Nothing was changed.
        OSError: the folder cannot be made or written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(folder, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"another process uses {folder}: stop it, or give this one a storage root of its own") from None
        yield
    finally:
        os.close(lock)
