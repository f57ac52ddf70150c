"""File copies made by the kernel. They share blocks where the file system can; the files stay independent."""

from __future__ import annotations

import errno
import os
from typing import Final

_REFUSALS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors that another way of copying would meet as well."""


def copy_in_kernel(source: int, target: int, size_max_bytes: int) -> int:
    """Appends to the open file `target` what `source` holds from its current position. Blocks.

    Returns:
        Bytes copied. Fewer than `size_max_bytes` if `source` ends, or if the kernel does not copy between these two:
            then the rest is to be read and written.

    Raises:
        OSError: the disk is full or broken.
    """
    copied = 0
    while copied < size_max_bytes and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source, target, size_max_bytes - copied)
        except OSError as error:
            if error.errno in _REFUSALS:
                raise
            break
        if not count:
            break
        copied += count
    return copied
