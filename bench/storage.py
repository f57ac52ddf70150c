"""Measures the storage backends by themselves: saving and loading records, writing and reading a file.

CPU time is that of this process, with its threads; the elapsed time shows the waiting for the disk as well.

PostgreSQL and Redis are started for the measurement, if they and their Python packages are installed. Redis writes each
answer to disk (`redis`), or each second (`redis-everysec`). `python bench/storage.py` measures records alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
WRITERS: Final = 16
"""Tasks that save at the same time, for `record_save_c16`."""
CHUNK: Final = os.urandom(65536)
CHUNKS: Final = 1024
"""The number of chunks of a file: 64 MiB in chunks of the size that sockets give."""
S3: Final = os.environ.get("BENCH_S3")
"""A location in S3 to measure too, such as `s3://bucket/bench?endpoint=http://127.0.0.1:9000`."""


def measure_storage(folder: Path) -> dict[str, dict[str, Figures]]:
    """Returns the figures by workload and backend. The backends on disk are put in `folder`."""
    results = measure_records(folder)
    blobs: dict[str, Blobs] = {"memory": MemoryBlobs(), "files": FileBlobs(str(folder / "blobs"))}
    if S3:
        blobs["s3"] = S3Blobs(S3Objects(parse_location(S3)), str(folder / "drafts"))
    for name, store in blobs.items():
        for work, figures in anyio.run(_blobs, store).items():
            results.setdefault(work, {})[name] = figures
    return results


def measure_records(folder: Path) -> dict[str, dict[str, Figures]]:
    results: dict[str, dict[str, Figures]] = {}
    with ExitStack() as servers:
        backends: dict[str, Records] = {
            "memory": MemoryRecords(),
            "sqlite": SqliteRecords(str(folder / "records.sqlite")),
            **servers.enter_context(_records_on_servers()),
        }
        for name, backend in backends.items():
            for work, figures in anyio.run(_records, backend, name).items():
                results.setdefault(work, {})[name] = figures
    return results


@contextmanager
def _records_on_servers() -> Iterator[dict[str, Records]]:
    """Records on the servers that are installed. The tests have what starts them."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "storage"))
    backends: dict[str, Records] = {}
    with ExitStack() as servers:
        try:
            from record_servers import KINDS, NotInstalled, running
        except ImportError:
            KINDS = ()
        for kind in KINDS:
            try:
                backends[kind] = servers.enter_context(running(kind)).records("bench")
            except NotInstalled:
                continue
        if "redis" in backends:
            server = servers.enter_context(running("redis"))
            with server.connect() as client:
                client.config_set("appendfsync", "everysec")
            backends["redis-everysec"] = server.records("bench")
        yield backends


async def _records(backend: Records, name: str) -> dict[str, Figures]:
    await backend.save("bench/0", RECORD)
    figures, before = {}, _now()
    for number in range(RECORDS):
        await backend.save(f"bench/{number}", RECORD)
    figures["record_save"], before = _since(before, RECORDS), _now()
    async with anyio.create_task_group() as tasks:
        for start in range(WRITERS):
            tasks.start_soon(_save_some, backend, start)
    figures["record_save_c16"], before = _since(before, RECORDS), _now()
    for number in range(RECORDS):
        found = await backend.load(f"bench/{number}")
        assert found is not None and found.value == RECORD
    figures["record_load"], before = _since(before, RECORDS), _now()
    count = len([key async for key, _ in backend.scan("bench/")])
    assert count == RECORDS, name
    figures["record_scan"] = _since(before, RECORDS)
    await backend.aclose()
    return figures


async def _save_some(backend: Records, start: int) -> None:
    for number in range(start, RECORDS, WRITERS):
        await backend.save(f"bench/{number}", RECORD)


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
    await store.aclose()
    return figures


def _now() -> tuple[float, float]:
    return time.process_time(), time.monotonic()


def _since(before: tuple[float, float], count: int) -> Figures:
    cpu_s, at = before
    return {"cpu_us": (time.process_time() - cpu_s) * 1e6 / count, "each_us": (time.monotonic() - at) * 1e6 / count}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for work, rows in measure_records(Path(folder)).items():
            for name, figures in rows.items():
                each_us = figures["each_us"]
                print(
                    f"{work:16} {name:16} {1e6 / each_us:9,.0f} /s {figures['cpu_us']:8,.1f} µs CPU {each_us:9,.1f} µs"
                )


if __name__ == "__main__":
    main()
