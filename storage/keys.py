"""The grammar of keys, checked here for every backend."""

from __future__ import annotations

import re
from typing import Final

KEY_SIZE_MAX: Final = 128
"""Characters of a key. With a serial number and a hash added by a file backend, a name stays below the usual 255
bytes."""

_SEGMENT: Final = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+"
_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._/-]*")


def check_key(key: str) -> str:
    """Returns `key` if it is valid: segments of `A-Z a-z 0-9 . _ -` joined by `/`, none empty, `.` or `..`.

    Raises:
        ValueError: it is not, or it is longer than `KEY_SIZE_MAX`.
    """
    if len(key) > KEY_SIZE_MAX or _KEY.fullmatch(key) is None:
        raise ValueError(f"got the key {key[:KEY_SIZE_MAX]!r}, expected segments of A-Z a-z 0-9 . _ - joined by /")
    return key


def check_prefix(prefix: str) -> str:
    """Returns `prefix` if a key can begin with it; the empty one is a prefix of all keys.

    Raises:
        ValueError: it holds a character that no key has.
    """
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"got the prefix {prefix[:KEY_SIZE_MAX]!r}, expected the beginning of a key")
    return prefix
