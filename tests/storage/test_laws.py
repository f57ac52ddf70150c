"""Tests of every storage backend against the laws, on both event loops, and of the promises of single backends."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import laws
import pytest
from hypothesis import HealthCheck, given, settings
from isthmus.storage.files import FileBlobs
from isthmus.storage.interface import CHUNK_SIZE_MAX, Blobs, NotStored, Records, StorageError, StorageFull
from isthmus.storage.memory import MemoryBlobs, MemoryRecords
from isthmus.storage.sqlite import SqliteRecords

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class OpenedRecords:
    def __init__(self, kind: str, path: Path) -> None:
        self.is_durable = kind == "sqlite"
        self._path = path

    def __call__(self, now_unix: Callable[[], float]) -> Records:
        if self.is_durable:
            return SqliteRecords(str(self._path / "state" / "records.sqlite3"), now_unix=now_unix)
        return MemoryRecords(now_unix)


class OpenedBlobs:
    def __init__(self, kind: str, path: Path) -> None:
        self.is_durable = kind == "files"
        self._path = path

    def __call__(self) -> Blobs:
        return FileBlobs(str(self._path / "state" / "blobs")) if self.is_durable else MemoryBlobs()


RECORDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])
BLOBS = pytest.mark.parametrize("kind", ["memory", "files"])


@RECORDS
@EXAMPLES
@given(operations=laws.record_operations)
def test_records_are_a_dict(
    kind: str, tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    opener = OpenedRecords(kind, tmp_path_factory.mktemp("records"))
    anyio.run(laws.records_are_a_dict, opener, operations)


@BLOBS
@EXAMPLES
@given(operations=laws.blob_operations)
def test_blobs_are_a_dict(
    kind: str, tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    opener = OpenedBlobs(kind, tmp_path_factory.mktemp("blobs"))
    anyio.run(laws.blobs_are_a_dict, opener, operations)


@RECORDS
@pytest.mark.parametrize("law", laws.RECORD_LAWS)
@pytest.mark.anyio
async def test_law_of_records(law: Callable[[laws.OpensRecords], Awaitable[None]], kind: str, tmp_path: Path) -> None:
    with anyio.fail_after(30):
        await law(OpenedRecords(kind, tmp_path))


@BLOBS
@pytest.mark.parametrize("law", laws.BLOB_LAWS)
@pytest.mark.anyio
async def test_law_of_blobs(law: Callable[[laws.OpensBlobs], Awaitable[None]], kind: str, tmp_path: Path) -> None:
    with anyio.fail_after(30):
        await law(OpenedBlobs(kind, tmp_path))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.anyio
async def test_only_the_owner_reads_what_is_stored(tmp_path: Path) -> None:
    records = SqliteRecords(str(tmp_path / "state" / "records.sqlite3"))
    await records.save("k", b"v")
    blobs = FileBlobs(str(tmp_path / "blobs"))
    await laws.put(blobs, "a/b", b"content")
    files = [*(tmp_path / "state").iterdir(), *(tmp_path / "blobs").iterdir()]
    assert len(files) == 4  # the database, -wal, -shm; one blob
    assert {_mode(file) for file in files} == {0o600}
    assert _mode(tmp_path / "state") == _mode(tmp_path / "blobs") == 0o700
    await records.aclose()


def test_records_refuse_a_file_that_is_none_of_theirs(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"not a database, " * 100)
    with pytest.raises(StorageError, match="cannot be opened"):
        SqliteRecords(str(path))
    newer = tmp_path / "newer.sqlite3"
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(StorageError, match="format 2, expected 1"):
        SqliteRecords(str(newer))


@pytest.mark.anyio
async def test_full_records_say_so_and_keep_the_old_value(tmp_path: Path) -> None:
    records = SqliteRecords(str(tmp_path / "records.sqlite3"))
    await records.save("k", b"old")
    records._db.execute("PRAGMA max_page_count = 8")
    with pytest.raises(StorageFull):
        await records.save("k", b"x" * 100_000)
    found = await records.load("k")
    assert found is not None
    assert found.value == b"old"
    await records.aclose()


@pytest.mark.anyio
async def test_a_file_lost_behind_our_back_is_not_stored(tmp_path: Path) -> None:
    blobs = FileBlobs(str(tmp_path))
    await laws.put(blobs, "k", b"content")
    path = blobs.path_for("k")
    assert path is not None
    os.unlink(path)
    with pytest.raises(NotStored):
        await laws.whole(blobs.read("k"))
    assert await blobs.delete("k")
    assert await laws.contents(blobs) == {}


@pytest.mark.anyio
async def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"k~1~{hashlib.sha256(b'').hexdigest()}").mkdir()
    blobs = FileBlobs(str(tmp_path))
    assert await blobs.sweep() == 0
    assert await laws.contents(blobs) == {}
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.anyio
async def test_a_cancelled_writer_takes_no_other_changes_along(tmp_path: Path) -> None:
    """Changes share a transaction. The writer that is to begin it may be cancelled before it has."""
    records = SqliteRecords(str(tmp_path / "records.sqlite3"))
    leaders = [anyio.CancelScope() for _ in range(3)]

    async def save(number: int) -> None:
        with leaders[number]:
            await records.save(f"k/{number}", b"v")

    with anyio.fail_after(30):
        records._turn.acquire_on_behalf_of_nowait("a reader")
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(save, number)
                await anyio.wait_all_tasks_blocked()
            for leader in leaders[:2]:
                leader.cancel()
                await anyio.wait_all_tasks_blocked()
            records._turn.release_on_behalf_of("a reader")
        assert [key async for key, _ in records.scan("k/")] == ["k/2"]
    await records.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("cached", ["all", "pages", "nothing", "unknown"])
async def test_reading_waits_for_the_disk_in_a_thread_and_for_nothing_else(
    cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel answers at once with what it has in memory: all bytes, a part of them, none, or no answer at all.
    The result is the same, and a thread is used only to open the file and where that answer was of no use."""
    content = bytes(range(251)) * 6000
    blobs = FileBlobs(str(tmp_path))
    await laws.put(blobs, "k", content)
    visits: list[object] = []
    run_sync = anyio.to_thread.run_sync

    def at_once(file: int, buffers: list[bytearray], at: int, flags: int) -> int:
        if cached in ("nothing", "unknown"):
            raise OSError(errno.EAGAIN if cached == "nothing" else errno.EOPNOTSUPP, "no")
        (buffer,) = buffers
        found = os.pread(file, len(buffer) if cached == "all" else min(len(buffer), 300_000), at)
        buffer[: len(found)] = found
        return len(found)

    async def visit(work: Callable[..., object], *args: object) -> object:
        visits.append(work)
        return await run_sync(work, *args)

    monkeypatch.setattr("isthmus.storage.files._NOWAIT", 8)
    monkeypatch.setattr("isthmus.storage.files.os.preadv", at_once, raising=False)
    monkeypatch.setattr("isthmus.storage.files.to_thread.run_sync", visit)
    assert await laws.whole(blobs.read("k", 7, len(content) - 7)) == content[7:-7]
    reads = 0 if cached in ("all", "pages") else -(-len(content) // CHUNK_SIZE_MAX)
    assert len(visits) == 1 + reads


@pytest.mark.anyio
async def test_stores_in_this_process_are_examined(tmp_path: Path) -> None:
    for records, engine, durability in (
        (MemoryRecords(), "memory", "everything is forgotten"),
        (SqliteRecords(str(tmp_path / "records.sqlite3")), "SQLite", "every answer is on disk"),
    ):
        await records.save("k", b"v")
        report = await records.examine()
        assert report.engine == engine and report.version and report.durability.startswith(durability)
        assert (report.clock_skew_s, report.records) == (0.0, 1)
        assert abs(await records.now_unix() - time.time()) < 60
        await records.aclose()
