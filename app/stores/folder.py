"""The storage folder: the keys and the token that are kept in it, and what is said when it cannot be used."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...storage.interface import StorageError
from ..base.errors import StartError
from ..config.access import has_local_token
from ..config.settings import Settings
from ..disk.lock import InUse

KEY_BYTES: Final = 32
LOCAL_TOKEN: Final = "local_token.key"
"""The name of the key that is the local token, in hexadecimal."""


@contextmanager
def start_errors(what: str) -> Iterator[None]:
    """Raises what goes wrong with `what` as a `StartError`."""
    try:
        yield
    except InUse as error:
        raise StartError(str(error)) from error
    except StorageError as error:
        raise StartError(f"{what} cannot be used: {error}") from error
    except OSError as error:
        raise StartError(f"{what} cannot be used: {error.strerror or error}") from error


def local_token(settings: Settings, state: str) -> str | None:
    """Returns the local token of the gateways of a storage folder, which outlasts restarts; None if none is wanted.

    Args:
        state: the folder of keys.
    """
    return kept_key(state, LOCAL_TOKEN).hex() if has_local_token(settings) else None


def page_token(settings: Settings, state: str) -> str | None:
    """Returns the token of the live page; None if there is no page, or the settings say who may use it."""
    is_asked = settings.auth.recognises or settings.core.management.token is not None
    return None if settings.ui.listen is None or is_asked else kept_key(state, LOCAL_TOKEN).hex()


def kept_key(folder: str, name: str) -> bytes:
    """Reads a secret key of `KEY_BYTES` from a file, and creates the file with a new key if it is missing.

    The key is kept in the storage folder so that signed links, and each `requestState`, survive a restart.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            key = file.read()
        if len(key) == KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_BYTES)
    temporary = f"{path}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return key
