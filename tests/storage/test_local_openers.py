"""Tests of the stores on disk with several openers: those of the laws in one process, and of two processes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import laws
import pytest
import shared_blob_laws
import shared_record_laws
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isthmus.storage.files import FileBlobs
from isthmus.storage.interface import Blobs, NotStored, Records, VersionConflict
from isthmus.storage.sqlite import SqliteRecords

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
TURNS = 60


class OpensRecords:
    is_durable = True

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "records.sqlite3")

    def __call__(self, now_unix: Callable[[], float] | None) -> Records:
        return SqliteRecords(self._path) if now_unix is None else SqliteRecords(self._path, now_unix=now_unix)


class OpensBlobs:
    is_durable = True

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "blobs")

    def __call__(self, replica: str = "a") -> Blobs:
        return FileBlobs(self._path)


@EXAMPLES
@given(operations=laws.record_operations, choices=st.lists(st.booleans(), min_size=1, max_size=24))
def test_two_openers_of_records_are_one_dict(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[object, ...]],
    choices: list[bool],
) -> None:
    opener = OpensRecords(tmp_path_factory.mktemp("records"))
    spread = shared_record_laws.OpensSpread(opener, itertools.cycle(choices))
    anyio.run(laws.records_are_a_dict, spread, operations)


@EXAMPLES
@given(operations=shared_blob_laws.shared_operations)
def test_two_openers_of_blobs_are_one_dict(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[object, ...]]
) -> None:
    opener = OpensBlobs(tmp_path_factory.mktemp("blobs"))
    anyio.run(shared_blob_laws.shared_blobs_are_a_dict, opener, operations)


@pytest.mark.parametrize("law", shared_record_laws.SHARED_RECORD_LAWS)
@pytest.mark.anyio
async def test_law_of_shared_records(
    law: Callable[[shared_record_laws.OpensShared], Awaitable[None]], tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        await law(OpensRecords(tmp_path))


@pytest.mark.parametrize("law", shared_blob_laws.SHARED_BLOB_LAWS)
@pytest.mark.anyio
async def test_law_of_shared_blobs(
    law: Callable[[shared_blob_laws.OpensShared], Awaitable[None]], tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        await law(OpensBlobs(tmp_path))


async def _count_up(records: Records) -> None:
    """Adds 1 to a record `TURNS` times, by compare-and-swap."""
    for _ in range(TURNS):
        while True:
            found = await records.load("n")
            value, version = (0, 0) if found is None else (int(found.value), found.version)
            try:
                await records.save("n", b"%d" % (value + 1), if_version=version)
                break
            except VersionConflict:
                continue


async def _replace(blobs: Blobs, name: bytes) -> None:
    """Replaces a blob `TURNS` times, and sometimes deletes it, with a blob of its own each time."""
    for turn in range(TURNS):
        await laws.put(blobs, "k", name * 200_000)
        await laws.put(blobs, f"{name.decode()}/{turn}", name)
        if turn % 8 == 0:
            await blobs.delete("k")


async def other_process(folder: str) -> None:
    """Runs in the other process."""
    records, blobs = OpensRecords(Path(folder))(None), OpensBlobs(Path(folder))()
    await laws.lengthen(blobs, "draft", 0, b"ab", "leave")
    print("ready", flush=True)
    await _count_up(records)
    await _replace(blobs, b"b")
    assert await blobs.sweep() == 0
    print("done", flush=True)
    assert sys.stdin.readline() == "end\n"
    os._exit(0)  # leaves its draft, as a process that is killed does


@pytest.mark.anyio
async def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    code = "import anyio, sys, test_local_openers as t; anyio.run(t.other_process, sys.argv[1])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    records, blobs = OpensRecords(tmp_path)(None), OpensBlobs(tmp_path)()
    with subprocess.Popen(  # noqa: ASYNC220 (it is waited for in a thread)
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as other:
        try:
            with anyio.fail_after(90):
                assert other.stdout is not None and other.stdin is not None
                assert await to_thread.run_sync(other.stdout.readline) == "ready\n"
                await _count_up(records)
                await _replace(blobs, b"a")
                assert await to_thread.run_sync(other.stdout.readline) == "done\n"
                found = await records.load("n")
                assert found is not None and int(found.value) == 2 * TURNS
                try:
                    assert await laws.whole(blobs.read("k")) in (b"a" * 200_000, b"b" * 200_000)
                except NotStored:
                    pass
                assert await blobs.sweep() == 0, "the other's draft"
                assert len([key async for key in blobs.keys() if key != "k"]) == 2 * TURNS  # noqa: SIM118
                other.stdin.write("end\n")
                other.stdin.flush()
                assert await to_thread.run_sync(other.wait) == 0
        finally:
            other.kill()
    assert await blobs.sweep() == 1, "the draft of a process that is gone"
    await records.aclose()
    await blobs.aclose()
