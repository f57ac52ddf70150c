"""Exports a stored file to disk: under a safe name, and whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ...core.files.store.filenames import safe_filename
from ..base.errors import Failed
from .http_client import Json


def export(file: Json, content: Iterable[bytes], path: str | None, *, may_replace: bool) -> str:
    """Writes the content of a file. Returns the path written to, or "stdout".

    Args:
        path: a file, or a folder to put it into under its own name; None: the working directory; "-": stdout.
        may_replace: replace an existing file.

    Raises:
        Failed: the target exists, cannot be written, or the content does not match its size and hash. No file is
            left then; what went to stdout stays there.
    """
    if path == "-":
        try:
            _copy(file, content, sys.stdout.buffer)
        except OSError as error:
            raise Failed(f"stdout cannot be written: {error.strerror or error}") from error
        return "stdout"
    target = _target(file, path)
    try:
        with _opened(target, may_replace=may_replace) as out:
            _copy(file, content, out)
    except FileExistsError:
        raise Failed(f"{target} is there already: give another path, or --force to replace it") from None
    except OSError as error:
        raise Failed(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _target(file: Json, path: str | None) -> str:
    name = safe_filename(str(file.get("filename") or ""), str(file["id"]))
    if path is None:
        return name
    return os.path.join(path, name) if os.path.isdir(path) or path.endswith(os.sep) else path


@contextlib.contextmanager
def _opened(target: str, *, may_replace: bool) -> Iterator[BinaryIO]:
    """Opens a temporary file that becomes `target` when all is written.

    Unless a file may be replaced, `target` is created at once, so that nobody else can take the name meanwhile.
    """
    if may_replace and os.path.exists(target) and not os.path.isfile(target):
        raise Failed(f"{target} is no regular file, and is not replaced: give another path, or - for stdout")
    if not may_replace:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    temporary = os.path.join(os.path.dirname(target), f".isthmus-{secrets.token_hex(8)}.part")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            yield out
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if not may_replace:
            with contextlib.suppress(OSError):
                os.unlink(target)
        raise


def _copy(file: Json, content: Iterable[bytes], out: BinaryIO) -> None:
    digest, size_bytes = hashlib.sha256(), 0
    for chunk in content:
        out.write(chunk)
        digest.update(chunk)
        size_bytes += len(chunk)
    out.flush()
    if size_bytes != file.get("size_bytes") or digest.hexdigest() != file.get("sha256"):
        raise Failed(f"the content of {file['id']} broke off after {size_bytes} bytes, or is not what was stored")
