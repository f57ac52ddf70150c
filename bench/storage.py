"""Measures the storage backends by themselves: saving and loading records, writing and reading a file.

CPU time is that of this process, with its threads; the elapsed time shows the waiting for the disk as well.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import anyio
from isthmus.storage.files import FileBlobs
from isthmus.storage.interface import Blobs, Records
from isthmus.storage.memory import MemoryBlobs, MemoryRecords
from isthmus.storage.s3 import S3Blobs
from isthmus.storage.s3_location import parse_location
from isthmus.storage.s3_objects import S3Objects
from isthmus.storage.sqlite import SqliteRecords
from targets import Figures

RECORD: Final = os.urandom(512)
RECORDS: Final = 500
CHUNK: Final = os.urandom(65536)
CHUNKS: Final = 1024
"""The number of chunks of a file: 64 MiB in chunks of the size that sockets give."""
S3: Final = os.environ.get("BENCH_S3")
"""A location in S3 to measure too, such as `s3://bucket/bench?endpoint=http://127.0.0.1:9000`."""


def measure_storage(folder: Path) -> dict[str, dict[str, Figures]]:
    """Returns the figures by workload and backend. The backends on disk are put in `folder`."""
    return anyio.run(_measure, folder)


async def _measure(folder: Path) -> dict[str, dict[str, Figures]]:
    records: dict[str, Records] = {"memory": MemoryRecords(), "sqlite": SqliteRecords(str(folder / "records.sqlite"))}
    blobs: dict[str, Blobs] = {"memory": MemoryBlobs(), "files": FileBlobs(str(folder / "blobs"))}
    if S3:
        blobs["s3"] = S3Blobs(S3Objects(parse_location(S3)), str(folder / "drafts"))
    results: dict[str, dict[str, Figures]] = {}
    for name, backend in records.items():
        for work, figures in (await _records(backend)).items():
            results.setdefault(work, {})[name] = figures
        await backend.aclose()
    for name, store in blobs.items():
        for work, figures in (await _blobs(store)).items():
            results.setdefault(work, {})[name] = figures
        await store.aclose()
    return results


async def _records(backend: Records) -> dict[str, Figures]:
    figures, before = {}, _now()
    for number in range(RECORDS):
        await backend.save(f"bench/{number}", RECORD)
    figures["record_save"], before = _since(before, RECORDS), _now()
    for number in range(RECORDS):
        found = await backend.load(f"bench/{number}")
        assert found is not None and found.value == RECORD
    figures["record_load"], before = _since(before, RECORDS), _now()
    count = len([key async for key, _ in backend.scan("bench/")])
    assert count == RECORDS
    figures["record_scan"] = _since(before, RECORDS)
    return figures


async def _blobs(store: Blobs) -> dict[str, Figures]:
    mebibytes, figures, before, size = len(CHUNK) * CHUNKS // 1024**2, {}, _now(), 0
    async with store.create("bench", size_max_bytes=len(CHUNK) * CHUNKS) as writer:
        for _ in range(CHUNKS):
            await writer.write(CHUNK)
        await writer.commit()
    figures["blob_write"], before = _since(before, mebibytes), _now()
    async for chunk in store.read("bench"):
        size += len(chunk)
    assert size == len(CHUNK) * CHUNKS
    figures["blob_read"] = _since(before, mebibytes)
    await store.delete("bench")
    return figures


def _now() -> tuple[float, float]:
    return time.process_time(), time.monotonic()


def _since(before: tuple[float, float], count: int) -> Figures:
    cpu_s, at = before
    return {"cpu_us": (time.process_time() - cpu_s) * 1e6 / count, "each_us": (time.monotonic() - at) * 1e6 / count}
