"""Tests of workspaces: storage orders are carried out, nothing escapes a workspace, and every failure is an answer."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import anyio
import anyio.lowlevel
import pytest
from isthmus.app.disk import openat
from isthmus.app.disk.lock import InUse, holding
from isthmus.app.disk.remove_tree import remove_tree
from isthmus.app.disk.survey import stamp_of
from isthmus.app.disk.walk import PATH_SIZE_MAX
from isthmus.app.disk.workspaces import Workspaces
from isthmus.app.runtime.upstreams import _placed
from isthmus.app.telemetry.store_times import OPERATIONS, StoreTimes
from isthmus.core.base.ids import Ticket, mint
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import (
    Allocate,
    Allocated,
    Collect,
    Collected,
    CollectedFile,
    Conflicted,
    Discard,
    Extend,
    Extended,
    Fetch,
    Fetched,
    FileSource,
    Forget,
    ForgetAll,
    InlineSource,
    Load,
    Loaded,
    Materialize,
    Materialized,
    Remove,
    Save,
    Saved,
    Source,
    StorageFailed,
    StorageOrder,
    Sweep,
)
from isthmus.storage.files import FileBlobs
from isthmus.storage.interface import Blobs, BlobWriter, StorageError, StorageFull
from isthmus.storage.memory import MemoryBlobs, MemoryRecords
from isthmus.transports.stdio.server_process import ChildSpec

pytestmark = pytest.mark.anyio

_entropy = random.Random(1).randbytes
MINE, OTHER, THING = mint(_entropy), mint(_entropy), mint(_entropy)
SECRET = b"secret of somebody else"
T = Ticket(1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def build(
    tmp_path: Path,
    blobs: Blobs,
    *,
    artifact_roots: Mapping[str, Sequence[str]] | None = None,
    hard_linked_roots: Mapping[str, Sequence[str]] | None = None,
    working_directory: str | None = None,
    limits: Limits | None = None,
    private_paths: Sequence[str] = (),
) -> Workspaces:
    clock = Clock()
    return Workspaces(
        str(tmp_path / "root"),
        MemoryRecords(clock),
        blobs,
        artifact_roots=artifact_roots or {},
        hard_linked_roots=hard_linked_roots,
        working_directories={"s": working_directory},
        limits=limits or Limits(),
        private_paths=private_paths,
        tmp_root=str(tmp_path / "tmp"),
        now_unix=clock,
    )


@pytest.fixture(params=["memory", "files"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return MemoryBlobs() if request.param == "memory" else FileBlobs(str(tmp_path / "blobs"))


async def store(blobs: Blobs, key: str, content: bytes) -> None:
    async with blobs.create(key, size_max_bytes=len(content)) as writer:
        await writer.write(content)
        await writer.commit()


async def blob(blobs: Blobs, key: str) -> bytes | None:
    return b"".join([piece async for piece in blobs.read(key)]) if await blobs.stat(key) else None


async def blob_keys(blobs: Blobs) -> list[str]:
    return [key async for key in blobs.keys()]  # noqa: SIM118


async def collect(
    work: Workspaces, *sources: Source | str, limit: int = 1 << 20, total: int = 1 << 30, server: str = "s"
) -> Collected:
    answer = await work.carry_out(collecting(*sources, limit=limit, total=total, server=server))
    assert isinstance(answer, Collected), answer
    assert len(answer.files) == len(sources)
    return answer


def collecting(*sources: Source | str, limit: int = 1 << 20, total: int = 1 << 30, server: str = "s") -> Collect:
    parsed = tuple(FileSource((source,)) if isinstance(source, str) else source for source in sources)
    names = tuple(f"b/{number}" for number in range(len(parsed)))
    return Collect(T, server, MINE, parsed, names, limit, total)


async def test_what_came_in_messages_needs_no_workspace(tmp_path: Path, blobs: Blobs) -> None:
    """The file is stored as any other, and no folder is made for it."""
    work = build(tmp_path, blobs)
    await work.start_up()
    order = Collect(T, "s", "", (InlineSource(b'{"content":[]}', "r"),), ("b/0",), 1 << 20, 1 << 20)
    answer = await work.carry_out(order)
    assert isinstance(answer, Collected)
    assert (answer.files[0].size_bytes, answer.files[0].problem) == (14, "")
    assert await work.carry_out(Fetch(T, "b/0", 14)) == Fetched(b'{"content":[]}')
    assert (os.listdir(work.root), os.path.exists(tmp_path / "tmp")) == ([], False)
    await work.carry_out(Discard("b/0"))
    assert await blob_keys(blobs) == []


async def test_what_came_in_messages_is_bounded_as_files_are(tmp_path: Path, blobs: Blobs) -> None:
    order = Collect(T, "s", "", (InlineSource(b"123456", "r"),), ("b/0",), 5, 1 << 20)
    answer = await build(tmp_path, blobs).carry_out(order)
    assert isinstance(answer, Collected) and answer.files[0].problem == "too large: 6 bytes, at most 5"
    assert await blob_keys(blobs) == []


async def test_no_file_is_taken_in_without_a_workspace(tmp_path: Path, blobs: Blobs) -> None:
    """A file that any session of the server may name is refused, too."""
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots" / "x").write_bytes(SECRET)
    work = build(tmp_path, blobs, artifact_roots={"s": [str(tmp_path / "roots")]})
    sources = (InlineSource(b"1", "r"), FileSource((str(tmp_path / "roots" / "x"),)))
    answer = await work.carry_out(Collect(T, "s", "", sources, ("b/0", "b/1"), 1 << 20, 1 << 20))
    assert isinstance(answer, StorageFailed)
    assert await blob_keys(blobs) == []


async def problem(work: Workspaces, *candidates: str, limit: int = 1 << 20) -> str:
    """The reason why the file is not collected. Checks on the way that nothing of it is kept."""
    (file,) = (await collect(work, FileSource(candidates), limit=limit)).files
    assert file == CollectedFile(problem=file.problem)
    assert await blob_keys(work._blobs) == []
    return file.problem


# --- Records and blobs ----------------------------------------------------------------------------------------------


async def test_records_come_and_go(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    assert await work.carry_out(Load(T, "k")) == Loaded(None)
    saved = await work.carry_out(Save(T, "k", b"v", expires_at_unix=1001.0))
    assert isinstance(saved, Saved)
    assert await work.carry_out(Load(T, "k")) == Loaded(b"v", saved.version)
    assert await work.carry_out(Save(T, "k", b"w", if_version=0)) == Conflicted()
    assert isinstance(await work.carry_out(Save(T, "k", b"w", if_version=saved.version)), Saved)
    assert await work.carry_out(Save(T, "k", b"x", if_version=saved.version)) == Conflicted()
    assert await work.carry_out(Forget("k")) is None
    assert await work.carry_out(Load(T, "k")) == Loaded(None)


async def test_parts_make_a_blob(tmp_path: Path, blobs: Blobs) -> None:
    """The blob is not seen before the last part. A part for another place is refused, and changes nothing."""
    work = build(tmp_path, blobs)
    assert await work.carry_out(Extend(T, "b", 0, b"one,")) == Extended(4)
    assert await blob(blobs, "b") is None
    for offset in (0, 3, 5):
        answer = await work.carry_out(Extend(T, "b", offset, b"x", is_last=True))
        assert isinstance(answer, StorageFailed) and answer.is_missing
    assert await work.carry_out(Extend(T, "b", 4, b"")) == Extended(4)
    whole = Extended(7, hashlib.sha256(b"one,two").hexdigest())
    assert await work.carry_out(Extend(T, "b", 4, b"two", is_last=True)) == whole
    assert await blob(blobs, "b") == b"one,two"


async def test_parts_can_be_discarded(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await work.carry_out(Extend(T, "b", 0, b"one"))
    await work.carry_out(Discard("b"))
    assert isinstance(await work.carry_out(Extend(T, "b", 3, b"two")), StorageFailed)
    empty = hashlib.sha256(b"").hexdigest()
    assert await work.carry_out(Extend(T, "b", 0, b"", is_last=True)) == Extended(0, empty)


async def test_a_part_that_the_disk_does_not_take_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that were gathered are written when the writer is left, and that may fail too."""
    work = build(tmp_path, FileBlobs(str(tmp_path / "blobs")))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", full)
    assert isinstance(await work.carry_out(Extend(T, "b", 0, b"one")), StorageFailed)


async def test_fetch_reads_whole_blobs_up_to_a_limit(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    content = random.Random(2).randbytes(200_000)
    await store(blobs, "b", content)
    assert await work.carry_out(Fetch(T, "b", 200_000)) == Fetched(content)
    assert await work.carry_out(Fetch(T, "b", 199_999)) == StorageFailed("too large: 200000 bytes, at most 199999")
    assert await work.carry_out(Discard("b")) is None
    answer = await work.carry_out(Fetch(T, "b", 200_000))
    assert answer == StorageFailed("there is no blob b", is_missing=True)
    assert await work.carry_out(Discard("b")) is None


# --- Folders --------------------------------------------------------------------------------------------------------


async def test_folders_are_made_for_the_owner_only(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    folders = await work.prepare(MINE)
    assert folders == work.folders(MINE) == await work.prepare(MINE)
    made = [Path(work.root), Path(work.root, MINE), *map(Path, folders)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert sorted(os.listdir(Path(work.root, MINE))) == ["in", "out", "ws"]


async def test_a_child_is_placed_in_the_folders_of_its_session(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    folders = work.folders(MINE)
    assert folders.tmp == work.tmp_prefix + MINE
    spec = ChildSpec(("{ws}/run", "--out={out}:{in}"), {"CACHE": "{tmp}/c", "PLAIN": "{other}"}, None, inherit_env=True)
    placed = _placed(spec, folders)
    assert placed.command == (f"{folders.ws}/run", f"--out={folders.out}:{folders.in_}")
    assert placed.env == {"TMPDIR": folders.tmp, "CACHE": f"{folders.tmp}/c", "PLAIN": "{other}"}
    assert (placed.cwd, placed.inherit_env) == (folders.ws, True)
    assert _placed(ChildSpec(("x",), {"TMPDIR": "/t"}, "{out}/sub"), folders).cwd == f"{folders.out}/sub"
    assert _placed(ChildSpec(("x",), {"TMPDIR": "/t"}, "{out}/sub"), folders).env == {"TMPDIR": "/t"}


async def test_a_server_can_make_sockets_in_its_tmp(blobs: Blobs) -> None:
    """Chromium's socket fits below TMPDIR however deep the root lies: the path of a socket has at most 107 bytes."""
    work = Workspaces("/" + "deep/" * 40, MemoryRecords(), blobs, artifact_roots={}, working_directories={},
                      limits=Limits(), tmp_root="/tmp")  # fmt: skip
    assert len(work.folders(MINE).tmp + "/org.chromium.Chromium.XXXXXX/SingletonSocket") <= 107


async def test_the_root_is_given_by_its_real_path(tmp_path: Path, blobs: Blobs) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    work = build(tmp_path, blobs)
    assert work.root == str(tmp_path / "real")
    folders = await work.prepare(MINE)
    Path(folders.out, "a").write_bytes(b"a")
    (file,) = (await collect(work, str(tmp_path / "root" / MINE / "out" / "a"))).files
    assert file.path == os.path.join(folders.out, "a")


async def test_allocated_paths_can_be_written(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    answer = await work.carry_out(Allocate(T, MINE, (THING,), "ä b.png"))
    assert answer == Allocated(os.path.join(work.folders(MINE).out, THING, "ä b.png"))
    assert isinstance(answer, Allocated)
    Path(answer.path).write_bytes(b"png")
    assert await work.carry_out(Allocate(T, MINE, (THING,), "ä b.png")) == answer
    (file,) = (await collect(work, answer.path)).files
    assert (file.path, file.filename, file.head) == (answer.path, "ä b.png", b"png")
    folder = await work.carry_out(Allocate(T, MINE, ("a", "b"), ""))
    assert folder == Allocated(os.path.join(work.folders(MINE).out, "a", "b"))
    assert os.path.isdir(os.path.join(work.folders(MINE).out, "a", "b"))


@pytest.mark.parametrize("filename", [".", "..", "a/b", "/a", "a\0", "\ud800", "../x"])
async def test_file_names_are_one_component(filename: str, tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    for order in (
        Allocate(T, MINE, (THING,), filename),
        Allocate(T, MINE, (filename,), "f"),
        Materialize(T, MINE, "b", THING, filename),
    ):
        answer = await work.carry_out(order)
        assert isinstance(answer, StorageFailed)
        assert answer.reason.startswith("got the file name")
    assert not os.path.exists(work.root)


async def test_names_that_were_not_minted_are_our_own_mistake(
    tmp_path: Path, blobs: Blobs, caplog: pytest.LogCaptureFixture
) -> None:
    work = build(tmp_path, blobs)
    for order in (
        Allocate(T, "..", (THING,), "f"),
        Materialize(T, MINE, "b", "../..", "f"),
        Sweep(".."),
        Sweep(MINE + "\n"),
    ):
        caplog.clear()
        expected = None if isinstance(order, Sweep) else StorageFailed("internal error")
        assert await work.carry_out(order) == expected
        assert "AssertionError" in caplog.text
    assert not os.path.exists(work.root)


async def test_materialized_files_are_copies(tmp_path: Path, blobs: Blobs) -> None:
    """The blob stays as it is, whatever the upstream does to its file. A second order changes nothing of the file."""
    work = build(tmp_path, blobs)
    content = random.Random(3).randbytes(3_000_000)
    await store(blobs, "b", content)
    order = Materialize(T, MINE, "b", THING, "data.bin")
    answer = await work.carry_out(order)
    assert isinstance(answer, Materialized)
    path = Path(work.folders(MINE).in_, THING, "data.bin")
    assert answer == Materialized(str(path), stamp_of(path.stat()))
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["data.bin"]
    with open(path, "r+b") as file:
        file.write(b"changed")
    assert await blob(blobs, "b") == content
    again = await work.carry_out(order)
    assert again == Materialized(str(path), stamp_of(path.stat())) != answer
    assert path.read_bytes() == b"changed" + content[7:]
    await work.carry_out(Discard("b"))
    assert path.exists()
    failed = await work.carry_out(order)
    assert isinstance(failed, StorageFailed)
    assert failed.is_missing


@pytest.mark.parametrize("folder", ["in", "out", "ws"])
async def test_files_are_laid_where_the_server_may_look(folder: str, tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    answer = await work.carry_out(Materialize(T, MINE, "b", THING, "f", folder))
    assert isinstance(answer, Materialized)
    assert answer.path == os.path.join(work.root, MINE, folder, THING, "f")
    assert Path(answer.path).read_bytes() == b"content"


async def test_files_are_laid_in_no_other_folder(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    for folder in ("tmp", "", "..", "in/x"):
        assert await work.carry_out(Materialize(T, MINE, "b", THING, "f", folder)) == StorageFailed("internal error")
    assert not os.path.exists(work.root)


async def test_a_blob_whose_file_is_gone_is_missing(tmp_path: Path) -> None:
    blobs = FileBlobs(str(tmp_path / "blobs"))
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    os.unlink(blobs.path_for("b") or "")
    for order in (Materialize(T, MINE, "b", THING, "f"), Fetch(T, "b", 10)):
        assert await work.carry_out(order) == StorageFailed("the file of blob b is gone", is_missing=True)
    assert os.listdir(os.path.join(work.folders(MINE).in_, THING)) == []


async def test_an_empty_blob_is_materialized(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"")
    answer = await work.carry_out(Materialize(T, MINE, "b", THING, "empty"))
    assert isinstance(answer, Materialized)
    assert Path(answer.path).read_bytes() == b""


@pytest.mark.parametrize("copied", [0, 1, 100_000])
async def test_copies_do_not_need_the_kernels_help(
    copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying falls back at the first call or in the midst of the file."""
    left = copied

    def copy(source: int, target: int, count: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.EXDEV, "cross-device")
        count = os.write(target, os.read(source, min(count, left)))
        left -= count
        return count

    monkeypatch.setattr(os, "copy_file_range", copy, raising=False)
    blobs = FileBlobs(str(tmp_path / "blobs"))
    work = build(tmp_path, blobs)
    content = random.Random(5).randbytes(2_100_000)
    await store(blobs, "b", content)
    answer = await work.carry_out(Materialize(T, MINE, "b", THING, "f"))
    assert isinstance(answer, Materialized)
    assert Path(answer.path).read_bytes() == content
    left = copied
    (file,) = (await collect(work, answer.path, limit=len(content))).files
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert await blob(blobs, "b/0") == content


async def test_what_is_taken_is_a_file_of_its_own(tmp_path: Path) -> None:
    """Later writes to the upstream's file change nothing that is stored, however the copy was made."""
    blobs = FileBlobs(str(tmp_path / "blobs"))
    work = build(tmp_path, blobs)
    path = Path((await work.prepare(MINE)).ws, "f")
    content = random.Random(6).randbytes(300_000)
    path.write_bytes(content)
    await collect(work, "f")
    stored = Path(blobs.path_for("b/0") or "")
    assert (stored.stat().st_nlink, stored.samefile(path)) == (1, False)
    with open(path, "r+b") as file:
        file.write(b"changed")
    assert await blob(blobs, "b/0") == content


@pytest.mark.parametrize("level", ["workspace", "folder", "own"])
async def test_nothing_is_written_through_a_link_of_the_upstream(level: str, tmp_path: Path, blobs: Blobs) -> None:
    """A link in place of one of our folders could otherwise redirect our writes to any place."""
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    folders = await work.prepare(MINE)
    outside = tmp_path / "outside"
    for name in ("in", "out"):
        (outside / name / THING).mkdir(parents=True)
    if level == "workspace":
        shutil.rmtree(os.path.join(work.root, MINE))
        os.symlink(outside, os.path.join(work.root, MINE))
    for folder in (folders.in_, folders.out):
        if level == "folder":
            os.rmdir(folder)
            os.symlink(outside / os.path.basename(folder), folder)
        elif level == "own":
            os.symlink(outside / os.path.basename(folder) / THING, os.path.join(folder, THING))
    for order in (Allocate(T, MINE, (THING,), "f"), Materialize(T, MINE, "b", THING, "f")):
        assert await work.carry_out(order) == StorageFailed(os.strerror(errno.ENOTDIR))
    assert [path for path in outside.rglob("*") if not path.is_dir()] == []


async def test_a_link_in_place_of_the_file_is_replaced(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    target = tmp_path / "target"
    target.write_bytes(SECRET)
    folder = Path((await work.prepare(MINE)).in_, THING)
    folder.mkdir()
    (folder / "f").symlink_to(target)
    assert isinstance(await work.carry_out(Materialize(T, MINE, "b", THING, "f")), Materialized)
    assert (folder / "f").read_bytes() == b"content"
    assert target.read_bytes() == SECRET


async def test_a_failed_placement_leaves_nothing(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await store(blobs, "b", b"content")
    folder = Path((await work.prepare(MINE)).in_, THING)
    (folder / "f" / "taken").mkdir(parents=True)
    answer = await work.carry_out(Materialize(T, MINE, "b", THING, "f"))
    assert answer == StorageFailed(os.strerror(errno.EISDIR))
    assert os.listdir(folder) == ["f"]


async def test_sweep_removes_a_workspace_and_nothing_it_links_to(
    tmp_path: Path, blobs: Blobs, caplog: pytest.LogCaptureFixture
) -> None:
    work = build(tmp_path, blobs)
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    Path(folders.tmp, "deep", "er").mkdir(parents=True)
    os.symlink(other.ws, os.path.join(folders.ws, "link"))
    Path(other.ws, "kept").write_bytes(b"kept")
    assert await work.carry_out(Sweep(MINE)) is None
    assert await work.carry_out(Sweep(MINE)) is None  # gone already
    assert os.listdir(work.root) == [OTHER]
    assert Path(other.ws, "kept").read_bytes() == b"kept"
    assert caplog.records == []
    # A link in a workspace's place is removed, not followed.
    os.symlink(os.path.join(work.root, OTHER), os.path.join(work.root, MINE))
    assert await work.carry_out(Sweep(MINE)) is None
    assert os.listdir(work.root) == [OTHER]
    assert Path(other.ws, "kept").read_bytes() == b"kept"
    # An obstacle is left in place, and logged.
    Path(work.root, MINE).write_bytes(b"")
    assert await work.carry_out(Sweep(MINE)) is None
    assert [record.getMessage().startswith("Sweep could not") for record in caplog.records] == [True]


def nest(folder: Path, depth: int) -> None:
    """Folders in one another, deeper than a path can name."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


async def test_sweep_removes_trees_of_any_shape(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = build(tmp_path, MemoryBlobs())
    folders = await work.prepare(MINE)
    nest(Path(folders.ws), 1500)
    for number in range(200):
        Path(folders.ws, f"file-{number}").touch()
        Path(folders.ws, f"folder-{number}", "inner").mkdir(parents=True)
    os.mkfifo(os.path.join(folders.ws, "fifo"))
    os.symlink(".", os.path.join(folders.ws, "loop"))
    await work.carry_out(Sweep(MINE))
    assert os.listdir(work.root) == os.listdir(tmp_path / "tmp") == []
    assert caplog.records == []


def test_a_tree_is_removed_however_deep(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    nest(tmp_path / "tree", 5000)
    remove_tree(str(tmp_path / "tree"))
    assert os.listdir(tmp_path) == []


def test_a_tree_that_its_owner_may_not_list_is_removed() -> None:
    is_root = os.geteuid() == 0  # permissions do not apply to root
    if is_root:
        os.seteuid(65534)
    try:
        folder = Path(tempfile.mkdtemp()).resolve()
        for name in ("unlisted", "unwritable"):
            (folder / "tree" / name / "inner").mkdir(parents=True)
            (folder / "tree" / name / "inner" / "f").touch()
        for path, mode in (("unlisted/inner", 0), ("unlisted", 0), ("unwritable/inner", 0o500), ("", 0o500)):
            (folder / "tree" / path).chmod(mode)
        remove_tree(str(folder / "tree"))
        assert os.listdir(folder) == []
        folder.rmdir()
    finally:
        if is_root:
            os.seteuid(0)


def test_a_tree_is_removed_as_far_as_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "stays").touch()
    (tmp_path / "tree" / "a" / "b" / "goes").touch()
    (tmp_path / "tree" / "goes").touch()
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int) -> None:
        if name == "stays":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        remove_tree(str(tmp_path / "tree"))
    assert [path.name for path in (tmp_path / "tree").rglob("*") if path.is_file()] == ["stays"]
    remove_tree(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()


# --- Taking files in ------------------------------------------------------------------------------------------------


async def test_files_are_taken_in(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    folders = await work.prepare(MINE)
    content = random.Random(4).randbytes(2_500_000)
    Path(folders.ws, "sub").mkdir()
    Path(folders.ws, "sub", "big.bin").write_bytes(content)
    Path(folders.tmp, "empty").write_bytes(b"")
    answer = await collect(
        work,
        "sub/../sub/big.bin",
        "absent",
        os.path.join(folders.tmp, "empty"),
        InlineSource(b"inline", "x.txt"),
        FileSource(("absent", "/etc/hostname", "sub", "sub/big.bin")),
        limit=2_500_000,
    )
    big = CollectedFile(
        path=os.path.join(folders.ws, "sub", "big.bin"),
        filename="big.bin",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        head=content[:512],
    )
    assert answer.files == (
        big,
        CollectedFile(problem="missing"),
        CollectedFile(
            path=os.path.join(folders.tmp, "empty"), filename="empty", sha256=hashlib.sha256(b"").hexdigest()
        ),
        CollectedFile(filename="x.txt", size_bytes=6, sha256=hashlib.sha256(b"inline").hexdigest(), head=b"inline"),
        big,
    )
    assert await blob_keys(blobs) == ["b/0", "b/2", "b/3", "b/4"]
    assert await blob(blobs, "b/0") == await blob(blobs, "b/4") == content
    assert await blob(blobs, "b/3") == b"inline"


async def test_relative_paths_start_from_the_servers_working_directory(tmp_path: Path, blobs: Blobs) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "shot.png").write_bytes(b"png")
    work = build(tmp_path, blobs, working_directory=str(outside), artifact_roots={"s": [str(outside)]})
    (file,) = (await collect(work, "shot.png")).files
    assert file.path == str(outside / "shot.png")
    # A root that depends on the session.
    placed = build(tmp_path, blobs, working_directory="{out}/sub")
    Path((await placed.prepare(MINE)).out, "sub").mkdir()
    Path(placed.folders(MINE).out, "sub", "shot.png").write_bytes(b"png")
    (file,) = (await collect(placed, "shot.png")).files
    assert file.path == os.path.join(placed.folders(MINE).out, "sub", "shot.png")
    # Another server has neither that working directory nor that root.
    answer = await collect(work, "shot.png", str(outside / "shot.png"), server="t")
    assert [file.problem for file in answer.files] == ["missing", "not permitted"]


async def test_what_is_outside_is_not_permitted_whether_it_exists_or_not(tmp_path: Path, blobs: Blobs) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (tmp_path / "outside-root").mkdir()
    (tmp_path / "outside-root" / "secret").write_bytes(SECRET)
    work = build(tmp_path, blobs, artifact_roots={"s": [str(tmp_path / "out")], "t": [str(outside)]})
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    Path(other.out, "secret").write_bytes(SECRET)
    Path(work.root, "state.sqlite3").write_bytes(SECRET)
    Path(work.root, MINE, "loose").write_bytes(SECRET)
    for candidate in (
        str(outside / "secret"),
        str(outside / "absent"),
        str(tmp_path / "outside-root" / "secret"),  # begins like a permitted root
        "/etc/passwd",
        "/",
        "/proc/self/environ",
        "../../../outside/secret",
        f"{folders.ws}/../../../outside/secret",
        f"../../{OTHER}/out/secret",
        os.path.join(other.out, "secret"),
        os.path.join(other.out, "absent"),
        "../../state.sqlite3",
        os.path.join(work.root, "state.sqlite3"),
        os.path.join(work.root, ".lock"),
        work.root,
        "../loose",
        "..",
    ):
        assert await problem(work, candidate) == "not permitted", candidate


async def test_private_paths_stay_private_inside_artifact_roots(tmp_path: Path, blobs: Blobs) -> None:
    """A root configured too widely still gives out neither the state nor another session's files."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "records.sqlite3").write_bytes(SECRET)
    (tmp_path / "records.sqlite3").write_bytes(SECRET)
    (tmp_path / "fine").write_bytes(b"fine")
    work = build(
        tmp_path,
        blobs,
        artifact_roots={"s": [str(tmp_path)]},
        private_paths=[str(state), str(tmp_path / "records.sqlite3")],
    )
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    Path(other.ws, "secret").write_bytes(SECRET)
    Path(folders.ws, "own").write_bytes(b"own")
    for path in (state / "records.sqlite3", tmp_path / "records.sqlite3", state, Path(other.ws, "secret")):
        assert await problem(work, str(path)) == "not permitted"
    answer = await collect(work, str(tmp_path / "fine"), "own")
    assert [file.problem for file in answer.files] == ["", ""]


async def test_links_are_resolved_and_then_judged(tmp_path: Path, blobs: Blobs) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    work = build(tmp_path, blobs)
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    Path(other.out, "secret").write_bytes(SECRET)
    Path(folders.out, "real").write_bytes(b"real")
    for name, target in {
        "file-out": tmp_path / "outside" / "secret",
        "folder-out": tmp_path / "outside",
        "relative-out": Path("../../../outside/secret"),
        "to-other": Path(other.out),
        "twice": Path("file-out"),
        "file-in": Path(folders.out, "real"),
        "folder-in": Path("../out"),
        "dangling": Path("absent"),
        "loop": Path("loop"),
    }.items():
        os.symlink(target, os.path.join(folders.ws, name))
    for candidate in ("file-out", "folder-out/secret", "relative-out", "to-other/secret", "twice"):
        assert await problem(work, candidate) == "not permitted", candidate
    assert await problem(work, "dangling") == "missing"
    assert (await problem(work, "loop")).startswith("not permitted")
    for candidate in ("file-in", "folder-in/real"):
        (file,) = (await collect(work, candidate)).files
        assert (file.path, file.filename) == (os.path.join(folders.out, "real"), "real")


async def test_a_long_chain_of_links_permits_nothing(tmp_path: Path) -> None:
    """Python's version decides whether resolving it exhausts the stack."""
    work = build(tmp_path, MemoryBlobs())
    folders = await work.prepare(MINE)
    for number in range(1500):
        os.symlink(f"link-{number + 1}", os.path.join(folders.ws, f"link-{number}"))
    assert await problem(work, "link-0") in ("not permitted: it leads through too many links", "missing")


async def test_a_workspace_folder_replaced_by_a_link_permits_nothing(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    Path(other.out, "secret").write_bytes(SECRET)
    os.rmdir(folders.out)
    os.symlink(other.out, folders.out)
    assert await problem(work, os.path.join(folders.out, "secret")) == "not permitted"


@pytest.mark.parametrize("swapped", ["file", "folder", "workspace", "fifo"])
@pytest.mark.parametrize("moment", ["judged", "looked at"])
async def test_what_is_swapped_after_it_was_judged_is_not_read(
    swapped: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker has two moments: between the check and the walk, and between looking at a file and opening it."""
    blobs = MemoryBlobs()
    work = build(tmp_path, blobs)
    outside = tmp_path / "outside"
    (outside / "ws" / "sub").mkdir(parents=True)
    (outside / "ws" / "sub" / "f").write_bytes(SECRET)
    folders = await work.prepare(MINE)
    Path(folders.ws, "sub").mkdir()
    target = Path(folders.ws, "sub", "f")
    target.write_bytes(b"innocent")
    swaps = []

    def swap() -> None:
        swaps.append(swapped)
        if swapped == "file":
            target.unlink()
            target.symlink_to(outside / "ws" / "sub" / "f")
        elif swapped == "folder":
            target.parent.rename(Path(folders.tmp, "sub"))
            target.parent.symlink_to(outside / "ws" / "sub")
        elif swapped == "workspace":
            os.rename(os.path.join(work.root, MINE), os.path.join(work.root, "elsewhere"))
            os.symlink(outside, os.path.join(work.root, MINE))
        else:
            target.unlink()
            os.mkfifo(target)

    if moment == "judged":
        monkeypatch.setattr("isthmus.app.disk.permissions.open_regular", after(swap, openat.open_regular))
    else:
        look = openat._check_regular
        calls = []

        def look_then_swap(found: os.stat_result, *, may_be_linked: bool) -> None:
            look(found, may_be_linked=may_be_linked)
            calls.append(found)
            if len(calls) == 1:
                swap()

        monkeypatch.setattr(openat, "_check_regular", look_then_swap)
    with anyio.fail_after(10):
        (file,) = (await collect(work, "sub/f")).files
    assert swaps == [swapped]
    if file.problem:
        assert await blob_keys(blobs) == []
    else:  # the folder was open already, so the checked file is read
        assert moment == "looked at"
        assert await blob(blobs, "b/0") == b"innocent"


def after(swap: Callable[[], None], function: Callable[..., object]) -> Callable[..., object]:
    def call(path: str, **options: bool) -> object:
        swap()
        return function(path, **options)

    return call


async def test_only_regular_files_are_taken(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs, artifact_roots={"s": ["/dev"]})
    folders = await work.prepare(MINE)
    os.mkfifo(os.path.join(folders.ws, "fifo"))
    Path(folders.ws, "folder").mkdir()
    Path(folders.ws, "file").write_bytes(b"file")
    with anyio.fail_after(10):
        assert await problem(work, "fifo") == "not permitted: not a regular file"
        assert await problem(work, "/dev/zero") == "not permitted: not a regular file"
    assert await problem(work, "folder") == "is a folder"
    assert await problem(work, ".") == "is a folder"
    assert await problem(work, "file/below") == "missing"


async def test_what_cannot_be_a_path_is_missing(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await work.prepare(MINE)
    for candidate in ("", "a\0b", "x" * 300, "~/x", "x" * (PATH_SIZE_MAX + 1), "a/" * 2000 + "b"):
        assert await problem(work, candidate) == "missing", candidate
    for candidate in ("\ud800", "\udcff"):
        assert await problem(work, candidate) == "not permitted: its name is not UTF-8"
    assert await problem(work) == "missing"
    assert await problem(work, "absent", "/etc/passwd", ".") == "not permitted"


async def test_sizes_are_bounded(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    folders = await work.prepare(MINE)
    with open(os.path.join(folders.ws, "sparse"), "wb") as file:
        file.truncate(1 << 40)
    Path(folders.ws, "ten").write_bytes(b"0123456789")
    assert await problem(work, "sparse") == f"too large: {1 << 40} bytes, at most {1 << 20}"
    assert await problem(work, "ten", limit=9) == "too large: 10 bytes, at most 9"
    answer = await collect(work, "ten", InlineSource(b"0123456789", "n"), InlineSource(b"0" * 11, "n"), limit=10)
    assert [file.problem for file in answer.files] == ["", "", "too large: 11 bytes, at most 10"]
    assert await blob_keys(blobs) == ["b/0", "b/1"]


async def test_files_of_one_order_share_the_remaining_space(tmp_path: Path, blobs: Blobs) -> None:
    """A file that is too large for the remaining space does not keep a smaller one out."""
    work = build(tmp_path, blobs)
    folders = await work.prepare(MINE)
    sizes = (6, 5, 4, 1)
    for size in sizes:
        Path(folders.ws, f"f{size}").write_bytes(b"x" * size)
    inline = InlineSource(data=b"yyyy", filename="inline")
    answer = await collect(work, *(f"f{size}" for size in sizes), inline, total=10)
    problems = ["", "too large: 5 bytes, at most 4", "", "too large: 1 bytes, at most 0"]
    assert [file.problem for file in answer.files] == [*problems, "too large: 4 bytes, at most 0"]


class MeddlingBlobs(MemoryBlobs):
    """Calls a function whenever a blob is begun; fails to commit the n-th."""

    def __init__(self, meddle: Callable[[], None] = lambda: None, *, fails_at: int = 0, error: Exception) -> None:
        super().__init__()
        self.begun = 0
        self._meddle = meddle
        self._fails_at = fails_at
        self._error = error

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncIterator[BlobWriter]:
        self._meddle()
        self.begun += 1
        async with super().create(key, size_max_bytes=size_max_bytes) as writer:
            yield writer
            if self.begun == self._fails_at:
                raise self._error


@pytest.mark.parametrize(("now", "kept"), [(b"0123456789abc", b"0123456789"), (b"0123", b"0123")])
async def test_a_file_that_changes_meanwhile_is_cut_at_its_length(now: bytes, kept: bytes, tmp_path: Path) -> None:
    path = tmp_path / "root" / MINE / "ws" / "f"
    blobs = MeddlingBlobs(lambda: path.write_bytes(now) and None, error=StorageError())
    work = build(tmp_path, blobs)
    await work.prepare(MINE)
    path.write_bytes(b"0123456789")
    (file,) = (await collect(work, "f", limit=10)).files
    assert (file.size_bytes, file.head) == (len(kept), kept)
    assert await blob(blobs, "b/0") == kept


def source(path: Path) -> FileSource:
    return FileSource((str(path),), stamp_of(path.stat()))


def removal(path: Path) -> Remove:
    return Remove(server="s", workspace=MINE, path=str(path), stamp=stamp_of(path.stat()))


async def test_a_file_is_taken_as_it_was_seen(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    path = Path((await work.prepare(MINE)).ws, "f")
    path.write_bytes(b"first")
    seen = source(path)
    (file,) = (await collect(work, seen)).files
    assert (file.problem, await blob(blobs, "b/0")) == ("", b"first")
    await work.carry_out(Discard("b/0"))
    for change in (
        lambda: path.write_bytes(b"longer"),
        lambda: os.utime(path, ns=(0, 5)),
        lambda: path.write_bytes(b""),
        lambda: replace(path, b"first", like=path.stat()),
    ):
        seen = source(path)
        change()
        assert (await collect(work, seen)).files == (CollectedFile(problem="unfinished"),)
        assert await blob_keys(blobs) == []


def replace(path: Path, content: bytes, *, like: os.stat_result) -> None:
    """Replaces a file by another one of the same name, size and time."""
    other = path.with_name("other")
    other.write_bytes(content)
    os.utime(other, ns=(like.st_atime_ns, like.st_mtime_ns))
    os.replace(other, path)


@pytest.mark.parametrize("content", [b"0123456789abc", b"0123", b"0123456780"])
async def test_a_file_that_is_written_while_it_is_copied_is_not_taken(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "root" / MINE / "ws" / "f"

    def write() -> None:
        path.write_bytes(content)
        os.utime(path, ns=(0, 7))  # two writes may come within one tick of the file system's clock

    blobs = MeddlingBlobs(write, error=StorageError())
    work = build(tmp_path, blobs)
    await work.prepare(MINE)
    path.write_bytes(b"0123456789")
    assert (await collect(work, source(path))).files == (CollectedFile(problem="unfinished"),)
    assert (await blob_keys(blobs), path.read_bytes()) == ([], content)


async def test_a_file_that_was_taken_in_can_be_taken_away(tmp_path: Path, blobs: Blobs) -> None:
    roots = tmp_path / "roots"
    roots.mkdir()
    work = build(tmp_path, blobs, artifact_roots={"s": [str(roots)]})
    folders = await work.prepare(MINE)
    for path in (Path(folders.ws, "a"), Path(folders.tmp, "b"), roots / "c"):
        path.write_bytes(b"x")
        assert await work.carry_out(removal(path)) is None
        assert not path.exists()


@pytest.mark.parametrize("change", ["written", "replaced", "link", "folder", "gone"])
async def test_what_is_another_file_by_then_is_not_removed(change: str, tmp_path: Path) -> None:
    """A file that took the name meanwhile is newer work."""
    work = build(tmp_path, MemoryBlobs())
    path = Path((await work.prepare(MINE)).ws, "f")
    outside = tmp_path / "outside"
    outside.write_bytes(b"content")
    path.write_bytes(b"content")
    order = removal(path)
    if change == "written":
        path.write_bytes(b"newer")
        os.utime(path, ns=(0, 7))
    elif change == "replaced":
        replace(path, b"content", like=path.stat())
    else:
        path.unlink()
    if change == "link":
        path.symlink_to(outside)
    elif change == "folder":
        path.mkdir()
    assert await work.carry_out(order) is None
    assert os.path.lexists(path) == (change != "gone")
    assert outside.read_bytes() == b"content"


@pytest.mark.parametrize("where", ["outside", "other session", "state"])
async def test_what_may_not_be_taken_may_not_be_removed(where: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    work = build(tmp_path, MemoryBlobs(), private_paths=[str(state)])
    await work.prepare(MINE)
    other = await work.prepare(OTHER)
    path = {"outside": tmp_path / "f", "other session": Path(other.ws, "f"), "state": state / "f"}[where]
    path.write_bytes(b"content")
    await work.carry_out(removal(path))
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("where", ["private", "blob", "workspace", "tmp", "too many"])
async def test_a_private_file_has_no_public_name(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard link that the server made to a private file is not taken, even where other hard links are."""
    state = tmp_path / "state" / "deep"
    state.mkdir(parents=True)
    blobs = FileBlobs(str(tmp_path / "blobs"))
    root = tmp_path / "extra"
    root.mkdir()
    roots = {"s": [str(root)]}
    private_paths = [str(tmp_path / "state"), str(tmp_path / "blobs")]
    work = build(tmp_path, blobs, artifact_roots=roots, hard_linked_roots=roots, private_paths=private_paths)
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    await store(blobs, "secret", SECRET)
    private = {
        "private": state / "key",
        "blob": Path(blobs.path_for("secret") or ""),
        "workspace": Path(other.ws, "f"),
        "tmp": Path(other.tmp, "f"),
        "too many": state / "key",
    }[where]
    if where != "blob":
        private.write_bytes(SECRET)
    Path(folders.out, "own").write_bytes(b"own")
    os.link(private, root / "public")
    os.link(os.path.join(folders.out, "own"), root / "own")
    if where == "too many":  # too many to search: then no file with two names is taken
        monkeypatch.setattr("isthmus.app.disk.permissions.PRIVATE_ENTRIES_MAX", 1)
    answer = await collect(work, str(root / "public"), str(root / "own"))
    assert [file.problem for file in answer.files] == ["not permitted", "not permitted" if where == "too many" else ""]


LINKED = (
    "not permitted: it has several names (hard links), which may lie elsewhere: copy it, or list its folder in the "
    "server's hard_linked_roots"
)


async def test_a_hard_link_leads_out_of_no_folder_for_which_it_is_not_allowed(tmp_path: Path, blobs: Blobs) -> None:
    """A server's own folders and its roots leak no file from elsewhere. An allowed root gives out its hard links."""
    elsewhere, plain, linked = tmp_path / "elsewhere", tmp_path / "plain", tmp_path / "linked"
    elsewhere.write_bytes(SECRET)
    for root in (plain, linked):
        root.mkdir()
        os.link(elsewhere, root / "f")
    allowed = {"s": [str(linked)]}
    work = build(tmp_path, blobs, artifact_roots={"s": [str(plain), str(linked)]}, hard_linked_roots=allowed)
    os.link(elsewhere, os.path.join((await work.prepare(MINE)).ws, "f"))
    answer = await collect(work, "f", str(plain / "f"), str(linked / "f"))
    assert [file.problem for file in answer.files] == [LINKED, LINKED, ""]
    await work.carry_out(removal(plain / "f"))
    assert (plain / "f").exists()
    assert elsewhere.read_bytes() == SECRET


@pytest.mark.parametrize("leaves", ["nothing", "another file", "a link again"])
async def test_a_hard_link_that_is_removed_once_it_is_open_leaks_nothing(
    leaves: str, tmp_path: Path, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that waits for the moment does not get a file from elsewhere, which then has one name."""
    work = build(tmp_path, blobs)
    elsewhere, link = tmp_path / "elsewhere", Path((await work.prepare(MINE)).ws, "f")
    elsewhere.write_bytes(SECRET)
    link.write_bytes(b"harmless")
    look = os.fstat
    calls: list[int] = []

    def swap(file: int) -> os.stat_result:
        """Removes the name before the first look at the open file, and puts something there after it."""
        if not os.path.samestat(look(file), elsewhere.stat()) or calls:
            return look(file)
        calls.append(file)
        link.unlink()
        found = look(file)
        if leaves == "another file":
            link.write_bytes(b"harmless")
        elif leaves == "a link again":
            os.link(elsewhere, link)
        return found

    opened = os.open

    def put(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Replaces the harmless file, after it was looked at, by the hard link."""
        if path == "f" and not calls:
            link.unlink()
            os.link(elsewhere, link)
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", put)
    monkeypatch.setattr(os, "fstat", swap)
    answer = await collect(work, "f")
    assert calls
    assert [file.problem for file in answer.files] == [LINKED if leaves == "a link again" else "missing"]


async def test_an_upload_replaces_a_hard_link_and_leaves_the_file_behind_it(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs)
    await work.prepare(MINE)
    await store(blobs, "b", b"upload")
    order = Materialize(T, MINE, "b", THING, "f")
    answer = await work.carry_out(order)
    assert isinstance(answer, Materialized)
    path, elsewhere = Path(answer.path), tmp_path / "elsewhere"
    elsewhere.write_bytes(SECRET)
    path.unlink()
    os.link(elsewhere, path)
    assert isinstance(await work.carry_out(order), Materialized)
    assert (path.read_bytes(), elsewhere.read_bytes()) == (b"upload", SECRET)
    assert not path.samefile(elsewhere)


async def test_no_temporary_folder_of_another_session_is_handed_out(tmp_path: Path, blobs: Blobs) -> None:
    work = build(tmp_path, blobs, artifact_roots={"s": [str(tmp_path)]})
    folders, other = await work.prepare(MINE), await work.prepare(OTHER)
    for tmp in (folders.tmp, other.tmp):
        Path(tmp, "f").write_bytes(b"f")
    answer = await collect(work, os.path.join(folders.tmp, "f"), os.path.join(other.tmp, "f"))
    assert [file.problem for file in answer.files] == ["", "not permitted"]


@pytest.mark.parametrize("fails_at", [1, 2, 3])
@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (StorageFull("the disk is full"), StorageFailed("the disk is full", is_full=True)),
        (StorageError("broken"), StorageFailed("broken")),
        (OSError(errno.ENOSPC, "full", "/secret"), StorageFailed(os.strerror(errno.ENOSPC), is_full=True)),
        (OSError(errno.EIO, "bad", "/secret"), StorageFailed(os.strerror(errno.EIO))),
        (TimeoutError(errno.ETIMEDOUT, "slow", "/secret"), StorageFailed(os.strerror(errno.ETIMEDOUT))),
    ],
)
async def test_a_collect_takes_all_or_nothing(
    fails_at: int, error: Exception, answer: StorageFailed, tmp_path: Path
) -> None:
    blobs = MeddlingBlobs(fails_at=fails_at, error=error)
    work = build(tmp_path, blobs)
    Path((await work.prepare(MINE)).ws, "f").write_bytes(b"content")
    inline = InlineSource(b"inline", "n")
    assert await work.carry_out(collecting(inline, "absent", "f", inline)) == answer
    assert await blob_keys(blobs) == []


class HangingBlobs(MemoryBlobs):
    """A store in which the second blob is never done."""

    def __init__(self) -> None:
        super().__init__()
        self.is_hanging = anyio.Event()

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncIterator[BlobWriter]:
        async with super().create(key, size_max_bytes=size_max_bytes) as writer:
            if await self.stat("b/0"):
                self.is_hanging.set()
                await anyio.sleep_forever()
            yield writer

    async def delete(self, key: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return await super().delete(key)


async def test_cancellation_passes_and_leaves_nothing(tmp_path: Path) -> None:
    blobs = HangingBlobs()
    work = build(tmp_path, blobs)
    ends: list[str] = []

    async def carry_out() -> None:
        try:
            await work.carry_out(collecting(InlineSource(b"1", "n"), InlineSource(b"2", "n")))
        except anyio.get_cancelled_exc_class():
            ends.append("cancelled")
            raise

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry_out)
            await blobs.is_hanging.wait()
            tasks.cancel_scope.cancel()
    assert ends == ["cancelled"]
    assert await blob_keys(blobs) == []


async def test_an_order_ends_at_the_time_limit(tmp_path: Path) -> None:
    blobs = HangingBlobs()
    work = build(tmp_path, blobs, limits=Limits(storage_timeout_s=0.01))
    with anyio.fail_after(10):
        answer = await work.carry_out(collecting(InlineSource(b"1", "n"), InlineSource(b"2", "n")))
    assert answer == StorageFailed("the storage took longer than 0.01 s")
    assert await blob_keys(blobs) == []


class BrokenRecords(MemoryRecords):
    async def delete(self, key: str) -> bool:
        raise StorageError("broken")


async def test_failures_without_an_answer_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = Workspaces(
        str(tmp_path / "root"),
        BrokenRecords(),
        MemoryBlobs(),
        artifact_roots={},
        working_directories={},
        limits=Limits(),
    )
    assert await work.carry_out(Forget("k")) is None
    assert [record.getMessage() for record in caplog.records] == ["Forget could not be carried out: broken"]


async def test_each_order_is_noted_with_its_time_and_whether_it_failed(tmp_path: Path) -> None:
    """A record or blob that is missing, or in another version, is no failure of the storage."""
    times = StoreTimes()
    work = Workspaces(
        str(tmp_path / "root"),
        BrokenRecords(),
        MemoryBlobs(),
        artifact_roots={},
        working_directories={},
        limits=Limits(),
        note=times.note,
    )
    for order in (Load(T, "k"), Save(T, "k", b"", if_version=7), Fetch(T, "b", 1), Forget("k"), Load(T, "k")):
        await work.carry_out(order)
    counts = {operation: sum(times.durations[operation].counts) for operation in OPERATIONS.values()}
    assert {operation: count for operation, count in counts.items() if count} == {
        ("records", "load"): 2,
        ("records", "save"): 1,
        ("blobs", "read"): 1,
        ("records", "delete"): 1,
    }
    assert {operation for operation, count in times.failures.items() if count} == {("records", "delete")}
    assert set(OPERATIONS) == set(get_args(StorageOrder))


class DefectiveRecords(MemoryRecords):
    async def load(self, key: str) -> None:
        raise RecursionError("a mistake of our own")

    async def delete(self, key: str) -> bool:
        raise RecursionError("a mistake of our own")


async def test_a_defect_is_an_answer_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The traceback is logged once."""
    work = build(tmp_path, MemoryBlobs())
    work._records = DefectiveRecords()
    assert await work.carry_out(Load(T, "k")) == StorageFailed("internal error")
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert await work.carry_out(Forget("k")) is None


# --- Start-up -------------------------------------------------------------------------------------------------------


async def test_start_up_removes_the_workspaces_of_earlier_runs(tmp_path: Path) -> None:
    """Records and blobs are left alone: they may be in stores that others use."""
    root = tmp_path / "root"
    (root / OTHER / "ws").mkdir(parents=True)
    (root / OTHER / "ws" / "f").write_bytes(b"left over")
    (root / "not-a-workspace").mkdir()
    blobs = MemoryBlobs()
    await store(blobs, "orphan", b"1")
    work = build(tmp_path, blobs)
    await work._records.save("up/1", json.dumps({"blob": "lost"}).encode())
    await work.start_up()
    assert sorted(os.listdir(root)) == ["not-a-workspace"]
    assert await blob_keys(blobs) == ["orphan"]
    assert await work._records.load("up/1") is not None
    await work.prepare(OTHER)


async def test_events_are_kept_apart_from_records_that_others_use(tmp_path: Path) -> None:
    """The events of a stream are removed there, too."""
    shared, own = MemoryRecords(), MemoryRecords()
    work = Workspaces(
        str(tmp_path / "root"),
        shared,
        MemoryBlobs(),
        own_records=own,
        artifact_roots={},
        working_directories={},
        limits=Limits(),
    )
    for key in ("event/s/1/1", "event/s/1/2", "event/s/2/1", "task/1"):
        assert isinstance(await work.carry_out(Save(T, key, b"{}")), Saved)
    loaded = await work.carry_out(Load(T, "event/s/1/1"))
    assert isinstance(loaded, Loaded)
    assert loaded.value == b"{}"
    await work.carry_out(ForgetAll("event/s/1/"))
    await work.carry_out(Forget("event/s/2/1"))
    assert [key async for key, _ in own.scan("")] == []
    assert [key async for key, _ in shared.scan("")] == ["task/1"]


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with holding(str(folder)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with pytest.raises(InUse, match="another process uses"), holding(str(folder)):
            raise AssertionError("held twice")
    with holding(str(folder)):
        pass


def test_a_child_does_not_hold_the_folder(tmp_path: Path) -> None:
    """Servers are started while the lock is held, and may outlive us."""
    with holding(str(tmp_path)):
        child = sleeping_child()
    try:
        with holding(str(tmp_path)):
            pass
    finally:
        child.communicate(b"\n", timeout=30)


def sleeping_child() -> subprocess.Popen[bytes]:
    """A running child process; descriptors that it must not inherit are closed in it."""
    pipe = subprocess.PIPE
    script = "print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, close_fds=False)
    assert child.stdout is not None
    assert child.stdout.readline() == b"\n"
    return child
