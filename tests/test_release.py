"""Tests of what is released: the packages it needs."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from isthmus.app.base.version import DESCRIPTION
from isthmus.app.cli import version

ROOT: Final = Path(__file__).parent.parent
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Final = {
    name: needs for name, needs in PROJECT["optional-dependencies"].items() if name not in ("test", "fuzz")
}


def distribution(need: str) -> str:
    return re.split(r"[\[><; ]", need)[0]


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
        "extras installed: codings, conform, fast, regex, trio",
        "extras not installed: auth, http2",
    ]


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
