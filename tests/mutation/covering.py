"""The coverage of the core by single tests, and how long each test takes. Measured by one run, and cached."""

from __future__ import annotations

import hashlib
import json
import os
import time
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from mutators import Mutant

ROOT = Path(__file__).parents[2]
FOLDERS: Final = ("core", "simulation", "storage", "transports")
"""The folders of tests that run the core in their own process."""
OF_ALL: Final = "enum_values"
"""The name of the file with tests for every module's tables."""
TEST_MAX_S = 20.0
"""Slower tests are not used. Each mutant would wait for them longest."""
FILE_S = 0.2
"""The approximate time to import another file."""


class Cover(NamedTuple):
    """The measured coverage.

    Attributes:
        tests: the ids of all tests.
        lines: by module, such as `core/base/timers.py`, and line, the tests that run it, by their places in `tests`:
            there are millions of these.
        seconds: the CPU time of each test.
        imported: by module, the lines that run when it is imported.
    """

    tests: list[str]
    lines: dict[str, dict[int, array[int]]]
    seconds: dict[str, float]
    imported: dict[str, set[int]]

    def runs_at_import(self, module: str, mutant: Mutant) -> bool:
        """True if the fault takes effect at import, as one in a table does."""
        own, statement = mutant.spans
        return not self.imported.get(module, set()).isdisjoint({*own, *statement})

    def tests_of(self, module: str, mutant: Mutant, budget_s: float, asked: Collection[str] = ()) -> list[str]:
        """Returns the tests that might see the fault, as many as fit into the budget.

        Tests whose file is named after the module or its folder come first, then the quickest of each file, the next
        quickest of each, and so on. A fault that takes effect at import concerns all tests that run anything of the
        module, and those whose file is named after it, its folder or all modules: a test that reads a table runs none
        of its lines.

        Args:
            asked: the tests that have already missed it.
        """
        lines = self.lines.get(module, {})
        is_import = self.runs_at_import(module, mutant)
        found: set[str] = set()
        for span in (lines.keys(),) if is_import else mutant.spans:  # not every line of a literal is run
            found = found or {self.tests[at] for line in span for at in lines.get(line, ())}
        path = Path(module)
        own = {path.stem, path.parent.name} - {"core"}
        if is_import:
            own.add(OF_ALL)
            found.update(test for test in self.tests if any(name in test.partition("::")[0] for name in own))
        ranks: Counter[str] = Counter()
        order = []
        for test in sorted(found.difference(asked), key=lambda test: (self.seconds[test], test)):
            file = test.partition("::")[0]
            is_own = any(name in file for name in own)
            order.append((not is_own, 0 if is_own else ranks[file], self.seconds[test], test))
            ranks[file] += 1
        chosen: list[str] = []
        files: set[str] = set()
        for *_, seconds, test in sorted(order):
            needed_s = seconds + (FILE_S if is_import and test.partition("::")[0] not in files else 0)
            if needed_s > budget_s:
                continue
            budget_s -= needed_s
            files.add(test.partition("::")[0])
            chosen.append(test)
        return chosen


def test_files() -> list[str]:
    found = (path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).rglob("test_*.py")))
    return [path.relative_to(ROOT).as_posix() for path in found]


def load(folder: Path, files: Sequence[str]) -> tuple[Cover, list[str]]:
    """Returns the cached measurements, and the files without a valid one: the file or the core has changed since."""
    cover = Cover([], {}, {}, {})
    missing = []
    for file in files:
        try:
            kept = json.loads(_cache(folder, file).read_bytes())
        except (OSError, ValueError):
            kept = {"digest": ""}
        if kept["digest"] != _digest(file):
            missing.append(file)
            continue
        first = len(cover.tests)
        cover.tests.extend(kept["tests"])
        cover.seconds.update(kept["seconds"])
        for module, found in kept["lines"].items():
            lines = cover.lines.setdefault(module, {})
            for line, tests in found.items():
                lines.setdefault(int(line), array("I")).extend(first + at for at in tests)
        for module, known in kept["imported"].items():
            cover.imported.setdefault(module, set()).update(known)
    return cover, missing


def measure(folder: Path, file: str) -> None:
    """Runs a file of tests, and writes the measurement that `load` reads. Needs a process of its own, as the core stays
    imported.

    Tests that fail are left out. One that measures memory may fail when it is measured itself.
    """
    import coverage

    os.environ["EXAMPLES"] = "20"
    cover = coverage.Coverage(data_file=None, include=[f"{ROOT}/core/*"], config_file=False)
    watch = _Watch(cover)
    cover.start()
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", file], plugins=[watch])
    cover.stop()
    found = cover.get_data()
    quick = [test for test, seconds in watch.seconds.items() if seconds < TEST_MAX_S]
    places = {test: at for at, test in enumerate(quick)}
    of_modules: dict[str, dict[int, list[int]]] = {}
    imported: dict[str, list[int]] = {}
    for path in found.measured_files():
        module = str(Path(path).resolve().relative_to(ROOT))
        contexts = found.contexts_by_lineno(path)
        imported[module] = [line for line, names in contexts.items() if "" in names]
        of_modules[module] = {
            line: [places[test] for test in names if test in places] for line, names in contexts.items()
        }
    kept = {
        "digest": _digest(file),
        "tests": quick,
        "seconds": watch.seconds,
        "lines": of_modules,
        "imported": imported,
    }
    _cache(folder, file).write_text(json.dumps(kept))


class _Watch:
    """A plugin that tells the measurement which test is running, and notes the time of those that pass."""

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
    return folder / f"{file.replace('/', '.')}.json"


def _digest(file: str) -> str:
    digest = hashlib.sha256()
    for path in (ROOT / file, *sorted((ROOT / "core").glob("**/*.py"))):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
