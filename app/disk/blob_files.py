"""Uploads in, artifacts out: the files of the HTTP listener are blobs, all of a request or none.

However a request fails (a bad body, a full disk, a client that hangs up, a shutdown), what was stored for it is
removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import anyio

from ...core.base.effects import Append, Receive, Serve
from ...core.files.transfer.transfers import overhead_max_bytes
from ...storage.interface import Blobs, StorageFull
from ...transports.base.port import UploadRefused
from .append import Addition

DISCARD_TIMEOUT_S: Final = 30.0
"""How long the removal of a failed upload may hold up a shutdown. The next start removes what is left then."""


class BlobFiles:
    """The files of the HTTP listener, kept as blobs. Implements `transports.port.FileService`."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def take_in(self, order: Receive, content_type: str, body: AsyncIterator[bytes]) -> bytes:
        """Store the `file` fields of a multipart/form-data body as `order.blobs`, in order; with `order.raw`, the body
        itself.

        Fields `sha256` are optional, or not with `order.require_sha256`: one a file, in order, blank ones not counted.

        Args:
            content_type: the request's header, with the boundary.
            body: the request's body, cut anyhow.

        Returns:
            The JSON of an `UploadManifest`.

        Raises:
            UploadRefused: 400 malformed, no_file, too_many_files, unknown_field, sha256_count, sha256_mismatch or
                sha256_required; 413 file_too_large or request_too_large; 415 unsupported_media_type; 507 storage_full.
                Nothing is stored, and neither is when `body` or the storage raise.
        """
        from .multipart import Intake, boundary_of, parts_of  # with a parser of forms, which most proxies never need

        boundary = b"" if order.raw is not None else boundary_of(content_type)
        intake = Intake(order, self._blobs)
        try:
            if order.raw is not None:
                return await intake.take_raw(order.raw, body)
            async with aclosing(parts_of(boundary, body, overhead_max_bytes(len(order.blobs)))) as events:
                return await intake.take(events)
        except BaseException as error:
            with anyio.move_on_after(DISCARD_TIMEOUT_S, shield=True):
                await self._discard(intake.begun)
            if isinstance(error, StorageFull):
                raise UploadRefused(507, "storage_full", "there is no room for this upload; try again later") from error
            raise

    async def append(self, order: Append, body: AsyncIterator[bytes], tell: Callable[[bytes], None]) -> None:
        """Store more of a draft as it arrives. See `FileService`."""
        addition = Addition(order, self._blobs, tell)
        try:
            await addition.take(body)
        finally:
            tell(addition.report())

    def give_out(self, order: Serve, start: int, stop: int) -> AsyncIterator[bytes | bytearray]:
        """The bytes `start:stop` of the blob, in chunks of at most 512 KiB.

        Raises:
            NotStored: on the first step: the blob has gone.
        """
        return self._blobs.read(order.blob, start, stop)

    async def _discard(self, keys: list[str]) -> None:
        for key in keys:
            try:
                await self._blobs.delete(key)
            except Exception:
                continue  # the client is to hear why its upload failed, and the other files must still go
