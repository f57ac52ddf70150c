"""The judgement of mutants one after another, in a process that has imported the core and all its tests.

A fault in a function needs no import: the function gets the code of its faulty version, in a child of this process, and
the tests run there. So a mutant costs a fork and the time of its tests. Code that runs at import is not reached.
"""

from __future__ import annotations

import gc
import marshal
import mmap
import os
import resource
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import hypothesis.configuration
import pytest
from _pytest.runner import runtestprotocol
from judging import EXAMPLES, EXTRA_S, TIMES, WALL_TIMES, Verdict, contained, settle, verdict_of


class Rehearsal:
    """The process, which lives until the block ends.

    Args:
        files: the files of tests to import.
        seconds: the CPU time of each test.
    """

    def __init__(self, files: Sequence[str], seconds: dict[str, float]) -> None:
        self._files, self._seconds = files, seconds

    def __enter__(self) -> Rehearsal:
        self._ours, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            try:
                _serve(theirs, self._files, self._seconds)
            finally:
                os._exit(0)
        theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        os.waitpid(self._pid, 0)

    def judge(
        self, module: str, code: types.CodeType, tests: Sequence[str], examples: int = EXAMPLES
    ) -> tuple[Verdict, str] | None:
        """Runs the tests with a module's functions replaced by those of `code`.

        Args:
            examples: the examples of a property.

        Returns:
            The verdict, and the test that saw the fault. None if the fault is in no function.
        """
        self._ours.send((module, marshal.dumps(code), tests, examples))
        found: tuple[Verdict, str] | None = self._ours.recv()
        return found


def _serve(orders: Connection, files: Sequence[str], seconds: dict[str, float]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    with tempfile.TemporaryDirectory() as folder:
        hypothesis.configuration.set_hypothesis_home_dir(folder)
        arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
        pytest.main([*arguments, *files], plugins=[_Stage(orders, seconds)])


class _Stage:
    def __init__(self, orders: Connection, seconds: dict[str, float]) -> None:
        self._orders = orders
        self._seconds = seconds
        self._sound: dict[str, bool] = {}
        self._at = mmap.mmap(-1, 4)  # the number of the test that a child has come to

    def pytest_sessionstart(self) -> None:
        settle()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        while True:
            try:
                module, code, tests, examples = self._orders.recv()
            except EOFError:
                return True
            settle(examples)
            self._orders.send(self._judge(module, marshal.loads(code), tests))

    def _judge(self, module: str, code: types.CodeType, tests: Sequence[str]) -> tuple[Verdict, str] | None:
        live = sys.modules["isthmus." + module.removesuffix(".py").replace("/", ".")]
        faulty = {(each.co_qualname, each.co_firstlineno): each for each in _codes(code)}
        changed = [
            (function, fresh)
            for function in _functions(live)
            if (fresh := faulty.get((function.__code__.co_qualname, function.__code__.co_firstlineno))) is not None
            and fresh != function.__code__
        ]
        if not changed or any(len(fresh.co_freevars) != len(was.__code__.co_freevars) for was, fresh in changed):
            return None
        asked = [test for test in tests if test in self._items and self._sound.get(test, True)]
        while asked:
            verdict = verdict_of(self._run(asked, changed))
            if verdict not in (Verdict.KILLED, Verdict.ENDED):
                return verdict, ""
            seen_by = asked[int.from_bytes(self._at[:4])]
            if seen_by not in self._sound:
                self._sound[seen_by] = self._run([seen_by], []) == 0
            if self._sound[seen_by]:
                return verdict, seen_by
            asked.remove(seen_by)  # it fails without a fault too
        return Verdict.UNSEEN, ""

    def _run(self, tests: Sequence[str], changed: Sequence[tuple[types.FunctionType, types.CodeType]]) -> int | None:
        limit_s = int(sum(self._seconds[test] for test in tests) * TIMES + EXTRA_S)

        def work() -> int:
            for function, code in changed:
                function.__code__ = code
            for at, test in enumerate(tests):
                self._at[:4] = at.to_bytes(4)
                spent_s = time.process_time()
                due_s = int(spent_s + self._seconds[test] * TIMES + EXTRA_S)
                resource.setrlimit(resource.RLIMIT_CPU, (min(due_s, limit_s), limit_s + 1))
                if any(report.failed for report in runtestprotocol(self._items[test], log=False)):
                    return 1
            return 0

        return contained(work, cpu_s=limit_s, wall_s=limit_s * WALL_TIMES)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields the code of its functions, and of its classes' functions."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Yields the functions of a module and of its classes, without their wrappers."""
    waiting: list[object] = list(vars(module).values())
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen or found is None:
            continue
        seen.add(id(found))
        if isinstance(found, types.FunctionType):
            if found.__module__ == module.__name__:
                yield found
            waiting.append(getattr(found, "__wrapped__", None))
        elif isinstance(found, type):
            if found.__module__ == module.__name__:
                waiting.extend(vars(found).values())
        elif isinstance(found, property):
            waiting += [found.fget, found.fset]
        elif isinstance(found, staticmethod | classmethod):
            waiting.append(found.__func__)
        else:
            waiting += [getattr(found, "__wrapped__", None), getattr(found, "func", None)]
