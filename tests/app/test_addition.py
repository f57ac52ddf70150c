"""What is reported of one addition to an upload, wherever it ends."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from isthmus.app.addition import Addition
from isthmus.core.effects import Append, Appended, Halt
from isthmus.core.ids import ChannelId
from isthmus.storage.interface import DraftWriter, StorageError, StorageFull
from isthmus.storage.memory import MemoryBlobs

pytestmark = pytest.mark.anyio

WHOLE = b"0123456789"


class Broken(Exception):
    """What a body or a backend may raise that is none of ours."""


class Hindered(MemoryBlobs):
    """Where opening a draft takes for ever, or fails."""

    def __init__(self, failure: Exception | None) -> None:
        super().__init__()
        self.failure = failure
        self.is_opening = anyio.Event()

    @asynccontextmanager
    async def extend(self, key: str, *, offset: int, size_max_bytes: int) -> AsyncIterator[DraftWriter]:
        self.is_opening.set()
        if self.failure is not None:
            raise self.failure
        await anyio.sleep_forever()
        async with super().extend(key, offset=offset, size_max_bytes=size_max_bytes) as writer:
            yield writer


async def body(*pieces: bytes | Exception | anyio.Event) -> AsyncIterator[bytes]:
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        if isinstance(piece, anyio.Event):
            piece.set()
            await anyio.sleep_forever()
        else:
            yield piece


def order(offset: int = 0, sha256: str = "") -> Append:
    return Append(ChannelId(1), "b", offset, len(WHOLE), sha256=sha256)


def reported(addition: Addition) -> Appended:
    return msgspec.json.decode(addition.report(), type=Appended)


def make(blobs: MemoryBlobs, offset: int = 0, sha256: str = "") -> Addition:
    return Addition(order(offset, sha256), blobs, lambda message: None)


async def cancel_at(event: anyio.Event, addition: Addition, *pieces: bytes | Exception | anyio.Event) -> None:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(addition.take, body(*pieces))
            await event.wait()
            tasks.cancel_scope.cancel()


async def test_one_that_is_stopped_while_its_draft_is_being_opened_leaves_it() -> None:
    blobs = Hindered(None)
    addition = make(blobs, offset=3)
    await cancel_at(blobs.is_opening, addition, b"345")
    assert reported(addition) == Appended(3, halt=Halt.CEASED)


async def test_one_that_is_stopped_in_its_body_keeps_what_came() -> None:
    blobs, waits = MemoryBlobs(), anyio.Event()
    addition = make(blobs)
    await cancel_at(waits, addition, b"012", waits)
    assert reported(addition) == Appended(3, halt=Halt.CEASED)
    addition = make(blobs, offset=3)
    await addition.take(body(WHOLE[3:]))
    assert reported(addition) == Appended(10, sha256=hashlib.sha256(WHOLE).hexdigest())


@pytest.mark.parametrize(
    "failure, halt",
    [(StorageFull("full"), Halt.FULL), (StorageError("gone"), Halt.FAILED), (Broken(), Halt.FAILED)],
)
async def test_a_draft_that_cannot_be_opened_has_failed(failure: Exception, halt: Halt) -> None:
    addition = make(Hindered(failure), offset=3)
    if isinstance(failure, Broken):
        with pytest.raises(Broken):
            await addition.take(body(b"345"))
    else:
        await addition.take(body(b"345"))
    assert reported(addition) == Appended(3, halt=halt)


async def test_a_body_that_breaks_off_is_not_the_storages_fault() -> None:
    addition = make(MemoryBlobs())
    with pytest.raises(Broken):
        await addition.take(body(b"012", Broken()))
    assert reported(addition) == Appended(3, halt=Halt.BROKEN)
