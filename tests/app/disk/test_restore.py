"""Tests of the tasks of earlier runs: they are found again at the start, and stored no longer than they are kept."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from http_caller import PATIENCE_S
from isthmus.app import gateway as gateway_module
from isthmus.app.config.settings import Core, Server, Settings, Storage, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.state.records import StoredTask
from isthmus.core.state.task import TaskState
from isthmus.storage.files import FileBlobs
from isthmus.storage.sqlite import SqliteRecords
from task_fakes import TaskEngine

TOOLBOX = (sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py"))

pytestmark = pytest.mark.anyio


def stored_task(id: str, *, left_s: float = 3600.0, **members: Any) -> StoredTask:
    usual: dict[str, Any] = {
        "server": "a",
        "tool": "dig",
        "era": "handshake",
        "owner": "0" * 64,
        "status": "completed",
        "created_at": "2026-07-28T10:00:00Z",
        "updated_at": "2026-07-28T10:00:01Z",
        "ttl_ms": 3_600_000,
        "poll_ms": 1000,
    }
    members = usual | members
    members["status"] = TaskState(members["status"])
    return StoredTask(id=id, expires_at_unix=time.time() + left_s, **members)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> type[TaskEngine]:
    monkeypatch.setattr(gateway_module, "BulkEngine", TaskEngine)
    monkeypatch.setattr(TaskEngine, "kept", [])
    return TaskEngine


@asynccontextmanager
async def proxy(root: Path) -> AsyncIterator[Gateway]:
    server = Server(id="a", upstream=Upstream(command=TOOLBOX))
    settings = Settings(core=Core(port=None), storage=Storage(root=str(root)), servers=(server,))
    with anyio.fail_after(2 * PATIENCE_S):
        async with running(settings, listen=False, is_lasting=True) as gateway:
            yield gateway


class Earlier:
    """The storage that an earlier run left below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = SqliteRecords(str(root / "state" / "records.sqlite"))
        self.blobs = FileBlobs(str(root / "blobs"))

    async def save(self, *tasks: StoredTask) -> None:
        for task in tasks:
            await self.records.save(task.key, msgspec.json.encode(task), expires_at_unix=task.expires_at_unix)

    async def store(self, blob: str) -> None:
        async with self.blobs.create(blob, size_max_bytes=5) as writer:
            await writer.write(b"12345")
            await writer.commit()

    async def keys(self) -> list[str]:
        return [key async for key, _ in self.records.scan("")]

    async def blob_keys(self) -> set[str]:
        """The keys as the next process finds them."""
        blobs = FileBlobs(str(self.root / "blobs"))
        return {key async for key in blobs.keys()}  # noqa: SIM118


@asynccontextmanager
async def earlier(root: Path) -> AsyncIterator[Earlier]:
    """The storage between two runs."""
    async with proxy(root):
        pass
    left = Earlier(root)
    try:
        yield left
    finally:
        await left.records.aclose()
        await left.blobs.aclose()


async def test_what_was_saved_comes_back_as_it_was(tmp_path: Path) -> None:
    finished = stored_task("1" * 32, outcome='{"content":[]}', size_bytes=14)
    large = stored_task("2" * 32, blob="b2", size_bytes=5, is_error=True, status="failed")
    remote = stored_task("3" * 32, status="working", upstream_task="far/1", is_remote=True, sid="s", message="…")
    async with earlier(tmp_path) as left:
        await left.save(finished, large, remote)
        await left.store("b2")
        async with proxy(tmp_path):
            assert set(TaskEngine.began_with) == {finished, large, remote}
        assert await left.blob_keys() == {"b2"}


async def test_they_come_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    """The order does not depend on their ids or on how long they are kept."""
    tasks = [stored_task(id * 32, left_s=left_s, ttl_ms=ttl_ms) for id, left_s, ttl_ms in (
        ("3", 500.0, 3_600_000), ("1", 100.0, 600_000), ("2", 5000.0, 5_001_000)
    )]  # fmt: skip
    async with earlier(tmp_path) as left:
        await left.save(*tasks)
        async with proxy(tmp_path):
            assert TaskEngine.began_with == tuple(tasks)


async def test_what_expired_takes_its_blob_along(tmp_path: Path) -> None:
    async with earlier(tmp_path) as left:
        kept = stored_task("1" * 32, blob="b1", size_bytes=5)
        await left.save(kept, stored_task("2" * 32, left_s=-1.0, blob="b2", size_bytes=5))
        for blob in ("b1", "b2"):
            await left.store(blob)
        async with proxy(tmp_path):
            assert TaskEngine.began_with == (kept,)
        assert (await left.keys(), await left.blob_keys()) == ([kept.key], {"b1"})


async def test_a_task_whose_blob_is_gone_goes_too(tmp_path: Path) -> None:
    """An unknown task is better than a completed one without a result."""
    async with earlier(tmp_path) as left:
        await left.save(stored_task("1" * 32, blob="nowhere", size_bytes=5))
        async with proxy(tmp_path):
            assert TaskEngine.began_with == ()
        assert await left.keys() == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b'{"id":"\xff"}',
        b'{"id":7}',
        b'{"blob":"\xff"}',
        b'{"x":' + b"[" * 100_000,
        b"[" * 100_000,
        b'{"id":"x","tool":null}',
        msgspec.json.encode(msgspec.to_builtins(stored_task("4" * 32)) | {"status": "of a later version"}),
    ],
    ids=lambda value: repr(value[:12]),
)
async def test_one_that_nobody_can_read_is_left_alone_with_a_warning_at_each_start(
    value: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("isthmus").propagate = True
    kept = stored_task("1" * 32)
    async with earlier(tmp_path) as left:
        await left.save(kept)
        await left.records.save("task/odd", value)
        async with proxy(tmp_path):
            assert TaskEngine.began_with == (kept,)
        assert await left.keys() == [kept.key, "task/odd"]
        async with proxy(tmp_path):
            assert TaskEngine.began_with == (kept,)
    messages = [record.getMessage() for record in caplog.records if "earlier run" in record.getMessage()]
    assert len(messages) == 2
    assert all(text.startswith("a task of an earlier run cannot be read, and is left alone: ") for text in messages)
