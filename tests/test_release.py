"""Tests of what is released: what is in the wheel and the sdist, the packages it needs, and the files that are made."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import release_check
from isthmus.app.base.version import DESCRIPTION, VERSION
from isthmus.app.cli import completion, version

ROOT: Final = Path(__file__).parent.parent
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Final = {
    name: needs for name, needs in PROJECT["optional-dependencies"].items() if name not in ("test", "docs", "fuzz")
}


RUN_FROM_HERE: Final = """
import os, isthmus.app.main as it
assert it.__file__.startswith(os.getcwd()), it.__file__
it.main()
"""


def distribution(need: str) -> str:
    return re.split(r"[\[><; ]", need)[0]


# --- The files that are released ------------------------------------------------------------------------------------


def test_wheel_and_sdist_hold_what_they_should(tmp_path: Path) -> None:
    """The tree that they are built of has caches and tests in it. The content of the wheel runs, typed and licensed."""
    tree = tmp_path / "tree"
    for name in ("core", "transports", "storage", "app", "docs"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("tests/test_it.py", "core/__pycache__/engine.cpython-311.pyc", "build/lib/isthmus/core/old.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("")
    wheel, sdist = release_check.build(tree, tmp_path / "files", is_isolated=False)
    assert wheel.name == f"isthmus-{VERSION}-py3-none-any.whl"
    assert list(release_check.problems(wheel, sdist)) == []
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    done = subprocess.run(
        [sys.executable, "-c", RUN_FROM_HERE, "--version"],
        cwd=tmp_path / "installed",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(f"isthmus {VERSION}\n")


def test_generated_files_are_as_generated() -> None:
    """`make docs` would change neither the completions of shells nor the manual page."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "docs" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    for path, text in release.files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run `make docs`"


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_completion_is_printed_as_it_is_shipped(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal gets the lines on how to install it once more, at the end."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    completion.print_completion(shell)
    printed = capsys.readouterr()
    assert printed.out.rstrip() == (completion.FOLDER / f"isthmus.{shell}").read_text(encoding="utf-8").rstrip()
    lines = printed.err.splitlines()
    assert lines[0] == "To install it:"
    assert any(line.startswith(f"  isthmus completion {shell} > ~/") for line in lines)
    assert all(f"#{line}" in printed.out.replace("# ", "#") for line in lines)


# --- Versions and packages ------------------------------------------------------------------------------------------


def test_the_description_is_that_of_the_project() -> None:
    assert PROJECT["description"] == DESCRIPTION


def test_the_extras_shown_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each extra is known by the modules of its packages, and one of them that is missing makes it missing."""
    assert set(version.EXTRAS) == set(EXTRAS)
    packages = packages_distributions()
    for extra, needs in EXTRAS.items():
        found = [name for modules in version.EXTRAS[extra] for name in modules.split("|") if _has(name)]
        assert len(found) == len(version.EXTRAS[extra]), extra
        if extra != "auth":  # cryptography is itself an extra of PyJWT
            assert {distribution(need) for need in needs} >= {packages[name.partition(".")[0]][0] for name in found}
    monkeypatch.setattr(version, "find_spec", lambda name: None if name in ("h2", "jwt") else find_spec(name))
    assert version.describe().splitlines()[2:] == [
        "extras installed: codings, conform, fast, otel, postgres, redis, regex, s3, trio",
        "extras not installed: auth, http2",
    ]


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_every_package_is_on_the_page_of_dependencies() -> None:
    """Each package and each extra has a row, and no other has."""
    always, extras = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").split("## Extras")
    rows = re.findall(r"^\| `([\w-]+)` \|", always, re.MULTILINE)
    assert sorted(rows) == sorted(map(distribution, PROJECT["dependencies"]))
    named = {
        row[0]: set(re.findall(r"`([\w.-]+)(?:\[\w+\])?`", row[1]))
        for row in re.findall(r"^\| `(\w+)` \| ([^|]*)", extras, re.MULTILINE)
    }
    assert named.keys() == EXTRAS.keys()
    for extra, needs in EXTRAS.items():
        assert set(map(distribution, needs)) <= named[extra], extra


def test_the_newest_release_of_the_changelog_is_this_one() -> None:
    first = next(iter(re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)))
    assert first == VERSION
