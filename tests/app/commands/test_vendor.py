"""Tests of `isthmus vendor`: what a copy is, which one is replaced, and what is said of one later."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conforming import Run
from isthmus.app.base.version import VERSION
from isthmus.app.commands import core_copy
from isthmus.app.commands.change_notes import change_notes
from isthmus.app.commands.core_copy import write_copy

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60
IDENTITY = ("-c", "user.name=me", "-c", "user.email=me@localhost", "-c", "commit.gpgsign=false")


@pytest.fixture
def vendor(command: Run) -> Run:
    return partial(command, "vendor")


@pytest.fixture
def copy(vendor: Run) -> Path:
    """A copy in the current folder. It has been imported, so it holds files that Python wrote."""
    folder = Path("mcp_core")
    write_copy(folder.absolute(), ())
    (folder / "base" / "__pycache__").mkdir()
    (folder / "base" / "__pycache__" / "plan.cpython-311.pyc").write_bytes(b"compiled")
    return folder


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def record_in(folder: Path) -> Any:
    return json.loads((folder / "VENDORED.json").read_bytes())


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return done.stdout.strip()


# --- Taking a copy --------------------------------------------------------------------------------------------------


def test_a_copy_has_a_record_of_each_file(vendor: Run) -> None:
    code, out, err = vendor("mcp_core", "--without", "tasks, oracle")
    assert (code, err) == (0, "")
    record, files = record_in(Path("mcp_core")), contents_of(Path("mcp_core"))
    assert record["files"] == {
        path: hashlib.sha256(content).hexdigest() for path, content in files.items() if path != "VENDORED.json"
    }
    assert record["version"] == VERSION
    assert record["without"] == ["oracle", "tasks"]
    assert record["notes"] == sorted(path.stem for path in (ROOT / "docs" / "changes.d").glob("*.md"))
    assert out.startswith(f"mcp_core: {len(record['files'])} files of isthmus {VERSION}")
    assert out.endswith(", without oracle, tasks\n")


def test_a_record_is_sorted_and_does_not_depend_on_the_place(vendor: Run) -> None:
    for name in ("one", "other"):
        assert vendor(name)[0] == 0
    text = Path("one", "VENDORED.json").read_bytes()
    assert text == Path("other", "VENDORED.json").read_bytes()
    record = record_in(Path("one"))
    assert list(record) == sorted(record)
    assert list(record["files"]) == sorted(record["files"])


def isthmus_in(folder: Path) -> Path:
    """An isthmus whose core has two modules, below `folder`. Returns its core."""
    core = folder / "core"
    (core / "base").mkdir(parents=True)
    for path in (core / "__init__.py", core / "base" / "__init__.py"):
        path.write_text('"""Words."""\n')
    return core


def test_a_copy_of_a_clone_knows_its_commit(vendor: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A change that is not committed shows, also a new file. One outside of `core/` does not: it is not copied."""
    core = isthmus_in(tmp_path / "clone")
    git(core.parent, "init", "--quiet")
    git(core.parent, "add", ".")
    git(core.parent, "commit", "--quiet", "--message", "All")
    monkeypatch.setattr(core_copy, "SOURCE", core)
    (core.parent / "README.md").write_text("Words.\n")
    commit = git(core.parent, "rev-parse", "HEAD")
    assert vendor("clean")[1] == f"clean: 2 files of isthmus {VERSION}, commit {commit}\n"
    assert (record_in(Path("clean"))["commit"], record_in(Path("clean"))["is_clean"]) == (commit, True)
    (core / "new.py").touch()
    assert vendor("changed")[1] == f"changed: 3 files of isthmus {VERSION}, commit {commit} with uncommitted changes\n"
    assert (record_in(Path("changed"))["commit"], record_in(Path("changed"))["is_clean"]) == (commit, False)


def test_the_commit_of_another_repository_is_not_taken(
    vendor: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An isthmus may be installed within the repository of the program that takes the copy."""
    core = isthmus_in(tmp_path / "lib" / "isthmus")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "All")
    monkeypatch.setattr(core_copy, "SOURCE", core)
    assert vendor("mcp_core")[1] == f"mcp_core: 2 files of isthmus {VERSION}\n"
    assert (record_in(Path("mcp_core"))["commit"], record_in(Path("mcp_core"))["is_clean"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("mcp-core",), "got the folder name 'mcp-core', expected one that Python can import, such as mcp_core"),
        (("class",), "got the folder name 'class', expected one that Python can import, such as mcp_core"),
        (
            ("a", "--without", "task"),
            "got --without task, expected some of files, input_required, oracle, tasks, testing",
        ),
        (("a", "--verify", "--without", "tasks"), "got --without with --verify, expected it when a copy is made"),
        (("a", "--", "b"), "got a command after --, which `isthmus vendor` does not take"),
    ],
)
def test_what_is_wrong_with_the_command(words: tuple[str, ...], complaint: str, vendor: Run) -> None:
    assert vendor(*words) == (2, "", f"isthmus: {complaint}\n")
    assert list(Path.cwd().iterdir()) == []


def test_folders_above_a_copy_are_made(vendor: Run, tmp_path: Path) -> None:
    """A file in the place of one is named."""
    assert vendor("acme/gateway/mcp_core")[0] == 0
    (tmp_path / "file").write_text("")
    code, out, error = vendor("file/mcp_core")
    assert (code, out) == (1, "")
    assert error == f"isthmus: file/mcp_core cannot be written: {tmp_path / 'file'}: File exists\n"


# --- Replacing a copy -----------------------------------------------------------------------------------------------


def test_an_unedited_copy_is_replaced(vendor: Run, copy: Path) -> None:
    """The new one leaves the same folders out, unless others are named. Nothing is left of the old one."""
    for words, without in ((("--without", "files"), ["files"]), ((), ["files"]), (("--without", ""), [])):
        code, out, err = vendor("mcp_core", *words)
        assert (code, err) == (0, "")
        assert "It replaces isthmus " in out
        assert record_in(copy)["without"] == without
        assert (copy / "files").exists() == (not without)
        assert contents_of(copy).keys() == {*record_in(copy)["files"], "VENDORED.json"}
        assert list(Path.cwd().iterdir()) == [copy.absolute()]


def edit(folder: Path) -> None:
    with (folder / "engine.py").open("a") as file:
        file.write("# ours\n")
    (folder / "base" / "plan.py").unlink()
    (folder / "ours.py").touch()


EDITS = "changed: engine.py\nmissing: base/plan.py\nextra: ours.py\n"


def test_an_edited_copy_is_not_replaced(vendor: Run, copy: Path) -> None:
    edit(copy)
    before = contents_of(copy)
    code, out, err = vendor("mcp_core")
    assert (code, out) == (1, EDITS)
    assert err.startswith("isthmus: mcp_core was edited since it was made, in the files above: undo that, or move ")
    assert contents_of(copy) == before


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_nothing_else_is_replaced(kind: str, vendor: Run) -> None:
    place = Path("mcp_core")
    if kind == "file":
        place.write_text("ours")
    elif kind == "folder":
        place.mkdir()
        (place / "engine.py").write_text("ours")
    else:
        Path("ours").mkdir()
        place.symlink_to("ours")
    before = sorted(Path.cwd().iterdir()), contents_of(place)
    code, out, err = vendor("mcp_core")
    assert (code, out) == (1, "")
    assert err == (
        "isthmus: mcp_core is there, and is no copy that `isthmus vendor` made: name another folder, or move it away\n"
    )
    assert (sorted(Path.cwd().iterdir()), contents_of(place)) == before


def test_a_copy_stays_if_the_new_one_cannot_be_written(
    vendor: Run, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents_of(copy)
    monkeypatch.setattr(core_copy, "contents", lambda without: {"a": b"", "a/b": b""})
    code, out, err = vendor("mcp_core")
    assert (code, out) == (1, "")
    assert err.startswith("isthmus: mcp_core cannot be written: ")
    assert contents_of(copy) == before
    assert list(Path.cwd().iterdir()) == [copy.absolute()]


def test_a_copy_is_put_back_if_the_new_one_cannot_take_its_place(
    vendor: Run, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents_of(copy)
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError("broken disk")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    assert vendor("mcp_core") == (1, "", "isthmus: mcp_core cannot be written: broken disk\n")
    assert contents_of(copy) == before
    assert list(Path.cwd().iterdir()) == [copy.absolute()]


# --- Verifying a copy -----------------------------------------------------------------------------------------------


def test_an_unedited_copy_is_called_so(vendor: Run, copy: Path) -> None:
    code, out, err = vendor("--verify", "mcp_core")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["No file was edited.", "This isthmus would write the same files."]


def test_edits_are_named(vendor: Run, copy: Path) -> None:
    edit(copy)
    before = contents_of(copy)
    code, out, err = vendor("mcp_core", "--verify")
    assert (code, err) == (1, "")
    assert f"\n{EDITS}Edited: these files are not as they were made.\n" in out
    assert contents_of(copy) == before


def make_older(folder: Path, *lacking: str) -> None:
    """Gives a copy the record of one that was made before some change notes, and before one of its modules changed."""
    record = record_in(folder)
    (folder / "bulk.py").write_text("older\n")
    record["files"]["bulk.py"] = hashlib.sha256(b"older\n").hexdigest()
    record["notes"] = [name for name in record["notes"] if name not in lacking]
    (folder / "VENDORED.json").write_text(json.dumps(record))


def test_what_lies_between_an_older_copy_and_now(vendor: Run, copy: Path) -> None:
    """Items for drivers come first, then the whole notes. Other notes are not shown."""
    make_older(copy, "0112-noise", "0113-exhaustion")
    notes = change_notes()
    (order,) = re.findall(r"`driver:` ((?:.|\n)+)", notes["0113-exhaustion"])
    order = f"A driver must act:\n- 0113-exhaustion: {' '.join(order.split())}\n"
    code, out, err = vendor("--verify", "mcp_core")
    assert (code, err) == (0, "")
    assert ": 1 file of a new copy would differ.\n2 change notes newer than that copy.\n" in out
    assert out.endswith(f"{order}\n0112-noise\n{notes['0112-noise']}\n\n0113-exhaustion\n{notes['0113-exhaustion']}\n")
    assert vendor("mcp_core")[1].endswith(f"2 change notes newer than that copy.\n{order}")
    assert vendor("--verify", "mcp_core")[1].endswith("This isthmus would write the same files.\n")


def test_a_copy_that_is_newer_is_called_so(vendor: Run, copy: Path) -> None:
    make_older(copy)
    record = record_in(copy)
    record["notes"].append("9999-from-tomorrow")
    (copy / "VENDORED.json").write_text(json.dumps(record))
    out = vendor("--verify", "mcp_core")[1]
    assert "The copy is newer in part: this isthmus lacks the change notes 9999-from-tomorrow.\n" in out
    assert "0 change notes newer than that copy.\n" in out


def test_what_cannot_be_verified(vendor: Run, copy: Path) -> None:
    Path("empty").mkdir()
    for name in ("empty", "missing"):
        complaint = f"isthmus: {name} is no copy that `isthmus vendor` made: it has no VENDORED.json\n"
        assert vendor("--verify", name) == (1, "", complaint)
    (copy / "VENDORED.json").write_text("{")
    code, out, err = vendor("--verify", "mcp_core")
    assert (code, out) == (1, "")
    assert "VENDORED.json cannot be read: Input data was truncated. Take it back from your repository" in err


# --- An installed isthmus -------------------------------------------------------------------------------------------


def test_an_installed_isthmus_makes_copies(tmp_path: Path) -> None:
    """An installed package has the licence and the change notes. It knows no commit."""
    packaging = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert '"isthmus.changes"' in (ROOT / "setup.py").read_text()
    for part in ("core", "transports", "storage", "app"):
        folder = tmp_path / "lib" / "isthmus" / part
        data = [ROOT / part / name for name in packaging["package-data"][f"isthmus.{part}"]]
        for path in [*(ROOT / part).rglob("*.py"), *data]:
            place = folder / path.relative_to(ROOT / part)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    notes = tmp_path / "lib" / "isthmus" / "changes"
    notes.mkdir()
    for pattern in packaging["package-data"]["isthmus.changes"]:
        for path in (ROOT / packaging["package-dir"]["isthmus.changes"]).glob(pattern):
            shutil.copy(path, notes)

    def isthmus(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "isthmus.app.main", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = isthmus("vendor", "mcp_core")
    assert re.fullmatch(rf"mcp_core: \d+ files of isthmus {VERSION}\n", said)
    assert (tmp_path / "mcp_core" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert record_in(tmp_path / "mcp_core")["notes"] == sorted(change_notes())
    assert isthmus("vendor", "--verify", "mcp_core").startswith(said)
