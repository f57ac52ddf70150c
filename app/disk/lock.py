"""A lock on a folder: one process holds it at a time, and the system frees it when that process ends in any way."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Final

LOCK_NAME: Final = ".lock"


class InUse(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def holding(folder: str) -> Iterator[None]:
    """Locks `folder`, made with mode 0700 if it is missing, until the context is left. Children do not inherit it.

    Raises:
        InUse: another process holds the lock. Nothing was changed.
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
