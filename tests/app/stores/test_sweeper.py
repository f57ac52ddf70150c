"""Tests of the removal of files that no record names, in a bucket of a real server of the protocol of S3."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from isthmus.app.stores import sweeper as module
from isthmus.app.stores.sweeper import ORPHAN_AGE_S, Sweeper
from isthmus.core.base.ids import mint
from isthmus.storage.interface import StorageError
from isthmus.storage.memory import MemoryRecords
from isthmus.storage.s3 import S3Blobs
from s3_server import OpenedS3, S3Server

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def name(number: int) -> str:
    return mint(lambda size: bytes([number]) * size)


@pytest.fixture
async def blobs(s3_server: S3Server, tmp_path: Path) -> AsyncIterator[S3Blobs]:
    opened = OpenedS3(s3_server, tmp_path)()
    assert isinstance(opened, S3Blobs)
    yield opened
    await opened.aclose()


async def store(blobs: S3Blobs, key: str) -> None:
    async with blobs.create(key, size_max_bytes=100) as writer:
        await writer.write(key.encode())
        await writer.commit()


async def keys(blobs: S3Blobs) -> set[str]:
    return {key async for key in blobs.keys()}  # noqa: SIM118


async def test_only_old_files_that_no_record_names_go(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is named by a record of any form. Names of another form are not ours. A new file may be about to get its
    record."""
    records = MemoryRecords(lambda: 1000.0)
    named, by_another_release, expired, orphan, other_orphan = map(name, range(5))
    for key in (named, by_another_release, expired, orphan, other_orphan, "not-ours"):
        await store(blobs, key)
    await records.save("upload/s/1", json.dumps({"blob": named}).encode())
    await records.save("v2/1", b"\x81\xa4blob\xd9\x20" + by_another_release.encode() + b"\xff")
    await records.save("upload/s/2", json.dumps({"blob": expired}).encode(), expires_at_unix=999.0)
    everything = await keys(blobs)
    assert await Sweeper(records, blobs, bool).sweep() == 0
    assert await keys(blobs) == everything
    monkeypatch.setattr(module, "BATCH_BLOBS", 2)
    assert await Sweeper(records, blobs, bool, orphan_age_s=-60.0).sweep() == 3
    assert await keys(blobs) == {named, by_another_release, "not-ours"}


def test_a_slow_upload_is_younger_than_an_orphan() -> None:
    assert ORPHAN_AGE_S > 3600


class Watched(Sweeper):
    """A sweeper whose sweeps do nothing but tell."""

    def __init__(self, blobs: S3Blobs) -> None:
        super().__init__(MemoryRecords(), blobs, lambda: self.is_first)
        self.is_first = False
        self.has_swept = anyio.Event()

    async def sweep(self) -> int:
        self.has_swept.set()
        raise StorageError("the bucket is away")


async def test_only_the_first_replica_sweeps(
    blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process begins when it is the first. A sweep that fails is logged."""
    logging.getLogger("isthmus").propagate = True
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    first, second = Watched(blobs), Watched(blobs)
    first.is_first = True
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.run)
            tasks.start_soon(first.run)
            await first.has_swept.wait()
            assert not second.has_swept.is_set()
            first.is_first, second.is_first = False, True
            await second.has_swept.wait()
            tasks.cancel_scope.cancel()
    assert "could not be removed: the bucket is away" in caplog.text
