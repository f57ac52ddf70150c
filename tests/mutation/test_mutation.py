"""What puts faults into the core: which it makes, that none can escape its limits, and that the report is true."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from covering import FILE_S, Cover
from judging import Verdict, contained
from mutating import ROOT, Finding, drawn, equivalents, markdown, modules, tables
from mutators import Mutant, mutants_of, mutated

SOURCE = '''
"""A module."""
LIMIT: Final = 3

class Tally:
    __slots__ = ("count",)

    def add(self, given: int = 0) -> bool:
        """Words."""
        assert given >= 0
        if given < LIMIT and not self.is_full:
            self.count += given
            note(f"{given + 1}", "a sentence", "word")
        while self.count:
            break
        return {"a": 1, b"b": True}
'''


def test_which_faults_are_made() -> None:
    """Each small, each once, and none where nobody would see it."""
    found = [mutant.name for mutant in mutants_of(SOURCE)]
    assert sorted(found) == sorted(
        [
            "module: 3 -> 4",
            "Tally.add: 0 -> 1",
            "Tally.add: given < LIMIT and (not self.is_full) -> given < LIMIT or not self.is_full",
            "Tally.add: given < LIMIT -> given <= LIMIT",
            "Tally.add: not self.is_full -> self.is_full",
            "Tally.add: self.count += given -> self.count -= given",
            "Tally.add: note(f'{given + 1}', 'a sentence', 'word') -> nothing",
            "Tally.add: 'word' -> 'wordQ'",
            "Tally.add: while self.count -> while not self.count",
            "Tally.add: break -> continue",
            "Tally.add: return {'a': 1, b'b': True} -> return None",
            "Tally.add: {'a': 1, b'b': True} -> {b'b': True}",
            "Tally.add: {'a': 1, b'b': True} -> {'a': 1}",
            "Tally.add: 'a' -> 'aQ'",
            "Tally.add: b'b' -> b'bQ'",
            "Tally.add: 1 -> 2",
            "Tally.add: True -> False",
        ]
    )


@pytest.mark.parametrize("module", ["core/timers.py", "core/wire/ndjson.py"])
def test_a_mutant_has_its_one_fault(module: str) -> None:
    """Each compiles, differs from the module, and from all others; its name says which it is."""
    source = (ROOT / module).read_text(encoding="utf-8")
    mutants = mutants_of(source)
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 30
    texts = {ast.unparse(ast.parse(source))}
    for mutant in mutants[::7]:
        tree = mutated(source, mutant)
        compile(tree, module, "exec")
        assert ast.unparse(tree) not in texts
        texts.add(ast.unparse(tree))


def test_equal_changes_of_a_function_have_names_of_their_own() -> None:
    first, second = mutants_of("def f(a):\n    g()\n    g()\n")
    assert (first.name, second.name) == ("f: g() -> nothing", "f: g() -> nothing #2")
    assert ast.unparse(mutated("def f(a):\n    g()\n    h(g())\n    g()\n", second)).count("g()") == 2


def test_who_is_asked() -> None:
    """Tests in the module's own file first, quick ones first, as many as fit; for a table all that run its module."""
    own, other = "tests/core/test_part.py::", "tests/core/test_whole.py::"
    seconds = {own + "slow": 1.0, own + "quick": 0.1, other + "a": 0.1, other + "b": 0.05}
    cover = Cover({"core/part.py": {7: [other + "b", own + "slow", own + "quick"], 8: [other + "a"]}}, seconds)
    assert cover.tests_of("core/part.py", 7, 9.0) == [own + "quick", own + "slow", other + "b"]
    assert cover.tests_of("core/part.py", 7, 1.1 + FILE_S) == [own + "quick", own + "slow"]
    assert cover.tests_of("core/part.py", 1, 9.0) == [own + "quick", own + "slow", other + "b", other + "a"]
    assert cover.tests_of("core/none.py", 1, 9.0) == []


def test_nothing_escapes() -> None:
    """What loops, waits, grows, raises or leaves children comes to an end, and says how."""

    def loop() -> int:
        while True:
            pass

    def wait() -> int:
        time.sleep(600)
        return 0

    def grow() -> int:
        return len(bytearray(2**40))

    reader, writer = os.pipe()

    def leave() -> int:
        if os.fork() == 0:
            os.set_inheritable(writer, True)
            time.sleep(600)
        return 7

    assert contained(loop, cpu_s=1, wall_s=600) is None
    assert contained(wait, cpu_s=1, wall_s=0.2) is None
    assert contained(grow, cpu_s=5, wall_s=600) == 3
    assert contained(leave, cpu_s=5, wall_s=600) == 7
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody holds the other end any more
    os.close(reader)


TRIAL = """
import ast, os, sys
sys.path.insert(0, sys.argv[1])
from judging import judge
from mutating import ROOT
from mutators import mutants_of, mutated

os.chdir(ROOT)
path = ROOT / "core" / "selection.py"
source = path.read_text()
(fault,) = (one for one in mutants_of(source) if one.change.startswith("entry == name ->"))
tests = sys.argv[2:]
for tree, asked in ((ast.parse(source), tests), (mutated(source, fault), tests), (mutated(source, fault), [])):
    print(judge(path, tree, asked, [], 0.1).name)
"""


def test_tests_are_shown_the_mutant() -> None:
    """And not the module, which passes."""
    test = "tests/core/test_selection.py::test_of_that_name"  # none: those it does not know are run as well
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(Path(__file__).parent), test],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["SURVIVED", "KILLED", "UNSEEN"]


def test_modules_take_turns() -> None:
    """Each mutant once; equal seeds draw alike."""
    found = {name: [Mutant("", f"{name}{n}", n, (n, 0)) for n in range(size)] for name, size in (("a", 5), ("b", 2))}
    order = list(drawn(found, 3))
    assert [module for module, _ in order] == ["a", "b", "a", "b", "a", "a", "a"]
    assert {mutant.change for _, mutant in order} == {"a0", "a1", "a2", "a3", "a4", "b0", "b1"}
    assert order == list(drawn(found, 3)) != list(drawn(found, 4))


def test_the_report_counts() -> None:
    """What must survive is not held against the tests; what nobody runs is."""
    verdicts = [Verdict.KILLED, Verdict.ENDED, Verdict.SURVIVED, Verdict.UNSEEN, Verdict.EQUIVALENT]
    findings = [Finding("core/a.py", Mutant("f", f"{n} -> {n + 1}", n, (n, 0)), one) for n, one in enumerate(verdicts)]
    told = tables(findings, {"core/a.py": 9}, seed=1)
    assert told["modules"]["core/a.py"]["score"] == 0.5
    assert markdown(told).splitlines()[2:] == [
        "| `core/a.py` | 9 | 5 | 2 | 1 | 2 | 50% |",
        "- `core/a.py:2` survived: `f: 2 -> 3`",
        "- `core/a.py:3` unseen: `f: 3 -> 4`",
    ]


def test_every_equivalent_is_a_mutant_with_a_reason() -> None:
    """One that has gone, or was misspelt, would hide another."""
    for module, reasons in equivalents().items():
        names = {mutant.name for mutant in mutants_of((ROOT / module).read_text(encoding="utf-8"))}
        assert set(reasons) <= names
        assert all(len(reason) > 10 for reason in reasons.values())


def test_modules_are_chosen_by_file_and_folder() -> None:
    assert modules(["core/timers.py"]) == ["core/timers.py"]
    assert set(modules(["core/wire/"])) == set(modules(["core/wire"])) < set(modules([]))
