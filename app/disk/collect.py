"""Takes in the files that a server says it wrote, and no others.

A candidate path is resolved and judged by where it really leads (`permissions`), then opened without following a link
(`openat`). Sources are copied, never hard-linked: a server that edits its file later must not edit the blob.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import BinaryIO, Final, NamedTuple

from anyio import CancelScope, to_thread

from ...core.base.storage import Collect, Collected, CollectedFile, FileSource, InlineSource, Remove
from ...core.files.store.filenames import HEAD_BYTES
from ...storage.interface import Blobs, StorageError
from .openat import remove_regular
from .permissions import MISSING, NotPermitted, Permissions
from .survey import stamp_of

UNFINISHED: Final = "unfinished"

_log = logging.getLogger(__name__)


class _Found(NamedTuple):
    file: BinaryIO
    path: str
    stat: os.stat_result


class Collector:
    """Carries out `Collect`."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def collect(self, order: Collect, permissions: Permissions | None) -> Collected:
        """Stores the sources that can be taken in; the entries of the others have a `problem`.

        Args:
            order: its `blobs` are names not used before.
            permissions: the paths that may be taken; None: no file.

        Raises:
            StorageError, OSError: nothing of the order is stored, as after a cancellation.
        """
        assert len(order.sources) == len(order.blobs)
        files: list[CollectedFile] = []
        try:
            for source, blob in zip(order.sources, order.blobs, strict=True):
                left = order.total_size_max_bytes - sum(file.size_bytes for file in files)
                size_max_bytes = min(order.size_max_bytes, left)
                match source:
                    case InlineSource():
                        files.append(await self._take_inline(source, blob, size_max_bytes))
                    case FileSource():
                        assert permissions is not None
                        files.append(await self._take_file(source, blob, size_max_bytes, permissions))
        except BaseException:
            # The engine is told that nothing was taken in, so no blob may stay.
            with CancelScope(shield=True):
                for blob in order.blobs[: len(files) + 1]:
                    try:
                        await self._blobs.delete(blob)
                    except StorageError as error:
                        _log.warning("blob %s of a failed order stays until the next start: %s", blob, error)
            raise
        return Collected(tuple(files))

    async def _take_inline(self, source: InlineSource, blob: str, size_max_bytes: int) -> CollectedFile:
        if len(source.data) > size_max_bytes:
            return CollectedFile(problem=too_large(len(source.data), size_max_bytes))
        async with self._blobs.create(blob, size_max_bytes=size_max_bytes) as writer:
            await writer.write(source.data)
            stat = await writer.commit()
        return CollectedFile(
            filename=source.filename, size_bytes=stat.size_bytes, sha256=stat.sha256, head=source.data[:HEAD_BYTES]
        )

    async def _take_file(
        self, source: FileSource, blob: str, size_max_bytes: int, permissions: Permissions
    ) -> CollectedFile:
        found = await to_thread.run_sync(_find, source, permissions, size_max_bytes)
        if isinstance(found, str):
            return CollectedFile(problem=found)
        with found.file as file:
            async with self._blobs.create(blob, size_max_bytes=found.stat.st_size) as writer:
                # A file that grows meanwhile is taken at its length from before, one that shrinks at its new length.
                await writer.copy_from(file.fileno(), found.stat.st_size)
                if source.stamp and stamp_of(os.fstat(file.fileno())) != source.stamp:
                    return CollectedFile(problem=UNFINISHED)
                stat = await writer.commit()
        # The head is read from the blob: the file may have changed by now.
        head = b"".join([piece async for piece in self._blobs.read(blob, 0, HEAD_BYTES)])
        return CollectedFile(
            path=found.path,
            filename=os.path.basename(found.path),
            size_bytes=stat.size_bytes,
            sha256=stat.sha256,
            head=head,
        )


def _find(source: FileSource, permissions: Permissions, size_max_bytes: int) -> _Found | str:
    """Returns the first candidate that is a permitted file, else the problem of the first that is not missing."""
    problem = MISSING
    for candidate in source.candidates:
        found = _judge(candidate, source.stamp, permissions, size_max_bytes)
        if not isinstance(found, str):
            return found
        if problem == MISSING:
            problem = found
    return problem


def _judge(candidate: str, stamp: str, permissions: Permissions, size_max_bytes: int) -> _Found | str:
    try:
        path = permissions.resolve(candidate)
        file = permissions.open(path)
    except NotPermitted as error:
        return error.problem
    except IsADirectoryError:
        return "is a folder"
    found = os.fstat(file.fileno())
    if stamp and stamp_of(found) != stamp:
        problem = UNFINISHED
    elif found.st_size > size_max_bytes:
        problem = too_large(found.st_size, size_max_bytes)
    else:
        return _Found(file, path, found)
    file.close()
    return problem


def remove_taken(order: Remove, permissions: Permissions) -> None:
    """Removes a file that was taken in, unless it was written since. Blocks.

    Raises:
        OSError: it could not be removed, or its path is not permitted.
    """
    try:
        path = permissions.resolve(order.path)
        file = permissions.open(path)
    except NotPermitted as error:
        raise OSError(errno.EPERM, error.problem) from None
    with file:
        found = os.fstat(file.fileno())
    if path == order.path and stamp_of(found) == order.stamp:
        remove_regular(path, found)


def too_large(size_bytes: int, size_max_bytes: int) -> str:
    return f"too large: {size_bytes} bytes, at most {size_max_bytes}"
