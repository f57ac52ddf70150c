"""Which test runs which line of the core, and how long each takes: from one run of them, kept while they stay."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TESTS = "tests/core"
SLOW = ("test_engine_", "test_tasks_", "_model")
"""Files that are left out: they drive the engine whole, and a part has tests of its own."""
TEST_MAX_S = 1.0
"""Slower tests are not asked: a mutant would wait for them longest."""
FILE_S = 0.2
"""What another file takes to be read, about."""


class Cover(NamedTuple):
    """Attributes:
    lines: by module, such as `core/timers.py`, and line, the tests that run it.
    seconds: of CPU that each test took.
    """

    lines: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests_of(self, module: str, line: int, budget_s: float) -> list[str]:
        """Who might see a fault there, whose file is named after the module first, quick ones before slow ones, as many
        as fit. What runs at import, as tables do, concerns all that run anything of the module."""
        lines = self.lines.get(module, {})
        found = lines.get(line) or {test for tests in lines.values() for test in tests}
        stem = Path(module).stem
        chosen: list[str] = []
        files: set[str] = set()
        for test in sorted(found, key=lambda test: (stem not in test.partition("::")[0], self.seconds[test], test)):
            budget_s -= self.seconds[test] + (0 if test.partition("::")[0] in files else FILE_S)
            if budget_s < 0:
                break
            files.add(test.partition("::")[0])
            chosen.append(test)
        return chosen


def test_files(modules: Sequence[str]) -> list[str]:
    """The files of tests that name one of the modules; all of them if none is given."""
    words = re.compile("|".join(rf"\b{Path(module).stem}\b" for module in modules))
    paths = [path for path in sorted((ROOT / TESTS).glob("test_*.py")) if not any(part in path.name for part in SLOW)]
    return [f"{TESTS}/{path.name}" for path in paths if words.search(path.read_text(encoding="utf-8"))]


def load(folder: Path, files: Sequence[str]) -> tuple[Cover, list[str]]:
    """What earlier runs found, and the files for which there is none, or that have changed since, or the core has."""
    lines: dict[str, dict[int, list[str]]] = {}
    seconds: dict[str, float] = {}
    missing = []
    for file in files:
        try:
            kept = json.loads(_cache(folder, file).read_bytes())
        except (OSError, ValueError):
            kept = {"digest": ""}
        if kept["digest"] != _digest(file):
            missing.append(file)
            continue
        seconds |= kept["seconds"]
        for module, found in kept["lines"].items():
            for line, tests in found.items():
                lines.setdefault(module, {}).setdefault(int(line), []).extend(tests)
    return Cover(lines, seconds), missing


def measure(folder: Path, file: str) -> None:
    """Run a file of tests, and keep what `load` then gives. For a process of its own: it leaves the core imported.

    Tests that fail, as one may that measures memory and is measured itself, are left out.
    """
    import coverage

    os.environ["EXAMPLES"] = "20"
    cover = coverage.Coverage(data_file=None, include=[f"{ROOT}/core/*"], config_file=False)
    watch = _Watch(cover)
    cover.start()
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", file], plugins=[watch])
    cover.stop()
    found = cover.get_data()
    of_modules = {
        str(Path(path).resolve().relative_to(ROOT)): {
            line: tests
            for line, contexts in found.contexts_by_lineno(path).items()
            if (tests := [test for test in contexts if watch.seconds.get(test, TEST_MAX_S) < TEST_MAX_S])
        }
        for path in found.measured_files()
    }
    kept = {"digest": _digest(file), "seconds": watch.seconds, "lines": of_modules}
    _cache(folder, file).write_text(json.dumps(kept))


class _Watch:
    """Tells the measurement which test is running, and notes how long those that pass take."""

    def __init__(self, cover: Any) -> None:
        self.seconds: dict[str, float] = {}
        self._cover = cover

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._cover.switch_context(item.nodeid)
        self._began = time.process_time()
        yield
        self._cover.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = round(time.process_time() - self._began, 4)


def _cache(folder: Path, file: str) -> Path:
    return folder / f"{Path(file).stem}.json"


def _digest(file: str) -> str:
    digest = hashlib.sha256()
    for path in (ROOT / file, *sorted((ROOT / "core").glob("**/*.py"))):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
