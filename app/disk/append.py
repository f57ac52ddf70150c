"""Appends the body of one request to a resumable upload."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
import msgspec

from ...core.base.limits import MIB
from ...core.base.storage import Append, Appended, Halt
from ...core.files.store.filenames import HEAD_BYTES
from ...storage.interface import Blobs, DraftWriter, StorageError, StorageFull

TELL_EVERY_BYTES: Final = 1 * MIB
"""Bytes between two progress reports: they take 10 ms on a fast line, some seconds on a slow one."""


class AppendWriter:
    """Appends one body to an upload; used once. However it ends, `report` then tells what is stored.

    Args:
        tell: called with the JSON of an `Appended` while the body arrives.
    """

    def __init__(self, order: Append, blobs: Blobs, tell: Callable[[bytes], None]) -> None:
        self._order = order
        self._blobs = blobs
        self._tell = tell
        self._writer: DraftWriter | None = None
        self._halt = Halt.CEASED  # holds if a cancellation ends it; every other end sets its own reason
        self._sha256 = ""
        self._head = b""

    def report(self) -> bytes:
        """Returns the JSON of an `Appended`, after the end."""
        size_bytes = self._order.offset if self._writer is None else self._writer.size_bytes
        return msgspec.json.encode(Appended(size_bytes, sha256=self._sha256, halt=self._halt, head=self._head))

    async def take(self, body: AsyncIterator[bytes]) -> None:
        """Stores the body.

        Raises:
            The exceptions of `body`. Failures of the storage are in the report instead.
        """
        order = self._order
        broken: BaseException | None = None
        try:
            async with self._blobs.extend(
                order.blob, offset=order.offset, size_max_bytes=order.size_bytes
            ) as self._writer:
                is_whole = False
                try:
                    is_whole = await self._write(self._writer, body)
                except StorageError:
                    if order.checksum is not None:
                        await self._writer.undo()
                    raise
                except BaseException as error:  # raised again below, once it is settled what is stored
                    broken = error
                with anyio.CancelScope(shield=True):
                    if not is_whole and (order.checksum is not None or self._halt is Halt.TOO_LARGE):
                        await self._writer.undo()
                    # The upload may be whole although the body broke off, in the framing after the content.
                    elif self._writer.size_bytes == order.size_bytes:
                        self._halt = Halt.FAILED
                        self._sha256 = (await self._writer.commit()).sha256
            if self._sha256:
                self._halt = Halt.NONE
                if order.sha256 and self._sha256 != order.sha256:
                    self._halt, self._sha256 = Halt.MISMATCH, ""
                    with anyio.CancelScope(shield=True):
                        await self._blobs.delete(order.blob)
        except StorageFull:
            self._halt = Halt.FULL
        except StorageError:
            self._halt = Halt.FAILED
        except Exception as error:
            self._halt, broken = Halt.FAILED, error
        if broken is not None:
            if self._halt is Halt.CEASED and isinstance(
                broken, Exception
            ):  # the body did not fail, so something here did
                self._halt = Halt.FAILED
            raise broken

    async def _write(self, writer: DraftWriter, body: AsyncIterator[bytes]) -> bool:
        """True if all of the body was written and its checksum fits; if not, `_halt` says why."""
        checksum = self._order.checksum
        digest = None if checksum is None else hashlib.new(checksum.algorithm, usedforsecurity=False)
        reported = writer.size_bytes
        while True:
            self._halt = Halt.CEASED
            try:
                chunk = await anext(body, None)
            except Exception:
                self._halt = Halt.BROKEN
                raise
            if chunk is None:
                break
            if writer.size_bytes + len(chunk) > self._order.size_bytes:
                self._halt = Halt.TOO_LARGE
                return False
            if digest is not None:
                digest.update(chunk)
            if (missing := HEAD_BYTES - self._order.offset - len(self._head)) > 0:
                self._head += chunk[:missing]
            await writer.write(chunk)
            if digest is None and writer.size_bytes - reported >= TELL_EVERY_BYTES:
                reported = writer.size_bytes
                self._tell(msgspec.json.encode(Appended(reported, is_over=False)))
        is_intact = digest is None or checksum is None or digest.hexdigest() == checksum.digest
        self._halt = Halt.NONE if is_intact else Halt.CHECKSUM
        return is_intact
