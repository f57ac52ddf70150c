"""Files of the HTTP listener: uploads are stored as blobs, and blobs are served as downloads.

All files of an upload request are stored, or none. If the request fails (a malformed body, a full disk, a client that
disconnects, a shutdown), the blobs stored for it are removed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import anyio

from ...core.base.storage import Append, Receive, Serve
from ...core.files.transfer.transfers import overhead_max_bytes
from ...storage.interface import Blobs, StorageError, StorageFull
from ...transports.base.port import UploadRefused
from .append import AppendWriter

DISCARD_TIMEOUT_S: Final = 30.0
"""Seconds that removing a failed upload may delay a shutdown. The next start removes what is left."""

_log = logging.getLogger(__name__)


class BlobFiles:
    """The files of the HTTP listener, kept as blobs. Implements `transports.base.port.FileService`."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def take_in(self, order: Receive, content_type: str, body: AsyncIterator[bytes]) -> bytes:
        """Stores the `file` fields of a multipart/form-data body as `order.blobs`, in order; with `order.raw`, the body
        itself.

        `sha256` fields are optional unless `order.require_sha256`: one for each file, in order, blank ones not counted.

        Args:
            content_type: the Content-Type header of the request, with the boundary.
            body: the body of the request, in chunks of any size.

        Returns:
            The JSON of an `UploadManifest`.

        Raises:
            UploadRefused: 400 malformed, no_file, too_many_files, unknown_field, sha256_count, sha256_mismatch or
                sha256_required; 413 file_too_large or request_too_large; 415 unsupported_media_type; 503
                storage_failed; 507 storage_full. Nothing is stored then, nor if `body` raises.
        """
        from .multipart import (  # late: its parser of forms is never needed by most proxies
            UploadReader,
            boundary_of,
            parts_of,
        )

        boundary = b"" if order.raw is not None else boundary_of(content_type)
        reader = UploadReader(order, self._blobs)
        try:
            if order.raw is not None:
                return await reader.take_raw(order.raw, body)
            async with aclosing(parts_of(boundary, body, overhead_max_bytes(len(order.blobs)))) as events:
                return await reader.take(events)
        except BaseException as error:
            with anyio.move_on_after(DISCARD_TIMEOUT_S, shield=True):
                await self._discard(reader.begun)
            if isinstance(error, StorageFull):
                raise UploadRefused(507, "storage_full", "there is no room for this upload; try again later") from error
            if isinstance(error, StorageError):
                _log.warning("an upload could not be stored: %s", error)
                detail = "the upload could not be stored, as the storage cannot be used; try again later"
                raise UploadRefused(503, "storage_failed", detail) from error
            raise

    async def append(self, order: Append, body: AsyncIterator[bytes], tell: Callable[[bytes], None]) -> None:
        """Appends to a resumable upload as the body arrives. See `FileService`."""
        writer = AppendWriter(order, self._blobs, tell)
        try:
            await writer.take(body)
        finally:
            tell(writer.report())

    def give_out(self, order: Serve, start: int, stop: int) -> AsyncIterator[bytes | bytearray]:
        """Yields the bytes `start:stop` of the blob, in chunks of at most 512 KiB.

        Raises:
            NotStored: on the first step, if the blob is gone.
        """
        return self._blobs.read(order.blob, start, stop)

    async def _discard(self, keys: list[str]) -> None:
        for key in keys:
            try:
                await self._blobs.delete(key)
            except Exception:
                continue  # the error of the upload must reach the client, and the other blobs must still be removed
