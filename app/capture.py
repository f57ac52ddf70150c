"""Taking in the files that an upstream says it wrote, and no others.

A candidate is resolved and judged by where it really leads: into the session's own workspace, or into one of the
server's artifact roots, but never into anything private. Then it is opened without following a link (`confinement`).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final, NamedTuple

from anyio import CancelScope, to_thread

from ..core.effects import Collect, Collected, CollectedFile, FileSource, InlineSource
from ..storage.interface import Blobs, StorageError
from .confinement import is_within, open_regular, reason_of

PATH_SIZE_MAX: Final = 4096
"""Characters of a candidate; a longer one cannot be a path on the systems we run on."""
_HEAD_SIZE: Final = 512
_PIECE_SIZE: Final = 1024 * 1024
_MISSING: Final = "missing"
_FORBIDDEN: Final = "not permitted"

_log = logging.getLogger(__name__)


class _Terms(NamedTuple):
    order: Collect
    own: Sequence[str]
    start: str
    size_max_bytes: int


class _Found(NamedTuple):
    file: BinaryIO
    path: str
    size_bytes: int


class Capture:
    """Carries out `Collect`.

    Args:
        artifact_roots: for each server, further folders it may name files in.
        private_paths: what is never taken in, but for the workspace's own folders below it.
    """

    def __init__(
        self, blobs: Blobs, *, artifact_roots: Mapping[str, Sequence[str]], private_paths: Sequence[str]
    ) -> None:
        self._blobs = blobs
        self._artifact_roots = {
            server: tuple(os.path.realpath(path) for path in paths) for server, paths in artifact_roots.items()
        }
        self._private = tuple(os.path.realpath(path) for path in private_paths)

    async def collect(self, order: Collect, own: Sequence[str], start: str) -> Collected:
        """Take in what of the order's sources can be; the others' entries say what is wrong with them.

        Args:
            order: its `blobs` are names not used before.
            own: the workspace's folders, resolved.
            start: what relative candidates start from.

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
                        files.append(await self._take_file(source, blob, _Terms(order, own, start, size_max_bytes)))
        except BaseException:
            # The engine will hear that nothing was taken in, so nothing may stay.
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
            filename=source.filename, size_bytes=stat.size_bytes, sha256=stat.sha256, head=source.data[:_HEAD_SIZE]
        )

    async def _take_file(self, source: FileSource, blob: str, terms: _Terms) -> CollectedFile:
        found = await to_thread.run_sync(self._find, source, terms)
        if isinstance(found, str):
            return CollectedFile(problem=found)
        head = b""
        with found.file as file:
            async with self._blobs.create(blob, size_max_bytes=found.size_bytes) as writer:
                # A file that grows meanwhile is taken at the length it had, one that shrinks as far as it goes.
                missing = found.size_bytes
                while missing and (piece := await to_thread.run_sync(file.read, min(missing, _PIECE_SIZE))):
                    head += piece[: _HEAD_SIZE - len(head)]
                    missing -= len(piece)
                    await writer.write(piece)
                stat = await writer.commit()
        return CollectedFile(
            path=found.path,
            filename=os.path.basename(found.path),
            size_bytes=stat.size_bytes,
            sha256=stat.sha256,
            head=head,
        )

    def _find(self, source: FileSource, terms: _Terms) -> _Found | str:
        """The first candidate that is a permitted file, or else what is wrong with the first that is not missing."""
        problem = _MISSING
        for candidate in source.candidates:
            found = self._judge(candidate, terms)
            if not isinstance(found, str):
                return found
            if problem == _MISSING:
                problem = found
        return problem

    def _judge(self, candidate: str, terms: _Terms) -> _Found | str:
        if not candidate or len(candidate) > PATH_SIZE_MAX or "\0" in candidate:
            return _MISSING
        try:
            path = os.path.realpath(os.path.join(terms.start, candidate))
            path.encode()
        except UnicodeEncodeError:
            return f"{_FORBIDDEN}: its name is not UTF-8"
        except (RecursionError, OSError):  # links to links to links: up to Python 3.12 each takes a piece of the stack
            return f"{_FORBIDDEN}: it leads through too many links"
        # Before looking whether it is there: nobody learns what exists outside.
        if not self._is_permitted(path, terms):
            return _FORBIDDEN
        try:
            file = open_regular(path)
        except IsADirectoryError:
            return "is a folder"
        except (FileNotFoundError, NotADirectoryError):
            return _MISSING
        except PermissionError as error:
            return f"{_FORBIDDEN}: {reason_of(error)}"
        except OSError as error:
            return _MISSING if error.errno == errno.ENAMETOOLONG else f"unreadable: {reason_of(error)}"
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > terms.size_max_bytes:
            file.close()
            return too_large(size_bytes, terms.size_max_bytes)
        return _Found(file, path, size_bytes)

    def _is_permitted(self, path: str, terms: _Terms) -> bool:
        if any(is_within(path, folder) for folder in terms.own):
            return True
        if any(is_within(path, private) for private in self._private):
            return False
        return any(is_within(path, folder) for folder in self._artifact_roots.get(terms.order.server, ()))


def too_large(size_bytes: int, size_max_bytes: int) -> str:
    return f"too large: {size_bytes} bytes, at most {size_max_bytes}"
