"""Tests of temporary files: the leftovers of a killed run are removed by the next one, and nothing else is."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from command import Run
from isthmus.app.disk.temporary import temporary_folder
from isthmus.core.base.ids import mint

TOOLBOX = str(Path(__file__).parents[1] / "peers" / "toolbox.py")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files in this test."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def abandoned(place: Path, name: str = "isthmus-1-abcdefgh", mode: int = 0o700) -> Path:
    folder = place / name
    (folder / "workspaces").mkdir(parents=True)
    folder.chmod(mode)
    return folder


def test_it_is_private_and_goes_with_its_context(place: Path) -> None:
    with temporary_folder() as path:
        assert re.fullmatch(rf"isthmus-{os.getpid()}-[a-z0-9_]{{8}}", os.path.relpath(path, place))
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        Path(path, "deep", "er").mkdir(parents=True)
        with temporary_folder() as other:
            assert os.path.isdir(path), "one that is in use stays"
        assert not os.path.exists(other)
    assert list(place.iterdir()) == []


def test_what_nobody_uses_goes_and_what_its_sessions_had_beside_it(place: Path) -> None:
    folder = abandoned(place)
    session, other = (mint(random.Random(seed).randbytes) for seed in (1, 2))
    for path in (folder / "workspaces" / session / "in", place / f"isthmus-{session}", place / f"isthmus-{other}"):
        path.mkdir(parents=True)
    with temporary_folder():
        assert not folder.exists()
        assert not (place / f"isthmus-{session}").exists()
        assert (place / f"isthmus-{other}").exists(), "whose it is cannot be known"


def test_what_may_not_be_ours_stays(place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    outside.chmod(0o700)
    (place / "isthmus-2-abcdefgh").symlink_to(outside)
    (place / "isthmus-3-abcdefgh").write_bytes(b"no folder")
    linking = abandoned(place, "isthmus-4-abcdefgh")
    (linking / "link").symlink_to(outside)
    kept = [
        outside / "inner",
        place / "isthmus-2-abcdefgh",
        place / "isthmus-3-abcdefgh",
        abandoned(place, "isthmus-5-abcdefgh", mode=0o755),
        abandoned(place, "isthmus-x-abcdefgh"),
        abandoned(place, "other-1-abcdefgh"),
    ]
    if os.geteuid() == 0:
        foreign = abandoned(place, "isthmus-6-abcdefgh")
        os.chown(foreign, 65534, 65534)
        kept.append(foreign)
    in_use = abandoned(place, "isthmus-7-abcdefgh")
    lock = os.open(in_use, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with temporary_folder():
            assert not linking.exists()
            assert [path for path in [*kept, in_use] if not path.exists()] == []
    finally:
        os.close(lock)


def test_what_a_killed_run_left_goes_with_the_next_start(tmp_path: Path) -> None:
    def left_by(pid: int) -> list[str]:
        return [name for name in os.listdir(tmp_path) if name.startswith(f"isthmus-{pid}-")]

    command = ("wrap", "--listen", "127.0.0.1:0", "--", sys.executable, TOOLBOX, "a")
    with Run(*command, env={"TMPDIR": str(tmp_path)}) as first:
        first.wait_url()
        first.signal(signal.SIGKILL)
        first.wait_exit()
        assert left_by(first.pid)
    with Run(*command, env={"TMPDIR": str(tmp_path)}) as second:
        second.wait_url()
        assert (bool(left_by(first.pid)), bool(left_by(second.pid))) == (False, True)
        second.signal(signal.SIGTERM)
        assert second.wait_exit() == 0
    assert os.listdir(tmp_path) == []
