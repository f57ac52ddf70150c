"""Tests of surveys: they list the permitted files and nothing else, whatever the upstream makes of its folders."""

from __future__ import annotations

import fcntl
import os
import random
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from isthmus.app.disk import survey as surveying
from isthmus.app.disk import walk
from isthmus.app.disk.permissions import Permissions
from isthmus.app.disk.survey import stamp_of
from isthmus.app.disk.workspaces import Folders, Workspaces
from isthmus.core.base.ids import Ticket, mint
from isthmus.core.base.limits import Limits
from isthmus.core.base.storage import SeenFile, Sighting, Survey, Surveyed
from isthmus.storage.memory import MemoryBlobs, MemoryRecords

_entropy = random.Random(1).randbytes
MINE, OTHER = mint(_entropy), mint(_entropy)
T = Ticket(1)
NOW = 1_000_000.0
PATIENCE_S = 20.0


class World:
    """Workspaces of two sessions, and an artifact root."""

    def __init__(self, path: Path, *, roots: Sequence[str] = (), cwd: str | None = None) -> None:
        self.path = path
        self.work = Workspaces(
            str(path / "root"),
            MemoryRecords(),
            MemoryBlobs(),
            artifact_roots={"s": [*roots, str(path / "extra")]},
            working_directories={"s": cwd},
            limits=Limits(),
            private_paths=[str(path / "state")],
            tmp_root=str(path / "tmp"),
            now_unix=lambda: NOW,
        )
        for folder in ("extra", "state", "outside"):
            (path / folder).mkdir()
        self.mine: Folders = anyio.run(self.work.prepare, MINE)
        self.other: Folders = anyio.run(self.work.prepare, OTHER)
        self.ws = Path(self.mine.ws)

    def survey(self, *named: str | tuple[str, ...], areas: Sequence[str] = (), **bounds: int) -> Surveyed:
        spellings = tuple((one,) if isinstance(one, str) else one for one in named)
        order = Survey(T, "s", MINE, spellings, tuple(areas), **bounds)

        async def carry_out() -> Surveyed:
            with anyio.fail_after(PATIENCE_S):
                answer = await self.work.carry_out(order)
            assert isinstance(answer, Surveyed), answer
            return answer

        return anyio.run(carry_out)

    def sight(self, *spellings: str, **bounds: int) -> Sighting:
        (sighting,) = self.survey(spellings, **bounds).named
        return sighting

    def listed(self, *areas: str, **bounds: int) -> list[str]:
        return [os.path.relpath(file.path, self.ws.parent) for file in self.survey(areas=areas, **bounds).listed]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write(path: Path | str, content: bytes = b"content") -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def seen(path: Path | str, *, is_busy: bool = False) -> SeenFile:
    found = os.stat(path)
    changed_at = max(found.st_mtime, found.st_ctime)
    return SeenFile(str(path), found.st_size, stamp_of(found), changed_at, is_busy)


# --- Named files ----------------------------------------------------------------------------------------------------


def test_a_file_is_seen_as_it_is(world: World) -> None:
    path = write(world.ws / "sub" / "ä b.txt")
    expected = Sighting(files=(seen(path),))
    assert world.sight("sub/ä b.txt") == world.sight(str(path)) == world.sight("sub/../sub//ä b.txt") == expected
    assert expected.files[0].stamp == f"{path.stat().st_ino:x}-{path.stat().st_mtime_ns:x}-7"


def test_each_change_shows_in_the_stamp(world: World) -> None:
    path = write(world.ws / "f")
    stamps = [stamp_of(path.stat())]
    for change in (
        lambda: write(path, b"longer than before"),
        lambda: os.utime(path, ns=(0, 1)),
        lambda: os.replace(write(world.ws / "g", b"longer than before"), path),
    ):
        change()
        stamps.append(world.sight("f").files[0].stamp)
    assert len(set(stamps)) == 4


def test_a_file_that_was_renamed_was_changed_then(world: World) -> None:
    """A file that was finished elsewhere and then moved in has an old modification time, and is new all the same."""
    path = write(world.ws / "f.part")
    os.utime(path, (1, 1))
    path.rename(world.ws / "f")
    (file,) = world.sight("f").files
    assert file.changed_at_unix == (world.ws / "f").stat().st_ctime > 1


def test_the_first_spelling_that_is_there_is_meant(world: World) -> None:
    write(world.ws / "b"), write(world.ws / "c"), (world.ws / "empty").mkdir()
    assert world.sight("a", "b", "c").files[0].path == str(world.ws / "b")
    assert world.sight("a", "/etc/hostname", "empty", "c").files[0].path == str(world.ws / "c")
    assert world.sight("a", "/etc/hostname", "empty").problem == "not permitted"
    assert world.sight("a", "empty", "/etc/hostname") == Sighting("an empty folder", is_folder=True)
    assert world.sight("a", "") == world.sight() == Sighting("missing")


def test_several_are_answered_in_order(world: World) -> None:
    write(world.ws / "b")
    problems = [sighting.problem for sighting in world.survey("a", "b", "/etc/hostname", ("x", "b")).named]
    assert problems == ["missing", "", "not permitted", ""]


def test_relative_paths_start_where_the_server_runs(tmp_path: Path) -> None:
    world = World(tmp_path, cwd="{out}")
    write(Path(world.mine.out, "f")), write(world.ws / "g")
    assert [one.problem for one in world.survey("f", "g", "../ws/g").named] == ["", "missing", ""]


def test_all_that_may_be_taken_may_be_looked_at(world: World) -> None:
    for folder in (world.mine.ws, world.mine.in_, world.mine.out, world.mine.tmp, str(world.path / "extra")):
        path = write(Path(folder, "f"))
        assert world.sight(str(path)).files == (seen(path),)


def test_files_outside_are_not_revealed(world: World) -> None:
    """The survey reveals no content of files outside, and of private ones, or those of other users, not that they are
    there."""
    path = world.path
    for folder in (world.other.ws, world.other.tmp, path / "state", path / "outside"):
        write(Path(folder, "f"))
        for name in ("f", "absent", "."):
            sighting = world.sight(os.path.join(folder, name))
            is_left = str(folder).endswith("outside") and name != "absent"
            assert (sighting.problem, sighting.left is not None) == ("not permitted", is_left)
    for name in ("..", "/proc/self/environ", f"../../{OTHER}/ws/f", str(world.work.root)):
        assert world.sight(name) == Sighting("not permitted")
    for name in ("link", "folder/f"):
        (world.ws / name.split("/")[0]).symlink_to(path / "outside" / ("" if "/" in name else "f"))
        assert world.sight(name).problem == "not permitted"
    (world.ws / "loop").symlink_to("loop")
    assert world.sight("loop").problem


def test_what_was_written_outside_is_seen_and_not_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write(world.path / "outside" / "f"))
    assert world.sight(path) == Sighting("not permitted", left=seen(path))
    folder = world.sight(os.path.dirname(path))
    assert folder.is_folder
    assert folder.left is not None
    assert folder.left.path == os.path.dirname(path)
    os.mkfifo(world.path / "outside" / "fifo")
    assert world.sight(str(world.path / "outside" / "fifo")).left is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert world.sight(path) == Sighting("not permitted")


def test_a_tilde_is_a_folder_or_the_home_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.path / "outside"))
    path = str(write(world.path / "outside" / "f"))
    assert world.sight("~/f") == Sighting("not permitted", left=seen(path))
    assert world.sight("~/absent").left is None
    folder = world.sight("~")
    assert folder.left is not None
    assert folder.left.path == str(world.path / "outside")
    here = write(world.ws / "~" / "f")
    assert world.sight("~/f") == Sighting(files=(seen(here),))


def test_a_link_is_seen_as_what_it_leads_to(world: World) -> None:
    path = write(Path(world.mine.out, "real"))
    (world.ws / "link").symlink_to(path)
    assert world.sight("link") == Sighting(files=(seen(path),))


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_is_no_file_is_not_touched(kind: str, world: World, tmp_path: Path) -> None:
    """The survey does not wait for a writer, and opens no device."""
    path = world.ws / kind
    if kind == "device":
        if os.geteuid():
            pytest.skip("only root makes devices")
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        os.mkfifo(path)
    write(world.ws / "f")
    assert world.sight(kind) == Sighting("not permitted: not a regular file")
    assert world.listed("ws") == ["ws/f"]
    assert [file.path for file in world.sight(".").files] == [str(world.ws / "f")]


def test_what_cannot_be_a_path_is_missing(world: World) -> None:
    for name in ("a\0b", "x" * 300, "x" * 5000, "a/" * 2000 + "b", "~/x"):
        assert world.sight(name) == Sighting("missing"), name[:20]
    assert world.sight("\ud800") == Sighting("not permitted: its name is not UTF-8")


def test_a_hard_link_is_not_listed(world: World) -> None:
    os.link(write(world.path / "state" / "key"), world.ws / "key")
    os.link(write(Path(world.other.ws, "f")), world.ws / "other")
    os.link(write(Path(world.mine.out, "own")), world.ws / "own")
    write(world.ws / "single")
    for one in world.survey("key", "other", "own").named:
        assert one.problem.startswith("not permitted: it has several names (hard links)")
    assert world.listed("ws") == ["ws/single"]
    world.work._now_unix = lambda: (world.ws / "single").stat().st_ctime + surveying.BUSY_WITHIN_S + 1
    assert world.listed("ws") == ["ws/single"], "old files are not opened any more"


# --- Folders --------------------------------------------------------------------------------------------------------


def test_a_folder_stands_for_the_files_below_it(world: World) -> None:
    for name in ("d/b", "d/a/z", "d/.hidden", "d/a/deep/er/f", "e"):
        write(world.ws / name)
    sighting = world.sight("d")
    names = [os.path.relpath(file.path, world.ws) for file in sighting.files]
    assert names == ["d/.hidden", "d/a/deep/er/f", "d/a/z", "d/b"]
    assert (sighting.is_folder, sighting.is_cut, sighting.problem) == (True, False, "")


def test_a_folder_with_many_files_is_cut(world: World) -> None:
    for number in range(9):
        write(world.ws / "d" / str(number))
    for bound, is_cut in ((8, True), (9, False)):
        sighting = world.sight("d", folder_max=bound)
        assert [os.path.basename(file.path) for file in sighting.files] == [str(number) for number in range(bound)]
        assert sighting.is_cut is is_cut
    assert world.sight("d", entries_max=3).is_cut
    assert len(world.sight("d", entries_max=3).files) == 3


def test_a_folder_without_files_is_empty(world: World) -> None:
    (world.ws / "d" / "e").mkdir(parents=True)
    (world.ws / "d" / "link").symlink_to("/etc/hostname")
    assert world.sight("d") == Sighting("an empty folder", is_folder=True)


def test_private_folders_in_an_artifact_root_are_passed_over(tmp_path: Path) -> None:
    """An artifact root may contain everything private, the sessions' folders too."""
    world = World(tmp_path, roots=[str(tmp_path)])
    write(tmp_path / "state" / "key"), write(Path(world.other.ws, "f")), write(Path(world.other.tmp, "f"))
    write(tmp_path / "fine" / "f")
    assert [file.path for file in world.sight(str(tmp_path)).files] == [str(tmp_path / "fine" / "f")]


# --- Areas ----------------------------------------------------------------------------------------------------------


def test_areas_are_listed_whole(world: World) -> None:
    for area, folder in (("ws", world.mine.ws), ("in", world.mine.in_), ("out", world.mine.out)):
        for name in (f"{area}.txt", ".hidden", "sub/.git/config", "node_modules/x"):
            write(Path(folder, name))
    write(Path(world.mine.tmp, "never"))
    expected = {
        area: [f"{area}/{name}" for name in sorted((".hidden", f"{area}.txt", "node_modules/x", "sub/.git/config"))]
        for area in ("in", "out", "ws")
    }
    for area, names in expected.items():
        assert world.listed(area) == names
    assert world.listed("ws", "out", "in") == [name for area in ("in", "out", "ws") for name in expected[area]]
    for file in world.survey(areas=("ws",)).listed:
        assert file == seen(Path(file.path))


def test_areas_that_are_not_there_are_empty(world: World) -> None:
    os.rmdir(world.ws)
    assert world.survey(areas=("ws", "in")) == Surveyed()
    world.ws.write_bytes(b"a file instead")
    assert world.survey(areas=("ws",)) == Surveyed()
    world.ws.unlink()
    world.ws.symlink_to(world.path / "outside")
    write(world.path / "outside" / "f")
    assert world.survey(areas=("ws",)) == Surveyed()


def test_entries_are_bounded_whatever_they_are(world: World) -> None:
    for number in range(5):
        write(world.ws / f"f{number}")
        (world.ws / f"d{number}").mkdir()
        (world.ws / f"l{number}").symlink_to("f0")
    for bound in range(15):
        surveyed = world.survey(areas=("ws",), entries_max=bound)
        assert surveyed.is_cut and len(surveyed.listed) <= bound
    surveyed = world.survey(areas=("ws",), entries_max=15)
    assert (surveyed.is_cut, len(surveyed.listed)) == (False, 5)


def test_upper_levels_come_first_when_there_is_too_much(world: World) -> None:
    for number in range(20):
        write(world.ws / "a" / "b" / f"deep{number}")
    write(world.ws / "top")
    assert world.listed("ws", entries_max=10)[-1] == "ws/top"


def test_thousands_are_listed(world: World) -> None:
    for number in range(2000):
        os.close(os.open(world.ws / f"f{number:04}", os.O_CREAT | os.O_WRONLY))
    assert world.listed("ws") == [f"ws/f{number:04}" for number in range(2000)]
    assert len(world.listed("ws", entries_max=1000)) == 1000


def nest(folder: Path, depth: int) -> None:
    """Folders in one another, each with a file, deeper than a path can name."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def test_depth_is_bounded(world: World) -> None:
    nest(world.ws, walk.DEPTH_MAX)
    surveyed = world.survey(areas=("ws",))
    assert (surveyed.is_cut, len(surveyed.listed)) == (False, walk.DEPTH_MAX)
    nest(world.ws.joinpath(*"d" * walk.DEPTH_MAX), 2)
    surveyed = world.survey(areas=("ws",))
    assert (surveyed.is_cut, len(surveyed.listed)) == (True, walk.DEPTH_MAX + 1)


def test_paths_too_long_to_be_opened_are_passed_over(world: World) -> None:
    inner = os.open(world.ws, os.O_RDONLY)
    for _ in range(20):
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
        os.mkdir("d" * 250, dir_fd=inner)
        outer, inner = inner, os.open("d" * 250, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    paths = [file.path for file in world.survey(areas=("ws",)).listed]
    assert walk.PATH_SIZE_MAX - 252 < max(map(len, paths)) <= walk.PATH_SIZE_MAX
    assert world.survey(*paths).named == tuple(Sighting(files=(seen(Path(path)),)) for path in sorted(paths))


def test_names_that_are_not_utf8_are_passed_over(world: World) -> None:
    """JSON cannot carry such names."""
    folder = os.fsencode(world.ws)
    os.mkdir(folder + b"/d\xff")
    for name in (b"f\xff", b"d\xff/f", b"f"):
        os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY))
    assert world.listed("ws") == ["ws/f"]
    assert [file.path for file in world.sight(".").files] == [str(world.ws / "f")]
    assert world.sight(os.fsdecode(b"f\xff")) == Sighting("not permitted: its name is not UTF-8")


def test_what_may_not_be_read_is_passed_over() -> None:
    is_root = os.geteuid() == 0  # permissions do not apply to root
    if is_root:
        os.seteuid(65534)
    try:
        with tempfile.TemporaryDirectory() as name:
            world = World(Path(name).resolve())
            for name in ("open/f", "closed/f", "closed/inner/f", "f"):
                write(world.ws / name)
            (world.ws / "f").chmod(0)
            (world.ws / "closed").chmod(0)
            try:
                assert world.listed("ws") == ["ws/open/f"]
                for name in ("f", "closed", "closed/f"):
                    assert world.sight(name).problem == "not permitted: Permission denied"
            finally:
                (world.ws / "closed").chmod(0o700)
    finally:
        if is_root:
            os.seteuid(0)


# --- Changes meanwhile ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", ["file", "folder", "workspace", "fifo", "gone"])
@pytest.mark.parametrize("moment", ["listed", "opened"])
def test_swapped_files_are_not_listed(swapped: str, moment: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap happens before a folder is listed, or before one of its files is opened."""
    outside = write(world.path / "outside" / "ws" / "sub" / "f", b"secret of somebody else")
    target = write(world.ws / "sub" / "f")
    swaps: list[str] = []

    def swap() -> None:
        if swaps:
            return
        swaps.append(swapped)
        if swapped == "folder":
            target.parent.rename(Path(world.mine.tmp, "sub"))
            target.parent.symlink_to(outside.parent)
        elif swapped == "workspace":
            os.rename(world.ws.parent, os.path.join(world.work.root, "elsewhere"))
            os.symlink(world.path / "outside", world.ws.parent)
        else:
            target.unlink()
            if swapped == "file":
                target.symlink_to(outside)
            elif swapped == "fifo":
                os.mkfifo(target)

    if moment == "listed":
        scan = walk.scanning

        def scanning(path: str) -> object:
            if path.endswith("/sub"):
                swap()
            return scan(path)

        monkeypatch.setattr(walk, "scanning", scanning)
    else:
        real = Permissions.open

        def open_later(reach: Permissions, path: str) -> object:
            swap()
            return real(reach, path)

        monkeypatch.setattr(Permissions, "open", open_later)
    surveyed = world.survey(areas=("ws",))
    assert swaps == [swapped]
    assert surveyed.listed == ()


def test_folders_that_race_are_never_followed_out(world: World) -> None:
    """A thread swaps a folder for a link and back, as fast as it can."""
    write(world.path / "outside" / "secret")
    folder, aside = world.ws / "d", world.ws / "aside"
    write(folder / "fine")
    is_over = threading.Event()

    def race() -> None:
        while not is_over.is_set():
            folder.rename(aside)
            folder.symlink_to(world.path / "outside")
            folder.unlink()
            aside.rename(folder)

    racer = threading.Thread(target=race)
    racer.start()
    try:
        found = [file.path for _ in range(40) for file in world.survey("d", "d/secret", areas=("ws",)).listed]
        named = [one for _ in range(40) for one in world.survey("d", "d/secret").named]
    finally:
        is_over.set()
        racer.join(PATIENCE_S)
    assert {os.path.basename(path) for path in found} <= {"fine"}
    assert {os.path.basename(file.path) for one in named for file in one.files} <= {"fine"}


# --- Writers --------------------------------------------------------------------------------------------------------

LEASES = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="this system has no leases")


@LEASES
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_that_is_written_to_is_busy(flags: int, world: World) -> None:
    path = write(world.ws / "f")
    writer = os.open(path, flags)
    try:
        assert world.sight("f") == Sighting(files=(seen(path, is_busy=True),))
        assert world.survey(areas=("ws",)).listed == (seen(path, is_busy=True),)
    finally:
        os.close(writer)
    with open(path, "rb"):  # a reader does not make a file busy
        assert world.sight("f") == Sighting(files=(seen(path),))


@LEASES
def test_another_process_makes_it_busy_too(world: World) -> None:
    path = write(world.ws / "f")
    script = (
        "import sys; f = open(sys.argv[1], 'ab'); print(flush=True); input(); f.close(); print(flush=True); input()"
    )
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=pipe, stdout=pipe)
    assert child.stdin is not None and child.stdout is not None
    states = []
    try:
        for _ in range(2):
            assert child.stdout.readline() == b"\n"
            states.append(world.sight("f").files[0].is_busy)
            child.stdin.write(b"\n")
            child.stdin.flush()
    finally:
        child.communicate(timeout=PATIENCE_S)
    assert states == [True, False]


@LEASES
def test_asking_leaves_no_lease_and_disturbs_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that opens the file during the survey waits until it is done, and no process is killed by a
    signal."""
    path = write(world.ws / "f")
    real = fcntl.fcntl
    opened = threading.Event()

    def open_it() -> None:
        os.close(os.open(path, os.O_WRONLY))
        opened.set()

    opener = threading.Thread(target=open_it)
    held: list[bool] = []

    def fcntl_slowly(file: int, command: int, argument: int) -> object:
        result = real(file, command, argument)
        if (command, argument) == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
            opener.start()
            held.append(not opened.wait(0.05))
        return result

    monkeypatch.setattr(fcntl, "fcntl", fcntl_slowly)
    assert world.sight("f").files[0].is_busy is False
    assert held == [True]
    assert opened.wait(PATIENCE_S)
    opener.join()
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # refused while there is a lease


def test_without_leases_nothing_is_busy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fcntl, "F_SETLEASE", raising=False)
    with open(write(world.ws / "f"), "ab"):
        assert world.sight("f").files[0].is_busy is False


def test_old_files_are_listed_without_being_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(world.ws / "f")
    opened: list[str] = []
    real = Permissions.open

    def open_and_say(reach: Permissions, path: str) -> object:
        opened.append(path)
        return real(reach, path)

    monkeypatch.setattr(Permissions, "open", open_and_say)
    changed_at = path.stat().st_ctime
    for now, expected in ((changed_at + surveying.BUSY_WITHIN_S - 1, [str(path)]), (changed_at + 601, [])):
        opened.clear()
        world.work._now_unix = lambda now=now: now  # type: ignore[misc]
        assert world.survey(areas=("ws",)).listed == (seen(path),)
        assert opened == expected
