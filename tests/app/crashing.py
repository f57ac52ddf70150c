"""Ends a process at every step of a fixed run of storage orders, and checks what the next one finds.

`crashing.py [SCENARIO …] [--at POINT]`; exit code 1 if anything was found that may not be.

A point is a call that changes a file or a folder, or an SQL statement: before it, the process may end (SIGKILL, out of
memory, a machine that is reset with its disk written). Calls that write are cut into short ones, so that the process
may end in the midst of a file. The state after a call is the state before the next one, so ending before each, and at
the end, covers everything. Loss of power is tested in `tests/storage/test_file_faults.py`.

Everything is imported once, and each run is a fork, without threads. It records its promises in shared memory.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import io
import json
import mmap
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import anyio._backends._asyncio  # otherwise each run would import it
import anyio.lowlevel
import msgspec
from anyio import to_thread
from isthmus.app.disk.blob_files import BlobFiles
from isthmus.app.disk.lock import LOCK_NAME, holding
from isthmus.app.disk.workspaces import Workspaces
from isthmus.app.stores.start_up import remove_unowned
from isthmus.core.base.ids import ChannelId, Ticket, mint
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import (
    Allocate,
    Allocated,
    Append,
    Appended,
    Collect,
    Collected,
    Discard,
    Fetch,
    Fetched,
    FileSource,
    Forget,
    ForgetAll,
    InlineSource,
    Materialize,
    Materialized,
    Receive,
    Remove,
    Save,
    Saved,
    StorageAnswer,
    StorageOrder,
    Survey,
    Surveyed,
    Sweep,
)
from isthmus.storage.files import FileBlobs
from isthmus.storage.sqlite import SqliteRecords

A = TypeVar("A", bound=StorageAnswer)

_entropy = random.Random(1).randbytes
MINE, OTHER, FIRST, SECOND, THIRD = (mint(_entropy) for _ in range(5))
T = Ticket(1)

WRITE_SIZE: Final = 64 * 1024
"""The longest write, in bytes. The contents below have up to three times that."""
POINTS_MAX: Final = 2000
RUN_TIMEOUT_S: Final = 60
LOG_SIZE: Final = 64 * 1024
CRASHED: Final = 42
"""Exit code of a run that ended at its point."""
WRONGS_MAX: Final = 5
"""The number of failed runs after which the campaign stops."""

CHANGES: Final = frozenset(
    {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime"}
)
"""Audit events of calls that change a folder. `open` is another, if it creates or truncates a file."""


SIZES: Final = {
    "u1": 100_000,
    "u2": WRITE_SIZE,
    "a1": 150_000,
    "a2": 70_000,
    "a3": 1,
    "d1": 120_000,
    "d2": 9_000,
    "a4": 10,
    "a5": 5_000,
}


@functools.cache
def content_of(name: str) -> bytes:
    """The content of the file of that name, in every run."""
    return random.Random(name).randbytes(SIZES.get(name, 0))


class Log:
    """Lines that outlive the process that wrote them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, LOG_SIZE)

    def note(self, *words: str) -> None:
        line = " ".join(words).encode() + b"\n"
        at = int.from_bytes(self._memory[:4], "big")
        self._memory[4 + at : 4 + at + len(line)] = line
        self._memory[:4] = (at + len(line)).to_bytes(4, "big")

    def lines(self) -> list[list[str]]:
        size = int.from_bytes(self._memory[:4], "big")
        return [line.split(" ") for line in self._memory[4 : 4 + size].decode().splitlines()]

    def close(self) -> None:
        self._memory.close()


# --- Points ---------------------------------------------------------------------------------------------------------


class Points:
    """Counts the calls that change the disk, and ends the process before the `last` of them."""

    def __init__(self, last: int, log: Log) -> None:
        self._last = last
        self._log = log
        self._count = 0
        self.are_counted = False

    def count(self, kind: str) -> None:
        if not self.are_counted:
            return
        self._count += 1
        if self._count == self._last:
            self._log.note("ended", kind)
            os._exit(CRASHED)

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leaves out the changes that others make to the disk."""
        before, self.are_counted = self.are_counted, False
        try:
            yield
        finally:
            self.are_counted = before

    def install(self) -> None:
        """Patches this process for good: it belongs to one run."""
        sys.addaudithook(self._audit)
        write, pwrite, fsync, fdopen, connect = os.write, os.pwrite, os.fsync, os.fdopen, sqlite3.connect
        copy = getattr(os, "copy_file_range", None)

        def write_some(fd: int, data: bytes) -> int:
            self.count("write")
            return write(fd, memoryview(data)[:WRITE_SIZE])

        def write_some_at(fd: int, data: bytes, offset: int) -> int:
            self.count("pwrite")
            return pwrite(fd, memoryview(data)[:WRITE_SIZE], offset)

        def sync(fd: int) -> None:
            self.count("fsync")
            fsync(fd)

        def copy_some(source: int, target: int, count: int) -> int:
            self.count("copy_file_range")
            assert copy is not None
            return copy(source, target, min(count, WRITE_SIZE))

        def open_for(fd: int, mode: str, buffering: int = -1) -> Any:
            if mode == "wb":
                return io.BufferedWriter(Written(fd, "wb", self))
            assert mode == "rb", mode
            return fdopen(fd, mode, buffering=buffering)

        def connect_counted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            database = connect(*args, **kwargs)
            database.set_trace_callback(lambda statement: self.count(f"sql {statement.split()[0].lower()}"))
            return database

        for name, call in (("write", write_some), ("pwrite", write_some_at), ("fsync", sync), ("fdopen", open_for)):
            setattr(os, name, call)
        if copy is not None:
            os.copy_file_range = copy_some  # type: ignore[assignment]
        sqlite3.connect = connect_counted  # type: ignore[assignment]

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in CHANGES:
            self.count(event)
        elif event == "open" and args[2] & (os.O_CREAT | os.O_TRUNC):
            self.count("open")


class Written(io.FileIO):
    def __init__(self, fd: int, mode: str, points: Points) -> None:
        super().__init__(fd, mode)
        self._points = points

    def write(self, data: Any) -> int:
        self._points.count("file write")
        return super().write(memoryview(data)[:WRITE_SIZE])


# --- A process that stores things -----------------------------------------------------------------------------------


class World:
    """The storage as the proxy has it, and what it promised of each record to those who waited for it."""

    def __init__(self, root: Path, log: Log, points: Points) -> None:
        self.root = root
        self.log = log
        self.points = points
        self._stack = contextlib.ExitStack()

    async def open(self) -> None:
        root = self.root
        self._stack.enter_context(holding(str(root / "workspaces")))
        self.records = SqliteRecords(str(root / "state" / "records.sqlite"))
        self.blobs = FileBlobs(str(root / "blobs"))
        self.work = Workspaces(
            str(root / "workspaces"),
            self.records,
            self.blobs,
            artifact_roots={"s": [str(root / "extra")]},
            working_directories={"s": None},
            limits=Limits(),
            private_paths=[str(root / "state"), str(root / "blobs")],
            tmp_root=str(root / "tmp"),
        )
        await remove_unowned(self.records, self.blobs)
        await self.work.start_up()

    async def close(self) -> None:
        await self.records.aclose()
        self._stack.close()

    async def carry_out(self, order: StorageOrder, kind: type[A]) -> A:
        answer = await self.work.carry_out(order)
        assert isinstance(answer, kind), answer
        return answer

    async def receive(self, *names: str) -> None:
        """Receives an upload of several files; their blobs have their names."""
        order = Receive(ChannelId(1), names, 1 << 20, 1 << 20)
        await BlobFiles(self.blobs).take_in(order, "multipart/form-data; boundary=b", body_of(names))

    async def append(self, name: str, start: int, stop: int) -> Appended:
        """Receives more of a resumable upload, up to where the client breaks off. A complete upload is the blob
        `name`."""
        reports: list[bytes] = []
        order = Append(ChannelId(1), name, start, len(content_of(name)))
        await BlobFiles(self.blobs).append(order, piece_of(name, start, stop), reports.append)
        return msgspec.json.decode(reports[-1], type=Appended)

    async def save(self, key: str, name: str) -> None:
        """Saves a record. The file must be there once this has returned."""
        self.log.note("saving", key)
        value = json.dumps({"blob": name}).encode()
        await self.carry_out(Save(T, key, value, time.time() + 3600), Saved)
        self.log.note("saved", key)

    async def forget(self, key: str, name: str, *, is_blob_first: bool = False) -> None:
        self.log.note("forgetting", key)
        orders = [Forget(key), Discard(name)]
        for order in reversed(orders) if is_blob_first else orders:
            await self.work.carry_out(order)
        self.log.note("forgot", key)

    def write(self, path: str | Path, name: str) -> str:
        """Writes a file as the server does."""
        with self.points.uncounted():
            path = Path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content_of(name))
        return str(path)


async def body_of(names: tuple[str, ...]) -> AsyncIterator[bytes]:
    for name in names:
        yield f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        yield content_of(name)
        yield b"\r\n"
    yield b"--b--\r\n"


async def piece_of(name: str, start: int, stop: int) -> AsyncIterator[bytes]:
    yield content_of(name)[start:stop]


async def a_session(world: World) -> None:
    """One whole session from the first start on: uploads, the calls that use them, the files that these write, and
    its end."""
    world.points.are_counted = True
    await world.open()
    work = world.work
    await world.receive("u1", "u2")
    await world.save("upload/1", "u1")
    await world.save("upload/2", "u2")
    assert (await world.append("d1", 0, 70_000)).size_bytes == 70_000
    assert (await world.append("d2", 0, 5_000)).size_bytes == 5_000
    assert (await world.append("d1", 70_000, SIZES["d1"])).sha256
    await world.save("upload/d1", "d1")
    await work.carry_out(Discard("d2"))  # its client does not come back
    folders = await work.prepare(MINE)
    await world.carry_out(Materialize(T, MINE, "u1", FIRST, "u1"), Materialized)
    await world.carry_out(Materialize(T, MINE, "u2", SECOND, "u2", "ws"), Materialized)
    allocated = await world.carry_out(Allocate(T, MINE, (FIRST,), "a1"), Allocated)
    paths = [
        world.write(path, name)
        for path, name in (
            (allocated.path, "a1"),
            (Path(folders.ws, "sub", "a2"), "a2"),
            (world.root / "extra" / "a3", "a3"),
        )
    ]
    named = tuple((path,) for path in paths)
    seen = await world.carry_out(Survey(T, "s", MINE, named, ("ws", "out", "in")), Surveyed)
    assert len(seen.listed) == 4
    stamps = [one.files[0].stamp for one in seen.named]
    world.log.note("moving", "a2"), world.log.note("moving", "a3")
    sources = [FileSource((path,), stamp) for path, stamp in zip(paths, stamps, strict=True)]
    names = ("a1", "a2", "a3", "a4")
    inline = InlineSource(content_of("a4"), "a4")
    order = Collect(T, "s", MINE, (*sources, inline), names, 1 << 20, 1 << 20)
    collected = await world.carry_out(order, Collected)
    assert [file.problem for file in collected.files] == [""] * 4
    for name in names:
        await world.save(f"artifact/{name}", name)
    world.log.note("moved")
    for path, stamp in list(zip(paths, stamps, strict=True))[1:]:
        await work.carry_out(Remove(server="s", workspace=MINE, path=path, stamp=stamp))
        assert not os.path.exists(path)
    await world.save("artifact/a1", "a1")  # its deadline is a later one now
    assert await world.carry_out(Fetch(T, "a1", 1 << 20), Fetched) == Fetched(content_of("a1"))
    await world.forget("artifact/a4", "a4", is_blob_first=True)
    await world.forget("upload/2", "u2")
    world.write(Path(folders.ws, "late"), "a5")
    await world.carry_out(Collect(T, "s", MINE, (FileSource(("late",)),), ("a5",), 1 << 20, 1 << 20), Collected)
    await work.carry_out(Discard("a5"))  # no request waits for it any more
    await work.carry_out(Sweep(MINE))
    await world.append("d2", 0, 5_000)  # no other client does either, and then the process ends
    left = {"upload/1": "u1", "upload/d1": "d1"}
    for key in left:
        world.log.note("forgetting", key)
    await work.carry_out(ForgetAll("upload/"))
    for key, name in left.items():
        await work.carry_out(Discard(name))
        world.log.note("forgot", key)
    await world.close()


async def a_restart(world: World) -> None:
    """A start after a run that ended removes all leftovers; this start ends at a point itself."""
    await world.open()
    for name in ("a1", "a2", "orphan", "expired", "lost"):
        async with world.blobs.create(name, size_max_bytes=1 << 20) as writer:
            await writer.write(content_of(name))
            await writer.commit()
    await world.save("artifact/a1", "a1")
    await world.save("artifact/a2", "a2")
    await world.records.save("artifact/expired", b'{"blob": "expired"}', expires_at_unix=1.0)
    await world.records.save("artifact/lost", b'{"blob": "lost"}')
    world.log.note("forgetting", "artifact/lost")
    for workspace in (MINE, OTHER):
        for folder in await world.work.prepare(workspace):
            world.write(Path(folder, "deep", "er", "f"), "a5")
    blobs = world.root / "blobs"
    (committed,) = blobs.glob("a1~*")
    key, _, sha256 = committed.name.split("~")
    for left in (f"{key}~0~{sha256}", "~unfinished"):
        world.write(blobs / left, "a1")
    os.unlink(world.blobs.path_for("lost") or "")
    await world.close()
    world.points.are_counted = True
    await world.open()
    await world.close()


SCENARIOS: Final[dict[str, Callable[[World], Awaitable[None]]]] = {"a_session": a_session, "a_restart": a_restart}


# --- The state after a crash ----------------------------------------------------------------------------------------


def check(root: Path, log: Log) -> None:
    """Checks what is there now, and after the next start."""
    check_whole(root)
    check_moves(root, log)
    anyio.run(check_next_start, root, log)


def check_whole(root: Path) -> None:
    """Checks that no partial file has a name by which it is found."""
    for path in (root / "blobs").glob("*~*~*"):
        assert not path.name.startswith("~")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name.split("~")[2], path.name
    for workspace in (root / "workspaces").glob("*/"):
        for path in (*workspace.glob("in/*/u?"), *workspace.glob("ws/*/u?")):
            assert path.read_bytes() == content_of(path.name), path


def check_moves(root: Path, log: Log) -> None:
    """Checks that a file on its way is where it was, or stored."""
    words = [line[0] for line in log.lines()]
    if "moving" not in words or ("moved" in words and "forgetting" in words):
        return
    for name, source in (("a2", root / "workspaces" / MINE / "ws" / "sub" / "a2"), ("a3", root / "extra" / "a3")):
        stored = [path for path in (root / "blobs").glob(f"{name}~*") if path.read_bytes() == content_of(name)]
        assert stored or source.read_bytes() == content_of(name), f"{name} is lost"


async def check_next_start(root: Path, log: Log) -> None:
    must: set[str] = set()
    may: set[str] = set()
    for word, *rest in log.lines():
        key = rest[0] if rest else ""
        if word in ("saving", "forgetting"):
            may.add(key)
        elif word == "saved":
            must.add(key), may.discard(key)
        elif word == "forgot":
            may.discard(key)
        if word in ("forgetting", "forgot"):
            must.discard(key)
    for _ in range(2):  # the second start finds nothing left to do
        world = World(root, log, Points(0, log))
        await world.open()
        names = {key: json.loads(record.value)["blob"] async for key, record in world.records.scan("")}
        assert must <= names.keys() <= must | may, (sorted(names), sorted(must), sorted(may))
        for name in names.values():
            content = b"".join([piece async for piece in world.blobs.read(name)])
            assert content == content_of(name), f"{name} is not what it was"
        stored = [key async for key in world.blobs.keys()]  # noqa: SIM118
        assert sorted(stored) == sorted(names.values())
        assert len(os.listdir(root / "blobs")) == len(stored)
        assert os.listdir(root / "workspaces") == [LOCK_NAME]
        assert not os.path.exists(root / "tmp") or os.listdir(root / "tmp") == []
        await world.close()


# --- All runs -------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    kind: str
    """The kind of the call before which the run ended; empty if it came to its end."""
    wrong: str


def run_to(point: int, scenario: str, folder: Path) -> Run:
    """Runs once up to before its `point`-th call, and checks what is found then."""
    root = folder / str(point)
    root.mkdir()
    log = Log()
    ended = in_fork(functools.partial(live, point, scenario, root, log))
    kinds = [line[1:] for line in log.lines() if line[0] == "ended"]
    if ended != (CRASHED if kinds else 0):
        wrong = f"the run ended with exit code {ended}"
    else:
        wrong = ""
        try:
            check(root, log)
        except Exception as error:
            wrong = "".join(traceback.format_exception(error)[-2:])
    log.close()
    shutil.rmtree(root)
    return Run(" ".join(kinds[0]) if kinds else "", wrong)


def live(point: int, scenario: str, root: Path, log: Log) -> None:
    points = Points(point, log)
    points.install()
    anyio.run(SCENARIOS[scenario], World(root, log, points))


def in_fork(work: Callable[[], None]) -> int:
    """The exit code of a process that does `work`."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(RUN_TIMEOUT_S)  # the system ends a process that hangs
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def campaign(scenario: str, folder: Path, at: int | None) -> bool:
    """True if all went well, at each point in turn, or at one."""
    kinds: Counter[str] = Counter()
    wrongs = 0
    for point in range(1, POINTS_MAX) if at is None else [at]:
        run = run_to(point, scenario, folder)
        if run.wrong:
            wrongs += 1
            print(f"{scenario} --at {point} ({run.kind or 'the end'}): {run.wrong}", flush=True)
        if wrongs == WRONGS_MAX:
            break
        if not run.kind:
            break
        kinds[run.kind] += 1
    else:
        if at is None:
            raise AssertionError(f"{scenario} never came to its end")
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    print(f"{scenario}: {wrongs} wrong of {kinds.total()} points ({counts})")
    return not wrongs


async def run_at_once(work: Callable[..., Any], *args: object, **_: object) -> Any:
    """A replacement for `anyio.to_thread.run_sync`: the same calls in the same order, in a process that can be
    forked."""
    await anyio.lowlevel.checkpoint()
    return work(*args)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--at", type=int, metavar="POINT", help="this one only")
    options = parser.parse_args()
    # In memory where possible: these runs are not about lost power.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    went_well = True
    for name in SIZES:
        content_of(name)
    to_thread.run_sync = run_at_once
    gc.freeze()  # the objects of now are not searched in each fork
    with tempfile.TemporaryDirectory(prefix="isthmus-crash-", dir=shared) as folder:
        for scenario in options.scenarios or SCENARIOS:
            went_well &= campaign(scenario, Path(folder), options.at)
            shutil.rmtree(folder)
            os.mkdir(folder)
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main())
