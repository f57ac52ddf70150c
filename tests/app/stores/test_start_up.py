"""Tests of what a start removes from stores: leftovers from its own, and nothing from stores that others use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from isthmus.app.stores.start_up import remove_leftovers
from isthmus.app.stores.stores import Stores
from isthmus.storage.files import FileBlobs
from isthmus.storage.interface import Blobs
from isthmus.storage.memory import MemoryBlobs, MemoryRecords

pytestmark = pytest.mark.anyio

ODD = {f"other/{i}": v for i, v in enumerate([b"", b"\xff", b"[]", b'{"blob": 7}', b'{"blob": null}', b"{}"])}


async def store(blobs: Blobs, key: str) -> None:
    async with blobs.create(key, size_max_bytes=100) as writer:
        await writer.write(key.encode())
        await writer.commit()


async def test_a_start_removes_what_nobody_owns(tmp_path: Path) -> None:
    """Events, expired records, blobs without a record, and records without their blob. Records of another form stay."""
    records, blobs = MemoryRecords(lambda: 1000.0), FileBlobs(str(tmp_path / "blobs"))
    for key in ("owned", "expired", "orphan"):
        await store(blobs, key)
    (tmp_path / "blobs" / "~unfinished").write_bytes(b"")
    await records.save("up/1", json.dumps({"blob": "owned", "more": [1]}).encode())
    await records.save("up/2", json.dumps({"blob": "expired"}).encode(), expires_at_unix=999.0)
    await records.save("up/3", json.dumps({"blob": "lost"}).encode())
    await records.save("event/s/1/1", b"{}")
    for key, value in ODD.items():
        await records.save(key, value)
    await remove_leftovers(Stores(records, blobs, records))
    assert os.listdir(tmp_path / "blobs") == [os.path.basename(blobs.path_for("owned") or "")]
    assert {key async for key, _ in records.scan("")} == {"up/1", *ODD}
    assert await records.purge(1000.0) == 0


class SharedBlobs(MemoryBlobs):
    """Blobs in memory with the methods of those in S3."""

    def __init__(self) -> None:
        super().__init__()
        self.draft_sweeps = 0

    async def sweep_drafts(self) -> int:
        self.draft_sweeps += 1
        return 0


async def test_a_start_removes_nothing_that_others_may_use() -> None:
    """No record, no blob and no event of another replica is touched in shared stores."""
    records, blobs, own = MemoryRecords(lambda: 1000.0), SharedBlobs(), MemoryRecords()
    await store(blobs, "just-stored")
    saved = {"up/1": b'{"blob": "lost"}', "event/s/1/1": b"{}", **ODD}
    for key, value in saved.items():
        await records.save(key, value)
    await own.save("event/s/2/1", b"{}")
    await remove_leftovers(Stores(records, blobs, own, shared=True, shared_blobs=blobs))  # type: ignore[arg-type]
    assert {key: record.value async for key, record in records.scan("")} == saved
    assert [key async for key in blobs.keys()] == ["just-stored"]  # noqa: SIM118
    assert [key async for key, _ in own.scan("")] == []
    assert blobs.draft_sweeps == 1
