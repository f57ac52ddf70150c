"""A survey tells of what may be taken in, and of nothing else, whatever the upstream makes of its folders."""

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
from isthmus.app.disk.permissions import Reach
from isthmus.app.disk.survey import stamp_of
from isthmus.app.disk.workspaces import Folders, Workspaces
from isthmus.core.base.effects import SeenFile, Sighting, Survey, Surveyed
from isthmus.core.base.ids import Ticket, mint
from isthmus.core.base.limits import Limits
from isthmus.storage.memory import MemoryBlobs, MemoryRecords

_entropy = random.Random(1).randbytes
MINE, OTHER = mint(_entropy), mint(_entropy)
T = Ticket(1)
NOW = 1_000_000.0
PATIENCE_S = 20.0


class Ground:
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
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def write(path: Path | str, content: bytes = b"content") -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def seen(path: Path, *, is_busy: bool = False) -> SeenFile:
    found = path.stat()
    changed_at = max(found.st_mtime, found.st_ctime)
    return SeenFile(str(path), found.st_size, stamp_of(found), changed_at, is_busy)


# --- What is named --------------------------------------------------------------------------------------------------


def test_a_file_is_seen_as_it_is(ground: Ground) -> None:
    path = write(ground.ws / "sub" / "ä b.txt")
    expected = Sighting(files=(seen(path),))
    assert ground.sight("sub/ä b.txt") == ground.sight(str(path)) == ground.sight("sub/../sub//ä b.txt") == expected
    assert expected.files[0].stamp == f"{path.stat().st_ino:x}-{path.stat().st_mtime_ns:x}-7"


def test_each_change_shows_in_the_stamp(ground: Ground) -> None:
    path = write(ground.ws / "f")
    stamps = [stamp_of(path.stat())]
    for change in (
        lambda: write(path, b"longer than before"),
        lambda: os.utime(path, ns=(0, 1)),
        lambda: os.replace(write(ground.ws / "g", b"longer than before"), path),
    ):
        change()
        stamps.append(ground.sight("f").files[0].stamp)
    assert len(set(stamps)) == 4


def test_a_file_that_was_renamed_was_changed_then(ground: Ground) -> None:
    """What was finished elsewhere and then moved in has an old content, and is new all the same."""
    path = write(ground.ws / "f.part")
    os.utime(path, (1, 1))
    path.rename(ground.ws / "f")
    (file,) = ground.sight("f").files
    assert file.changed_at_unix == (ground.ws / "f").stat().st_ctime > 1


def test_the_first_spelling_that_is_there_is_meant(ground: Ground) -> None:
    write(ground.ws / "b"), write(ground.ws / "c"), (ground.ws / "empty").mkdir()
    assert ground.sight("a", "b", "c").files[0].path == str(ground.ws / "b")
    assert ground.sight("a", "/etc/hostname", "empty", "c").files[0].path == str(ground.ws / "c")
    assert ground.sight("a", "/etc/hostname", "empty") == Sighting("not permitted")
    assert ground.sight("a", "empty", "/etc/hostname") == Sighting("an empty folder", is_folder=True)
    assert ground.sight("a", "") == ground.sight() == Sighting("missing")


def test_several_are_answered_in_order(ground: Ground) -> None:
    write(ground.ws / "b")
    problems = [sighting.problem for sighting in ground.survey("a", "b", "/etc/hostname", ("x", "b")).named]
    assert problems == ["missing", "", "not permitted", ""]


def test_relative_paths_start_where_the_server_runs(tmp_path: Path) -> None:
    ground = Ground(tmp_path, cwd="{out}")
    write(Path(ground.mine.out, "f")), write(ground.ws / "g")
    assert [one.problem for one in ground.survey("f", "g", "../ws/g").named] == ["", "missing", ""]


def test_all_that_may_be_taken_may_be_looked_at(ground: Ground) -> None:
    for folder in (ground.mine.ws, ground.mine.in_, ground.mine.out, ground.mine.tmp, str(ground.path / "extra")):
        path = write(Path(folder, "f"))
        assert ground.sight(str(path)).files == (seen(path),)


def test_nothing_is_told_of_what_is_outside(ground: Ground) -> None:
    """Neither what is there, nor whether it is."""
    path = ground.path
    for folder in (ground.other.ws, ground.other.tmp, path / "state", path / "outside"):
        write(Path(folder, "f"))
        for name in ("f", "absent", "."):
            assert ground.sight(os.path.join(folder, name)) == Sighting("not permitted")
    for name in ("/", "/etc", "/proc/self/environ", "..", f"../../{OTHER}/ws/f", str(ground.work.root)):
        assert ground.sight(name) == Sighting("not permitted")
    for name in ("link", "folder/f"):
        (ground.ws / name.split("/")[0]).symlink_to(path / "outside" / ("" if "/" in name else "f"))
        assert ground.sight(name) == Sighting("not permitted")
    (ground.ws / "loop").symlink_to("loop")
    assert ground.sight("loop").problem


def test_a_link_is_seen_as_what_it_leads_to(ground: Ground) -> None:
    path = write(Path(ground.mine.out, "real"))
    (ground.ws / "link").symlink_to(path)
    assert ground.sight("link") == Sighting(files=(seen(path),))


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_is_no_file_is_not_touched(kind: str, ground: Ground, tmp_path: Path) -> None:
    """Nobody waits for a writer, and no device is opened."""
    path = ground.ws / kind
    if kind == "device":
        if os.geteuid():
            pytest.skip("only root makes devices")
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        os.mkfifo(path)
    write(ground.ws / "f")
    assert ground.sight(kind) == Sighting("not permitted: not a regular file")
    assert ground.listed("ws") == ["ws/f"]
    assert [file.path for file in ground.sight(".").files] == [str(ground.ws / "f")]


def test_what_cannot_be_a_path_is_missing(ground: Ground) -> None:
    for name in ("a\0b", "x" * 300, "x" * 5000, "a/" * 2000 + "b", "~/x"):
        assert ground.sight(name) == Sighting("missing"), name[:20]
    assert ground.sight("\ud800") == Sighting("not permitted: its name is not UTF-8")


def test_a_hard_link_to_a_private_file_is_not_told_of(ground: Ground) -> None:
    os.link(write(ground.path / "state" / "key"), ground.ws / "key")
    os.link(write(Path(ground.other.ws, "f")), ground.ws / "other")
    os.link(write(Path(ground.mine.out, "own")), ground.ws / "own")
    assert [one.problem for one in ground.survey("key", "other", "own").named] == ["not permitted"] * 2 + [""]
    assert ground.listed("ws") == ["ws/own"]
    for name in ("key", "other", "own"):  # nor once it is old and not opened any more
        os.utime(ground.ws / name, (1, 1))
    assert ground.listed("ws") == ["ws/own"]


# --- Folders --------------------------------------------------------------------------------------------------------


def test_a_folder_stands_for_the_files_below_it(ground: Ground) -> None:
    for name in ("d/b", "d/a/z", "d/.hidden", "d/a/deep/er/f", "e"):
        write(ground.ws / name)
    sighting = ground.sight("d")
    names = [os.path.relpath(file.path, ground.ws) for file in sighting.files]
    assert names == ["d/.hidden", "d/a/deep/er/f", "d/a/z", "d/b"]
    assert (sighting.is_folder, sighting.is_cut, sighting.problem) == (True, False, "")


def test_a_folder_with_many_files_is_cut(ground: Ground) -> None:
    for number in range(9):
        write(ground.ws / "d" / str(number))
    for bound, is_cut in ((8, True), (9, False)):
        sighting = ground.sight("d", folder_max=bound)
        assert [os.path.basename(file.path) for file in sighting.files] == [str(number) for number in range(bound)]
        assert sighting.is_cut is is_cut
    assert ground.sight("d", entries_max=3).is_cut
    assert len(ground.sight("d", entries_max=3).files) == 3


def test_a_folder_without_files_is_empty(ground: Ground) -> None:
    (ground.ws / "d" / "e").mkdir(parents=True)
    (ground.ws / "d" / "link").symlink_to("/etc/hostname")
    assert ground.sight("d") == Sighting("an empty folder", is_folder=True)


def test_private_folders_in_an_artifact_root_are_passed_over(tmp_path: Path) -> None:
    """A root that contains all that is private, the sessions' folders too."""
    ground = Ground(tmp_path, roots=[str(tmp_path)])
    write(tmp_path / "state" / "key"), write(Path(ground.other.ws, "f")), write(Path(ground.other.tmp, "f"))
    write(tmp_path / "fine" / "f")
    assert [file.path for file in ground.sight(str(tmp_path)).files] == [str(tmp_path / "fine" / "f")]


# --- Areas ----------------------------------------------------------------------------------------------------------


def test_areas_are_listed_whole(ground: Ground) -> None:
    for area, folder in (("ws", ground.mine.ws), ("in", ground.mine.in_), ("out", ground.mine.out)):
        for name in (f"{area}.txt", ".hidden", "sub/.git/config", "node_modules/x"):
            write(Path(folder, name))
    write(Path(ground.mine.tmp, "never"))
    expected = {
        area: [f"{area}/{name}" for name in sorted((".hidden", f"{area}.txt", "node_modules/x", "sub/.git/config"))]
        for area in ("in", "out", "ws")
    }
    for area, names in expected.items():
        assert ground.listed(area) == names
    assert ground.listed("ws", "out", "in") == [name for area in ("in", "out", "ws") for name in expected[area]]
    for file in ground.survey(areas=("ws",)).listed:
        assert file == seen(Path(file.path))


def test_areas_that_are_not_there_are_empty(ground: Ground) -> None:
    os.rmdir(ground.ws)
    assert ground.survey(areas=("ws", "in")) == Surveyed()
    ground.ws.write_bytes(b"a file instead")
    assert ground.survey(areas=("ws",)) == Surveyed()
    ground.ws.unlink()
    ground.ws.symlink_to(ground.path / "outside")
    write(ground.path / "outside" / "f")
    assert ground.survey(areas=("ws",)) == Surveyed()


def test_entries_are_bounded_whatever_they_are(ground: Ground) -> None:
    for number in range(5):
        write(ground.ws / f"f{number}")
        (ground.ws / f"d{number}").mkdir()
        (ground.ws / f"l{number}").symlink_to("f0")
    for bound in range(15):
        surveyed = ground.survey(areas=("ws",), entries_max=bound)
        assert surveyed.is_cut and len(surveyed.listed) <= bound
    surveyed = ground.survey(areas=("ws",), entries_max=15)
    assert (surveyed.is_cut, len(surveyed.listed)) == (False, 5)


def test_upper_levels_come_first_when_there_is_too_much(ground: Ground) -> None:
    for number in range(20):
        write(ground.ws / "a" / "b" / f"deep{number}")
    write(ground.ws / "top")
    assert ground.listed("ws", entries_max=10)[-1] == "ws/top"


def test_thousands_are_listed(ground: Ground) -> None:
    for number in range(2000):
        os.close(os.open(ground.ws / f"f{number:04}", os.O_CREAT | os.O_WRONLY))
    assert ground.listed("ws") == [f"ws/f{number:04}" for number in range(2000)]
    assert len(ground.listed("ws", entries_max=1000)) == 1000


def nest(folder: Path, depth: int) -> None:
    """Folders in one another, each with a file, deeper than a path can say."""
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=inner)
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def test_depth_is_bounded(ground: Ground) -> None:
    nest(ground.ws, walk.DEPTH_MAX)
    surveyed = ground.survey(areas=("ws",))
    assert (surveyed.is_cut, len(surveyed.listed)) == (False, walk.DEPTH_MAX)
    nest(ground.ws.joinpath(*"d" * walk.DEPTH_MAX), 2)
    surveyed = ground.survey(areas=("ws",))
    assert (surveyed.is_cut, len(surveyed.listed)) == (True, walk.DEPTH_MAX + 1)


def test_paths_too_long_to_be_opened_are_passed_over(ground: Ground) -> None:
    inner = os.open(ground.ws, os.O_RDONLY)
    for _ in range(20):
        os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
        os.mkdir("d" * 250, dir_fd=inner)
        outer, inner = inner, os.open("d" * 250, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    paths = [file.path for file in ground.survey(areas=("ws",)).listed]
    assert walk.PATH_SIZE_MAX - 252 < max(map(len, paths)) <= walk.PATH_SIZE_MAX
    assert ground.survey(*paths).named == tuple(Sighting(files=(seen(Path(path)),)) for path in sorted(paths))


def test_names_that_are_not_utf8_are_passed_over(ground: Ground) -> None:
    """They cannot be said in an answer."""
    folder = os.fsencode(ground.ws)
    os.mkdir(folder + b"/d\xff")
    for name in (b"f\xff", b"d\xff/f", b"f"):
        os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY))
    assert ground.listed("ws") == ["ws/f"]
    assert [file.path for file in ground.sight(".").files] == [str(ground.ws / "f")]
    assert ground.sight(os.fsdecode(b"f\xff")) == Sighting("not permitted: its name is not UTF-8")


def test_what_may_not_be_read_is_passed_over() -> None:
    is_root = os.geteuid() == 0  # whom permissions do not hold back
    if is_root:
        os.seteuid(65534)
    try:
        with tempfile.TemporaryDirectory() as name:
            ground = Ground(Path(name).resolve())
            for name in ("open/f", "closed/f", "closed/inner/f", "f"):
                write(ground.ws / name)
            (ground.ws / "f").chmod(0)
            (ground.ws / "closed").chmod(0)
            try:
                assert ground.listed("ws") == ["ws/open/f"]
                for name in ("f", "closed", "closed/f"):
                    assert ground.sight(name).problem == "not permitted: Permission denied"
            finally:
                (ground.ws / "closed").chmod(0o700)
    finally:
        if is_root:
            os.seteuid(0)


# --- What changes meanwhile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", ["file", "folder", "workspace", "fifo", "gone"])
@pytest.mark.parametrize("moment", ["listed", "opened"])
def test_what_is_swapped_meanwhile_is_not_told_of(
    swapped: str, moment: str, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a folder is listed, or before one of its files is opened."""
    outside = write(ground.path / "outside" / "ws" / "sub" / "f", b"secret of somebody else")
    target = write(ground.ws / "sub" / "f")
    swaps: list[str] = []

    def swap() -> None:
        if swaps:
            return
        swaps.append(swapped)
        if swapped == "folder":
            target.parent.rename(Path(ground.mine.tmp, "sub"))
            target.parent.symlink_to(outside.parent)
        elif swapped == "workspace":
            os.rename(ground.ws.parent, os.path.join(ground.work.root, "elsewhere"))
            os.symlink(ground.path / "outside", ground.ws.parent)
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
        real = Reach.open

        def open_later(reach: Reach, path: str) -> object:
            swap()
            return real(reach, path)

        monkeypatch.setattr(Reach, "open", open_later)
    surveyed = ground.survey(areas=("ws",))
    assert swaps == [swapped]
    assert surveyed.listed == ()


def test_folders_that_race_are_never_followed_out(ground: Ground) -> None:
    """A thread swaps a folder for a link and back, as fast as it can."""
    write(ground.path / "outside" / "secret")
    folder, aside = ground.ws / "d", ground.ws / "aside"
    write(folder / "fine")
    is_over = threading.Event()

    def race() -> None:
        while not is_over.is_set():
            folder.rename(aside)
            folder.symlink_to(ground.path / "outside")
            folder.unlink()
            aside.rename(folder)

    racer = threading.Thread(target=race)
    racer.start()
    try:
        found = [file.path for _ in range(40) for file in ground.survey("d", "d/secret", areas=("ws",)).listed]
        named = [one for _ in range(40) for one in ground.survey("d", "d/secret").named]
    finally:
        is_over.set()
        racer.join(PATIENCE_S)
    assert {os.path.basename(path) for path in found} <= {"fine"}
    assert {os.path.basename(file.path) for one in named for file in one.files} <= {"fine"}


# --- Who writes -----------------------------------------------------------------------------------------------------

LEASES = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="this system has no leases")


@LEASES
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_file_that_is_written_to_is_busy(flags: int, ground: Ground) -> None:
    path = write(ground.ws / "f")
    writer = os.open(path, flags)
    try:
        assert ground.sight("f") == Sighting(files=(seen(path, is_busy=True),))
        assert ground.survey(areas=("ws",)).listed == (seen(path, is_busy=True),)
    finally:
        os.close(writer)
    with open(path, "rb"):  # readers do not count
        assert ground.sight("f") == Sighting(files=(seen(path),))


@LEASES
def test_another_process_makes_it_busy_too(ground: Ground) -> None:
    path = write(ground.ws / "f")
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
            states.append(ground.sight("f").files[0].is_busy)
            child.stdin.write(b"\n")
            child.stdin.flush()
    finally:
        child.communicate(timeout=PATIENCE_S)
    assert states == [True, False]


@LEASES
def test_asking_leaves_no_lease_and_disturbs_nobody(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody opens the file while we ask: it waits until we are done, and nobody is killed by a signal."""
    path = write(ground.ws / "f")
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
    assert ground.sight("f").files[0].is_busy is False
    assert held == [True]
    assert opened.wait(PATIENCE_S)
    opener.join()
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # refused while there is a lease


def test_without_leases_nothing_is_busy(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fcntl, "F_SETLEASE", raising=False)
    with open(write(ground.ws / "f"), "ab"):
        assert ground.sight("f").files[0].is_busy is False


def test_old_files_are_listed_without_being_opened(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(ground.ws / "f")
    opened: list[str] = []
    real = Reach.open

    def open_and_say(reach: Reach, path: str) -> object:
        opened.append(path)
        return real(reach, path)

    monkeypatch.setattr(Reach, "open", open_and_say)
    changed_at = path.stat().st_ctime
    for now, expected in ((changed_at + surveying.BUSY_WITHIN_S - 1, [str(path)]), (changed_at + 601, [])):
        opened.clear()
        ground.work._now_unix = lambda now=now: now  # type: ignore[misc]
        assert ground.survey(areas=("ws",)).listed == (seen(path),)
        assert opened == expected
