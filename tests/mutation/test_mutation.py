"""Tests of the mutation tools: the faults that they make, the limits of the runs, and the report."""

from __future__ import annotations

import ast
import itertools
import os
import signal
import subprocess
import sys
import time
from array import array
from collections import Counter
from pathlib import Path

import pytest
from covering import FILE_S, Cover
from judging import Verdict, contained, verdict_of
from mutating import ROOT, Finding, drawn, equivalents, interval, markdown, modules, tables
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


def test_the_faults_that_are_made() -> None:
    """Each fault is small, is made once, and is none that no test could see."""
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


@pytest.mark.parametrize("module", ["core/base/timers.py", "core/wire/ndjson.py"])
def test_a_mutant_has_its_one_fault(module: str) -> None:
    """Each mutant compiles, and differs from the module and from all others. Its name identifies it."""
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


def test_the_lines_of_a_mutant() -> None:
    """A mutant has its own lines, and those of the statement around it, without the statements in that."""
    source = "def f(a):\n    if (\n        a\n        > 3\n    ):\n        g(a)\n"
    spans = {mutant.change: mutant.spans for mutant in mutants_of(source)}
    assert spans == {
        "a > 3 -> a >= 3": (range(3, 5), range(2, 6)),
        "3 -> 4": (range(4, 5), range(2, 6)),
        "g(a) -> nothing": (range(6, 7), range(6, 7)),
    }


def test_the_choice_of_tests_for_a_mutant() -> None:
    """Tests in the module's own file come first, then the quickest of each file. For a table, all tests that run its
    module."""
    own, whole, other = "tests/core/test_part.py::", "tests/core/test_whole.py::", "tests/core/test_other.py::"
    seconds = {
        own + "slow": 1.0,
        own + "quick": 0.1,
        whole + "a": 0.1,
        whole + "b": 0.05,
        whole + "c": 0.06,
        other + "d": 0.2,
    }
    tests = list(seconds)
    lines = {7: array("I", [3, 0, 1, 4, 5]), 8: array("I", [2])}
    cover = Cover(tests, {"core/part.py": lines}, seconds, {"core/part.py": {1}})

    def asked(own_line: int, statement: range, budget_s: float) -> list[str]:
        mutant = Mutant("", "", own_line, (0, 0), (range(own_line, own_line + 1), statement))
        return [test.rpartition(":")[2] for test in cover.tests_of("core/part.py", mutant, budget_s)]

    assert asked(7, range(7, 8), 9.0) == ["quick", "slow", "b", "d", "c"]
    assert asked(7, range(7, 8), 1.2) == ["quick", "slow", "b"]
    assert asked(6, range(6, 9), 9.0) == ["quick", "slow", "b", "d", "c", "a"]  # no test runs the line itself
    assert asked(1, range(1, 2), 9.0) == ["quick", "slow", "b", "d", "c", "a"]
    assert asked(1, range(1, 2), 1.1 + FILE_S) == ["quick", "slow"]  # each file has to be imported
    assert asked(9, range(9, 10), 9.0) == []

    declared = Mutant("", "", 1, (0, 0), (range(1, 2), range(1, 2)))
    cover = Cover(tests, {}, seconds, {"core/part.py": {1}, "core/such.py": {1}})
    found = cover.tests_of("core/part.py", declared, 9.0)
    assert found == [own + "quick", own + "slow"], "it has nothing but declarations"
    assert cover.tests_of("core/such.py", declared, 9.0) == []


def test_every_run_ends() -> None:
    """A function that loops, waits, grows, raises or leaves children comes to an end, with the right verdict."""

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

    assert contained(loop, cpu_s=1, wall_s=600) == -signal.SIGXCPU
    assert contained(wait, cpu_s=1, wall_s=0.2) is None
    assert contained(grow, cpu_s=5, wall_s=600) == 3
    assert contained(leave, cpu_s=5, wall_s=600) == 7
    os.close(writer)
    assert os.read(reader, 1) == b""  # no process has the other end open any more
    os.close(reader)


def test_only_cpu_time_ends_a_mutant() -> None:
    """A mutant that waits gives no verdict, as the machine may be busy. One that crashes is seen."""
    codes = {
        0: "SURVIVED",
        1: "KILLED",
        3: "KILLED",
        -signal.SIGSEGV: "KILLED",
        -signal.SIGXCPU: "ENDED",
        None: "UNSURE",
    }
    assert {code: verdict_of(code).name for code in codes} == codes
    with pytest.raises(AssertionError):
        verdict_of(pytest.ExitCode.NO_TESTS_COLLECTED)


TRIAL = """
import ast, os, sys
sys.path.insert(0, sys.argv[1])
from judging import judge
from mutating import ROOT
from mutators import mutants_of, mutated

os.chdir(ROOT)
path = ROOT / "core" / "base" / "name_filter.py"
source = path.read_text()
(fault,) = (one for one in mutants_of(source) if one.change.startswith("entry == name ->"))
tests = sys.argv[2:]
for tree, asked in ((ast.parse(source), tests), (mutated(source, fault), tests), (mutated(source, fault), [])):
    print(judge(path, tree, asked, [], 0.1).name)
"""

REHEARSED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mutating import ROOT
from mutators import mutants_of, mutated
from rehearsing import Rehearsal

os.chdir(ROOT)
module, tests = "core/base/name_filter.py", sys.argv[2:]
source = (ROOT / module).read_text()
with Rehearsal([tests[0].partition("::")[0]], dict.fromkeys(tests, 0.1)) as rehearsal:
    print("none", rehearsal.judge(module, compile(source, module, "exec"), tests))
    for mutant in mutants_of(source):
        if "entry == name ->" in mutant.change:
            faulty = compile(mutated(source, mutant), module, "exec")
            for asked in (tests, tests[:1], ["unknown"]):
                print(rehearsal.judge(module, faulty, asked))
    print(rehearsal.judge(module, compile(source.replace("any(entry", "exit() or any(entry"), module, "exec"), tests))
"""


def _output_of(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tests_are_shown_the_mutant() -> None:
    """The module without the fault passes."""
    # There is no such test: tests that it does not know run too.
    output = _output_of(TRIAL, "tests/core/base/test_name_filter.py::test_of_that_name")
    assert output.split() == ["SURVIVED", "KILLED", "UNSEEN"]


def test_a_test_that_fails_without_the_fault_has_not_seen_it(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text("def test_fails():\n    assert False\n")
    output = _output_of(TRIAL, f"{tmp_path}/test_failing.py::test_fails")
    assert output.split() == ["UNSURE", "UNSURE", "UNSEEN"]


def test_imported_tests_are_shown_the_mutant() -> None:
    """Mutants run in one process, one after another. A fault outside of functions is not shown."""
    file = "tests/core/base/test_name_filter.py::"
    blind, seeing = (
        f"{file}test_single_names[R12 none-include0-exclude0-anything-True]",
        f"{file}test_single_names[brackets in a name-include5-exclude5-get[1]-True]",
    )
    assert _output_of(REHEARSED, blind, seeing).splitlines() == [
        "none None",
        f"(<Verdict.KILLED: 'killed'>, '{seeing}')",
        "(<Verdict.SURVIVED: 'survived'>, '')",
        "(<Verdict.UNSEEN: 'unseen'>, '')",
        f"(<Verdict.KILLED: 'killed'>, '{blind}')",
    ]


def test_all_mutants_have_the_same_chance() -> None:
    """Each mutant is drawn once. Equal seeds draw alike, and of many draws each mutant begins some."""
    found = {name: [Mutant("", f"{name}{n}", n, (n, 0)) for n in range(size)] for name, size in (("a", 5), ("b", 2))}
    order = drawn(found, 3)
    assert sorted(mutant.change for _, mutant in order) == ["a0", "a1", "a2", "a3", "a4", "b0", "b1"]
    assert order == drawn(found, 3) != drawn(found, 4)
    firsts = Counter(drawn(found, seed)[0][1].change for seed in range(700))
    assert len(firsts) == 7
    assert all(70 < count < 130 for count in firsts.values())


def test_the_interval_of_an_estimate() -> None:
    """The interval contains the drawn share, and narrows with more draws. Some values are known."""
    assert interval(0, 0) == (0.0, 1.0)
    assert [round(end, 3) for end in interval(90, 100)] == [0.826, 0.945]
    assert [round(end, 3) for end in interval(10, 10)] == [0.722, 1.0]
    for seen, due in itertools.combinations(range(40), 2):
        low, high = interval(seen, due)
        nearer = interval(10 * seen, 10 * due)
        assert 0 <= low <= nearer[0] <= seen / due <= nearer[1] < high <= 1


def test_the_report_counts() -> None:
    """A mutant with a reason does not count against the tests. One that no test runs does."""
    verdicts = [Verdict.KILLED, Verdict.ENDED, Verdict.SURVIVED, Verdict.UNSEEN, Verdict.EQUIVALENT, Verdict.UNSURE]
    findings = [Finding("core/a.py", Mutant("f", f"{n} -> {n + 1}", n, (n, 0)), one) for n, one in enumerate(verdicts)]
    findings.append(Finding("core/b.py", Mutant("g", "0 -> 1", 7, (0, 0)), Verdict.KILLED))
    report = tables(findings, {"core/a.py": 9, "core/b.py": 3}, seed=1)
    assert report["modules"]["core/a.py"]["score"] == 0.5
    assert markdown(report).splitlines()[2:] == [
        "| `core/a.py` | 9 | 6 | 2 | 1 | 1 | 2 |",
        "| `core/b.py` | 3 | 1 | 1 | 0 | 0 | 0 |",
        "| together | 12 | 7 | 3 | 1 | 1 | 2 |",
        "",
        "Seen: 3 of 5, 60.0%; of all 23.1% to 88.2%.",
        "",
        "- `core/a.py:2` survived: `f: 2 -> 3`",
        "- `core/a.py:3` unseen: `f: 3 -> 4`",
    ]


def test_every_equivalent_is_a_mutant_with_a_reason() -> None:
    """An entry for a mutant that is gone or misspelt would hide another one."""
    for module, reasons in equivalents().items():
        names = {mutant.name for mutant in mutants_of((ROOT / module).read_text(encoding="utf-8"))}
        assert set(reasons) <= names
        assert all(len(reason) > 10 for reason in reasons.values())


def test_modules_are_chosen_by_file_and_folder() -> None:
    assert modules(["core/base/timers.py"]) == ["core/base/timers.py"]
    assert set(modules(["core/wire/"])) == set(modules(["core/wire"])) < set(modules([]))


def test_a_fault_in_a_table_is_shown_to_the_tests_named_after_its_module() -> None:
    """No test runs the lines of a table, nor those of a module with tables alone. Tests of all tables do not run them
    either."""
    tests = [f"tests/core/test_{name}" for name in ("part_rules.py::a", "enum_values.py::c", "other.py::b")]
    cover = Cover(tests, {"core/part.py": {}}, dict.fromkeys(tests, 1.0), {"core/part.py": {1, 7}})
    for line, shown in ((1, tests[:2]), (7, tests[:2]), (3, [])):
        mutant = Mutant("", "", line, (0, 0), (range(line, line + 1), range(line, line + 1)))
        assert sorted(cover.tests_of("core/part.py", mutant, 9.0)) == sorted(shown)
    in_folder = Cover(tests, {"core/part/rows.py": {}}, dict.fromkeys(tests, 1.0), {"core/part/rows.py": {1}})
    found = in_folder.tests_of("core/part/rows.py", Mutant("", "", 1, (0, 0), (range(1, 2), range(1, 2))), 9.0)
    assert sorted(found) == sorted(tests[:2])
