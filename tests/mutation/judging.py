"""The judgement of one mutant by the tests that ought to see it, in a process with limits on time and memory."""

from __future__ import annotations

import ast
import contextlib
import enum
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Final

import hypothesis
import hypothesis.configuration
import hypothesis.stateful
import pytest

MEMORY_MAX_BYTES: Final = 512 * 1024 * 1024
"""The memory that a mutant may take in addition. Tests of parts take a tenth of it."""
TIMES: Final = 4
"""The factor on the CPU time of its tests that a mutant may take."""
EXTRA_S: Final = 5
"""Additional seconds, for collection and imports."""
WALL_TIMES: Final = 20
"""The factor on that limit for wall time. A mutant that waits uses no CPU, and a busy machine should matter little."""
PASSES_KEPT: Final = 64
EXAMPLES: Final = 25
"""The examples of a property, without minimizing: one failure is enough."""


class Verdict(enum.Enum):
    KILLED = "killed"  # a test failed, or the module could not be imported
    ENDED = "ended"  # it used up its CPU time
    UNSURE = (
        "unsure"  # it neither ended nor used up its CPU time, or the tests do not pass without it: nothing is known
    )
    SURVIVED = "survived"
    UNSEEN = "unseen"  # no test runs it
    EQUIVALENT = "equivalent"  # it survived, and the table has the reason


def judge(path: Path, module: ast.Module, tests: Collection[str], known: Collection[str], cpu_s: float) -> Verdict:
    """Runs the tests with `module` in place of the file at `path`, from its import on.

    Args:
        tests: the ids to run, in this order.
        known: all ids. A test that is not among them came with the mutant, and is run too.
        cpu_s: the CPU time of the tests without a fault.
    """
    if not tests:
        return Verdict.UNSEEN
    code = _tried(path, module, tests, known, cpu_s)
    if code == 0:
        return Verdict.SURVIVED
    if not _passes(path, tuple(tests), frozenset(known), cpu_s):
        return Verdict.UNSURE  # the tests end in the same way without the fault
    if code == pytest.ExitCode.USAGE_ERROR:  # a conftest could not be imported, because of the fault
        return Verdict.KILLED
    return verdict_of(code)


def _tried(path: Path, tree: ast.Module, tests: Collection[str], known: Collection[str], cpu_s: float) -> int | None:
    limit_s = int(cpu_s * TIMES + EXTRA_S)
    return contained(lambda: _run(path, tree, tests, known), cpu_s=limit_s, wall_s=limit_s * WALL_TIMES)


@lru_cache(maxsize=PASSES_KEPT)
def _passes(path: Path, tests: tuple[str, ...], known: frozenset[str], cpu_s: float) -> bool:
    """True if the tests pass within their limits without a fault. All mutants of a module have the same ones."""
    return _tried(path, ast.parse(path.read_text(encoding="utf-8")), tests, known, cpu_s) == 0


def verdict_of(code: int | None) -> Verdict:
    """Returns the verdict for an exit code of pytest or of `contained`."""
    assert code not in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED), "the tests were not run"
    if code is None:
        return Verdict.UNSURE
    if code == -signal.SIGXCPU:
        return Verdict.ENDED
    return Verdict.SURVIVED if code == 0 else Verdict.KILLED


def contained(work: Callable[[], int], *, cpu_s: int, wall_s: float) -> int | None:
    """Runs `work` in a child process with limits, and drops its output.

    Returns:
        Its result, or 3 if it raised. A negative number is the signal that ended it: SIGXCPU when its CPU time was up.
            None if it had not ended after `wall_s`.
    """
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
            size_max = _address_space() + MEMORY_MAX_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (size_max, size_max))
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            code = work()
        finally:
            os._exit(code)
    give_up_at = time.monotonic() + wall_s
    try:
        while (status := _status(pid)) is None and time.monotonic() < give_up_at:
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # with its descendants
        if status is None:
            os.waitpid(pid, 0)
    return None if status is None else os.waitstatus_to_exitcode(status)


def _status(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return status if found else None


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _run(path: Path, module: ast.Module, tests: Collection[str], known: Collection[str]) -> int:
    """Returns 0 if all tests passed."""
    assert not any(name.partition(".")[0] == "isthmus" for name in sys.modules), "the core is imported already"
    code = compile(module, str(path), "exec")
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> object:
        return code if Path(self.path).resolve() == path else original(self, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as folder:
        hypothesis.configuration.set_hypothesis_home_dir(folder)
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        return int(pytest.main([*arguments, *files], plugins=[_Selection(tests, known)]))


def settle(examples: int = EXAMPLES) -> None:
    """Makes hypothesis use few examples, always the same ones."""
    found = hypothesis.settings(
        hypothesis.settings.default,
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    hypothesis.settings.register_profile("mutants", found)
    hypothesis.settings.load_profile("mutants")


class _Selection:
    def __init__(self, tests: Collection[str], known: Collection[str]) -> None:
        self._order = {test: at for at, test in enumerate(tests)}
        self._known = frozenset(known)

    def pytest_sessionstart(self) -> None:
        settle()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        last = len(self._order)
        items[:] = [item for item in items if item.nodeid in self._order or item.nodeid not in self._known]
        items.sort(key=lambda item: self._order.get(item.nodeid, last))
