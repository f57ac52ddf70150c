"""What one request adds to an upload that goes on after a break."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
import msgspec

from ...core.base.effects import Append, Appended, Halt
from ...core.base.limits import MIB
from ...core.files.store.filenames import HEAD_BYTES
from ...storage.interface import Blobs, DraftWriter, StorageError, StorageFull

TELL_EVERY_BYTES: Final = 1 * MIB
"""How much arrives between two words on how far it is: a hundredth of a second on a fast line, some on a slow one."""


class Addition:
    """Used once. Whatever happens, `report` then says what there is."""

    def __init__(self, order: Append, blobs: Blobs, tell: Callable[[bytes], None]) -> None:
        self._order = order
        self._blobs = blobs
        self._tell = tell
        self._writer: DraftWriter | None = None
        self._halt = Halt.CEASED  # until it is over, only a cancellation can end it with nothing said
        self._sha256 = ""
        self._head = b""

    def report(self) -> bytes:
        """The JSON of an `Appended`, once it is over."""
        size_bytes = self._order.offset if self._writer is None else self._writer.size_bytes
        return msgspec.json.encode(Appended(size_bytes, sha256=self._sha256, halt=self._halt, head=self._head))

    async def take(self, body: AsyncIterator[bytes]) -> None:
        """Store the body.

        Raises:
            Whatever `body` does. What the storage has to say is in the report.
        """
        order = self._order
        broken: BaseException | None = None
        try:
            async with self._blobs.extend(
                order.blob, offset=order.offset, size_max_bytes=order.size_bytes
            ) as self._writer:
                is_whole = False
                try:
                    is_whole = await self._pour(self._writer, body)
                except StorageError:
                    if order.checksum is not None:
                        await self._writer.undo()
                    raise
                except BaseException as error:  # raised again, when it is known what there is
                    broken = error
                with anyio.CancelScope(shield=True):
                    if not is_whole and (order.checksum is not None or self._halt is Halt.TOO_LARGE):
                        await self._writer.undo()
                    elif self._writer.size_bytes == order.size_bytes:  # also where no more than the framing broke off
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
            if self._halt is Halt.CEASED and isinstance(broken, Exception):  # not the body's doing
                self._halt = Halt.FAILED
            raise broken

    async def _pour(self, writer: DraftWriter, body: AsyncIterator[bytes]) -> bool:
        """Whether all of it was written, and is what it was to be; if not, `_halt` says why."""
        checksum = self._order.checksum
        digest = None if checksum is None else hashlib.new(checksum.algorithm, usedforsecurity=False)
        told = writer.size_bytes
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
            if digest is None and writer.size_bytes - told >= TELL_EVERY_BYTES:
                told = writer.size_bytes
                self._tell(msgspec.json.encode(Appended(told, is_over=False)))
        is_right = digest is None or checksum is None or digest.hexdigest() == checksum.digest
        self._halt = Halt.NONE if is_right else Halt.CHECKSUM
        return is_right
