"""Tests of the files with local tokens: who finds one, and what becomes of them when a gateway ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from isthmus.app.runtime import token_files
from isthmus.app.runtime.token_files import FILE_MAX_BYTES, Found, Place, TokenFiles, find

TOKEN = "ab" * 32
NEAR: Place = ("127.0.0.1", 8932)


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_STATE_HOME": str(tmp_path / "state")}


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "run" / "isthmus").iterdir())


def abandon(files: TokenFiles) -> None:
    """Frees the locks as the end of the process does, and removes nothing."""
    for file in files._held.values():
        os.close(file)
    files._held.clear()


def test_each_listener_has_a_file_for_its_owner_alone(tmp_path: Path, environ: Mapping[str, str]) -> None:
    socket = str(tmp_path / "socket")
    with TokenFiles(environ) as files:
        files.show([NEAR, ("::1", 8932), socket], TOKEN)
        folder = tmp_path / "run" / "isthmus"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        assert names(tmp_path)[:2] == ["--1_8932", "127.0.0.1_8932"]
        assert find(NEAR, environ) == find(("localhost", 8932), environ) == Found(TOKEN, "127.0.0.1")
        assert find(("[::1]", 8932), environ) == find(("::1", 8932), environ) == Found(TOKEN, "::1")
        os.symlink(tmp_path, tmp_path / "link")
        assert find(socket, environ) == find(str(tmp_path / "link" / "socket"), environ) == Found(TOKEN)
    assert names(tmp_path) == []
    assert find(NEAR, environ) is find(socket, environ) is None


@pytest.mark.parametrize(
    "place",
    [
        ("127.0.0.1", 8933), ("127.0.0.2", 8932), ("::1", 8932), ("example.com", 8932), ("127.0.0.1.example.com", 8932),
        ("localhost.example.com", 8932), ("10.0.0.1", 8932), ("0.0.0.0", 8932), ("127.0.0.256", 8932),
        ("", 8932), ("../x", 8932), "/socket",
    ],
    ids=str,
)  # fmt: skip
def test_no_other_address_gets_a_token(environ: Mapping[str, str], place: Place) -> None:
    with TokenFiles(environ) as files:
        files.show([NEAR], TOKEN)
        assert find(place, environ) is None


def test_the_token_of_a_gateway_that_was_killed_goes_nowhere(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Another user may listen at its address by then. The next gateway removes the file."""
    killed = TokenFiles(environ)
    killed.show([NEAR, ("127.0.0.1", 8940)], TOKEN)
    abandon(killed)
    assert find(NEAR, environ) is None
    with TokenFiles(environ) as files:
        files.show([NEAR], "cd" * 32)
        assert names(tmp_path) == ["127.0.0.1_8932"]
        assert find(NEAR, environ) == Found("cd" * 32, "127.0.0.1")


def test_a_gateway_removes_no_file_of_another_one(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Containers may share the folder, and have the same address each."""
    with TokenFiles(environ) as other:
        with TokenFiles(environ) as files:
            files.show([NEAR], TOKEN)
            other.show([NEAR], "cd" * 32)
        assert find(NEAR, environ) == Found("cd" * 32, "127.0.0.1")


def test_a_new_configuration_moves_the_files(tmp_path: Path, environ: Mapping[str, str]) -> None:
    with TokenFiles(environ) as files:
        files.show([NEAR, ("127.0.0.1", 1)], TOKEN)
        files.show([NEAR, ("127.0.0.1", 2)], TOKEN)
        assert names(tmp_path) == ["127.0.0.1_2", "127.0.0.1_8932"]
        files.show([NEAR], None)
        assert names(tmp_path) == []


def test_a_file_that_others_may_have_written_is_not_read(tmp_path: Path, environ: Mapping[str, str]) -> None:
    with TokenFiles(environ) as files:
        files.show([NEAR], TOKEN)
        path = tmp_path / "run" / "isthmus" / "127.0.0.1_8932"
        path.chmod(0o640)
        assert find(NEAR, environ) is None
        path.chmod(0o600)
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
        assert find(NEAR, environ) is None
        path.unlink()
        os.mkfifo(path)
        assert find(NEAR, environ) is None, "nothing waits for a writer"


def test_no_more_of_a_file_is_read_than_a_token_needs(environ: Mapping[str, str]) -> None:
    with TokenFiles(environ) as files:
        files.show([NEAR], "a" * (FILE_MAX_BYTES + 1))
        assert find(NEAR, environ) == Found("a" * FILE_MAX_BYTES, "127.0.0.1")


def test_a_start_looks_at_so_many_files(
    tmp_path: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "STALE_MAX", 2)
    killed = TokenFiles(environ)
    killed.show([("127.0.0.1", port) for port in range(1, 6)], TOKEN)
    abandon(killed)
    for left in (3, 1, 0):
        with TokenFiles(environ) as files:
            files.show([("127.0.0.1", 9)], TOKEN)
            assert len(names(tmp_path)) == left + 1


def test_a_command_without_the_folder_of_the_session_finds_that_of_the_user(environ: Mapping[str, str]) -> None:
    state = {"XDG_STATE_HOME": environ["XDG_STATE_HOME"]}
    with TokenFiles({**state, "XDG_RUNTIME_DIR": "not/absolute"}) as files:
        files.show([NEAR], TOKEN)
        assert find(NEAR, environ) == find(NEAR, state) == Found(TOKEN, "127.0.0.1")


def test_without_a_folder_the_log_says_what_to_set(
    tmp_path: Path, environ: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("no folder")
    with TokenFiles(environ) as files:
        files.show([NEAR], TOKEN)
        assert find(NEAR, environ) == Found(TOKEN, "127.0.0.1"), "the other folder is used"
        assert not caplog.text
    (tmp_path / "state" / "isthmus" / "run").rmdir()
    (tmp_path / "state" / "isthmus" / "run").write_text("no folder")
    with TokenFiles(environ) as files:
        files.show([NEAR], TOKEN)
        assert find(NEAR, environ) is None
    assert "set XDG_RUNTIME_DIR, or core.management.token" in caplog.text
    assert TOKEN not in caplog.text
