"""Tests of crashes: a stop at any step of a change of files leaves the old or the new state, on disk and once reopened.

Every call by which `FileBlobs` changes a folder is counted. In turn, the machine stops at each of them: the call and
all later ones fail. Data that was never forced to disk is lost then: content of files always, changes of names in
one of two runs, since a file system may have written them or not. In another test the disk fails once at each call.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import laws
import pytest
from anyio import to_thread
from isthmus.storage.files import FileBlobs
from isthmus.storage.interface import StorageError, StorageFull
from one_loop import anyio_backend  # noqa: F401 (a fixture)

CALLS = ("open", "write", "pwrite", "ftruncate", "fsync", "replace", "unlink", "close")
OLD, NEW = b"old" * 200_000, b"new" * 200_000
STEPS_MAX = 60


class Machine:
    """Counts the calls in `CALLS`, fails those that `fails` selects, and knows what `lose_power` takes away."""

    def __init__(self, fails: Callable[[int], bool], error: int) -> None:
        self.count = 0
        self._synced: set[int] = set()
        self._undo: list[Callable[[], object]] = []
        self._fails = fails
        self._error = error
        self._real = {name: getattr(os, name) for name in CALLS}

    @contextmanager
    def running(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._faulty(name))
            yield

    def _faulty(self, name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            self.count += 1
            if self._fails(self.count):
                if name == "close":  # a failed close releases the descriptor, too
                    self._real[name](*args)
                raise OSError(self._error, os.strerror(self._error), "/secret/path")
            if name == "unlink" and os.path.exists(path := str(args[0])):
                # The removal of a name is not yet on disk: another name, beside the folder, keeps the file for it.
                kept = "{}-kept-{}".format(*os.path.split(path))
                os.link(path, kept)
                self._undo.append(lambda: os.rename(kept, path))
            result = self._real[name](*args, **kwargs)
            if name == "replace":
                self._undo.append(lambda: os.rename(str(args[1]), str(args[0])))
            if name == "fsync":
                found = os.fstat(args[0])  # type: ignore[arg-type]
                self._synced.add(found.st_ino)
                if stat.S_ISDIR(found.st_mode):
                    self._undo.clear()
            return result

        return call

    def lose_power(self, root: Path, safe: set[int], *, are_names_lost: bool) -> None:
        """Leaves in `root` what is on disk; `safe` are the inodes that were there before."""
        if are_names_lost:
            for undo in reversed(self._undo):
                undo()
        for file in root.iterdir():
            if file.stat().st_ino not in safe | self._synced:
                os.truncate(file, 0)


async def replace(blobs: FileBlobs) -> None:
    await laws.put(blobs, "k", NEW)


async def create(blobs: FileBlobs) -> None:
    await laws.put(blobs, "fresh", NEW)


async def delete(blobs: FileBlobs) -> None:
    await blobs.delete("k")


async def grow(blobs: FileBlobs) -> None:
    """Writes a draft in two steps, after the remains of an earlier attempt."""
    await blobs.delete("fresh")
    await laws.lengthen(blobs, "fresh", 0, NEW[:300_000], "leave")
    await laws.lengthen(blobs, "fresh", 300_000, NEW[300_000:], "commit")


BEFORE = {"k": OLD, "other/k": b"other"}
AFTER = {
    replace: {"k": NEW, "other/k": b"other"},
    create: {"k": OLD, "other/k": b"other", "fresh": NEW},
    grow: {"k": OLD, "other/k": b"other", "fresh": NEW},
    delete: {"other/k": b"other"},
}


async def prepared(root: Path) -> FileBlobs:
    blobs = FileBlobs(str(root))
    for key, content in BEFORE.items():
        await laws.put(blobs, key, content)
    return blobs


async def outcome(change: Callable[[FileBlobs], Awaitable[None]], blobs: FileBlobs, machine: Machine) -> bool:
    """True if the change was reported as done."""
    with machine.running():
        try:
            await change(blobs)
        except StorageError as error:
            return _checked(error)
    return True


def _checked(error: StorageError) -> bool:
    assert "/secret" not in str(error)
    return False


@pytest.mark.anyio
@pytest.mark.parametrize("are_names_lost", [False, True])
@pytest.mark.parametrize("change", AFTER)
async def test_a_crash_leaves_old_or_new(
    change: Callable[[FileBlobs], Awaitable[None]], are_names_lost: bool, tmp_path: Path
) -> None:
    seen = []
    for step in range(1, STEPS_MAX):
        root = tmp_path / str(step)
        blobs = await prepared(root)
        kept = {file.stat().st_ino for file in root.iterdir()}
        machine = Machine(lambda count, step=step: count >= step, errno.EIO)  # type: ignore[misc]
        is_done = await outcome(change, blobs, machine)
        machine.lose_power(root, kept, are_names_lost=are_names_lost)
        await blobs.aclose()  # a process that is gone holds no lock

        reopened = FileBlobs(str(root))
        found = await laws.contents(reopened)
        assert found in ((AFTER[change],) if is_done else (BEFORE, AFTER[change]))
        await reopened.sweep()
        assert await laws.contents(reopened) == found
        assert len(list(root.iterdir())) == len(found)  # no file is left over
        assert await laws.contents(FileBlobs(str(root))) == found
        seen.append(found == AFTER[change])
        if machine.count < step:
            break
    else:
        raise AssertionError("the change never ran to its end")
    assert seen[0] is False
    assert seen[-1] is True


@pytest.mark.anyio
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("change", AFTER)
async def test_one_failing_call_leaves_old_or_new(
    change: Callable[[FileBlobs], Awaitable[None]], error: int, tmp_path: Path
) -> None:
    for step in range(1, STEPS_MAX):
        root = tmp_path / str(step)
        blobs = await prepared(root)
        machine = Machine(lambda count, step=step: count == step, error)  # type: ignore[misc]
        is_done = await outcome(change, blobs, machine)
        found = await laws.contents(blobs)
        assert found in ((AFTER[change],) if is_done else (BEFORE, AFTER[change]))
        assert await laws.contents(FileBlobs(str(root))) == found  # the next process sees the same
        await change(blobs)  # the store still works
        assert await laws.contents(blobs) == AFTER[change]
        await blobs.sweep()
        assert len(list(root.iterdir())) == len(AFTER[change])
        assert await laws.contents(FileBlobs(str(root))) == AFTER[change]
        if machine.count < step:
            return
    raise AssertionError("the change never ran to its end")


@pytest.mark.anyio
async def test_a_full_disk_is_distinguished_from_a_broken_one(tmp_path: Path) -> None:
    blobs = FileBlobs(str(tmp_path))
    for error, kind in ((errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, StorageError)):
        with Machine(lambda count: count == 2, error).running():
            with pytest.raises(StorageError) as raised:
                await laws.put(blobs, "k", b"x" * 300_000)
        assert raised.type is kind
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_a_writer_whose_write_failed_is_spent(tmp_path: Path) -> None:
    """The lost bytes are not made up for by later room on the disk. The failure is raised by the next call, as
    writing goes on behind the caller."""
    blobs = FileBlobs(str(tmp_path))
    async with blobs.create("k", size_max_bytes=1 << 20) as writer:
        with Machine(lambda count: True, errno.ENOSPC).running():
            with pytest.raises(StorageFull):
                await writer.write(b"x" * 300_000)
                await writer.write(b"x" * 300_000)
        with pytest.raises(StorageError, match="could not be written"):
            await writer.commit()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_a_failed_last_write_is_raised_by_the_commit(tmp_path: Path) -> None:
    blobs = FileBlobs(str(tmp_path))
    async with blobs.create("k", size_max_bytes=1 << 20) as writer:
        with Machine(lambda count: True, errno.ENOSPC).running():
            await writer.write(b"x" * 300_000)
            with pytest.raises(StorageFull):
                await writer.commit()
        with pytest.raises(StorageError, match="could not be written"):
            await writer.commit()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_one_piece_is_written_while_the_next_comes_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not closed before the write ends: its descriptor could be another file's by then."""
    real, may_write, writing = os.write, threading.Event(), threading.Event()
    written: list[int] = []

    def write(fd: int, data: bytes) -> int:
        writing.set()
        assert may_write.wait(20)
        written.append(len(data))
        return real(fd, data)

    async def let_write() -> None:
        await anyio.wait_all_tasks_blocked()
        assert written == []
        may_write.set()

    monkeypatch.setattr(os, "write", write)
    blobs = FileBlobs(str(tmp_path))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks, blobs.create("k", size_max_bytes=1 << 22) as writer:
            await writer.write(b"a" * 300_000)
            await writer.write(b"b" * 200_000)  # too little to be written in the background
            await to_thread.run_sync(writing.wait)
            tasks.start_soon(let_write)
            await writer.write(b"c" * 100_000)
            assert written[:1] == [300_000]
    assert written == [300_000, 300_000], "what was begun is ended, whatever becomes of the file"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: max(1, len(data) // 3)]))
    blobs = FileBlobs(str(tmp_path))
    with anyio.fail_after(20):
        await laws.put(blobs, "k", bytes(range(256)) * 2000)
    monkeypatch.undo()
    assert await laws.contents(blobs) == {"k": bytes(range(256)) * 2000}


@pytest.mark.anyio
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_draft_goes_on_after_a_write_that_failed(error: int, tmp_path: Path) -> None:
    """The draft has what was written before, and reports its size."""
    blobs = FileBlobs(str(tmp_path))
    await laws.lengthen(blobs, "k", 0, OLD[:300_000], "leave")
    async with blobs.extend("k", offset=300_000, size_max_bytes=len(OLD)) as writer:
        await writer.write(OLD[300_000:400_000])
        with Machine(lambda count: True, error).running():
            with pytest.raises(StorageError):
                await writer.write(b"x" * 200_000)
        with pytest.raises(StorageError, match="could not be written"):
            await writer.commit()
    assert writer.size_bytes in (300_000, 400_000)
    await laws.lengthen(blobs, "k", writer.size_bytes, OLD[writer.size_bytes :], "commit")
    assert await laws.contents(blobs) == {"k": OLD}
