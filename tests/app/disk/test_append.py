"""Tests of the report of one append to an upload, wherever the append ends."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from isthmus.app.disk.append import AppendWriter
from isthmus.core.base.events import Checksum
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.storage import Append, Appended, Halt
from isthmus.core.files.store.filenames import HEAD_BYTES
from isthmus.storage.interface import DraftWriter, StorageError, StorageFull
from isthmus.storage.memory import MemoryBlobs

pytestmark = pytest.mark.anyio

WHOLE = b"0123456789"
HASH = hashlib.sha256(WHOLE).hexdigest()


class Broken(Exception):
    """An error of a body or a backend that is not one of ours."""


class Hindered(MemoryBlobs):
    """A store in which opening a draft takes for ever, or fails."""

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


def reported(writer: AppendWriter) -> Appended:
    return msgspec.json.decode(writer.report(), type=Appended)


def make(blobs: MemoryBlobs, offset: int = 0, sha256: str = "") -> AppendWriter:
    return AppendWriter(order(offset, sha256), blobs, lambda message: None)


async def cancel_at(event: anyio.Event, writer: AppendWriter, *pieces: bytes | Exception | anyio.Event) -> None:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.take, body(*pieces))
            await event.wait()
            tasks.cancel_scope.cancel()


async def test_an_append_stopped_while_its_draft_is_opened_leaves_it() -> None:
    blobs = Hindered(None)
    writer = make(blobs, offset=3)
    await cancel_at(blobs.is_opening, writer, b"345")
    assert reported(writer) == Appended(3, halt=Halt.CEASED)


async def test_an_append_stopped_in_its_body_keeps_what_came() -> None:
    blobs, waits = MemoryBlobs(), anyio.Event()
    writer = make(blobs)
    await cancel_at(waits, writer, b"012", waits)
    assert reported(writer) == Appended(3, halt=Halt.CEASED, head=b"012")
    writer = make(blobs, offset=3)
    await writer.take(body(WHOLE[3:]))
    assert reported(writer) == Appended(10, sha256=HASH, head=WHOLE[3:])


@pytest.mark.parametrize(
    "failure, halt",
    [(StorageFull("full"), Halt.FULL), (StorageError("gone"), Halt.FAILED), (Broken(), Halt.FAILED)],
)
async def test_an_append_whose_draft_cannot_be_opened_fails(failure: Exception, halt: Halt) -> None:
    writer = make(Hindered(failure), offset=3)
    if isinstance(failure, Broken):
        with pytest.raises(Broken):
            await writer.take(body(b"345"))
    else:
        await writer.take(body(b"345"))
    assert reported(writer) == Appended(3, halt=halt)


async def test_a_body_that_breaks_off_is_not_the_storages_fault() -> None:
    writer = make(MemoryBlobs())
    with pytest.raises(Broken):
        await writer.take(body(b"012", Broken()))
    assert reported(writer) == Appended(3, halt=Halt.BROKEN, head=b"012")


@pytest.mark.parametrize("is_ceased", [False, True])
async def test_a_file_that_is_there_is_complete_though_its_body_broke_off_behind_it(is_ceased: bool) -> None:
    """The end of the framing, or the turn in which it would have been read, is not part of the file."""
    blobs, waits = MemoryBlobs(), anyio.Event()
    writer = make(blobs, sha256=HASH)
    if is_ceased:
        await cancel_at(waits, writer, WHOLE, waits)
    else:
        with pytest.raises(Broken):
            await writer.take(body(WHOLE, Broken()))
    assert reported(writer) == Appended(10, sha256=HASH, head=WHOLE)
    stat = await blobs.stat("b")
    assert stat is not None and stat.sha256 == HASH


async def test_a_file_with_another_hash_is_refused_however_its_body_ended() -> None:
    blobs = MemoryBlobs()
    writer = make(blobs, sha256="0" * 64)
    with pytest.raises(Broken):
        await writer.take(body(WHOLE, Broken()))
    assert reported(writer) == Appended(10, halt=Halt.MISMATCH, head=WHOLE)
    assert await blobs.stat("b") is None


async def test_a_checked_body_that_broke_off_is_taken_back_also_at_its_last_byte() -> None:
    """The checksum was not compared."""
    blobs = MemoryBlobs()
    order = Append(ChannelId(1), "b", 0, len(WHOLE), checksum=Checksum("sha1", "0" * 40))
    writer = AppendWriter(order, blobs, lambda message: None)
    with pytest.raises(Broken):
        await writer.take(body(WHOLE, Broken()))
    assert (reported(writer).size_bytes, reported(writer).halt) == (0, Halt.BROKEN)


async def test_the_head_of_a_file_is_reported_by_its_first_append_only() -> None:
    blobs = MemoryBlobs()
    content = bytes(range(256)) * 4
    first = AppendWriter(Append(ChannelId(1), "b", 0, len(content)), blobs, lambda message: None)
    await first.take(body(content[:300], content[300:600]))
    assert reported(first) == Appended(600, head=content[:HEAD_BYTES])
    second = AppendWriter(Append(ChannelId(1), "b", 600, len(content)), blobs, lambda message: None)
    await second.take(body(content[600:]))
    assert reported(second).head == b""


@pytest.mark.parametrize("cut", [1, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1])
async def test_the_head_of_a_file_may_come_in_several_appends(cut: int) -> None:
    blobs = MemoryBlobs()
    content = bytes(range(256)) * 4
    heads = b""
    for start, stop in ((0, cut), (cut, 700), (700, len(content))):
        writer = AppendWriter(Append(ChannelId(1), "b", start, len(content)), blobs, lambda message: None)
        await writer.take(body(content[start:stop]))
        heads += reported(writer).head
    assert heads == content[:HEAD_BYTES]
