"""Puts small faults into the core, one at a time, and reports which of them no test sees.

    make mutants SECONDS=600 ONLY='core/base/timers.py core/wire'

A surviving fault shows that a test is missing, or it changes nothing that matters. The latter are listed in
`equivalent.toml`, each with its reason. The faults are drawn at random by SEED, all with the same chance, so that the
share of seen faults is an estimate for all. The exit code is 1 if a fault survived without a reason.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, NamedTuple

import covering
from covering import ROOT, Cover
from judging import EXAMPLES, Verdict, contained, judge
from mutators import Mutant, mutants_of, mutated
from rehearsing import Rehearsal

TESTS_MAX_S: Final = 6.0
"""The CPU time of the tests for one mutant, as measured with coverage, which doubles it."""
AGAIN_MAX_S: Final = 60.0
"""The CPU time of the tests for a mutant that survived the first."""
EXAMPLES_AGAIN: Final = 50
"""The examples of a property among these, as many as in every run of the tests."""
MEASURE_MAX_S: Final = 120
"""The CPU limit for measuring one file of tests."""
MEASURE_WALL_MAX_S: Final = 300
"""The wall limit for measuring one file. Files that exceed it wait for processes, and are left out."""
SEEN: Final = (Verdict.KILLED, Verdict.ENDED)


class Finding(NamedTuple):
    module: str
    mutant: Mutant
    verdict: Verdict
    seen_by: str = ""


def equivalents() -> dict[str, dict[str, str]]:
    """Returns, by module and name, the reason why a mutant is no fault."""
    return tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))


def modules(only: Sequence[str]) -> list[str]:
    """Returns the modules of these files or folders, or of the whole core."""
    wanted = tuple(one if one.endswith(".py") else f"{one.rstrip('/')}/" for one in only) or ("",)
    paths = (path.relative_to(ROOT).as_posix() for path in (ROOT / "core").glob("**/*.py"))
    return sorted(path for path in paths if path.startswith(wanted) and not path.endswith("__init__.py"))


def drawn(found: Mapping[str, list[Mutant]], seed: int) -> list[tuple[str, Mutant]]:
    """Returns every mutant once, in random order."""
    every = [(module, mutant) for module, mutants in found.items() for mutant in mutants]
    random.Random(seed).shuffle(every)
    return every


def examine(
    order: Sequence[tuple[str, Mutant]],
    cover: Cover,
    give_up_at: float,
    again_s: float,
    reasons: Mapping[str, Mapping[str, str]],
) -> Iterator[Finding]:
    """Yields the finding for each mutant in turn, until time is up.

    Args:
        again_s: the CPU time of further tests for a mutant that survived the first.
        reasons: by module and name, the mutants that are not tried.
    """
    with Rehearsal(sorted({test.partition("::")[0] for test in cover.seconds}), cover.seconds) as rehearsal:
        for module, mutant in order:
            if time.monotonic() > give_up_at:
                return
            if mutant.name in reasons.get(module, {}):
                yield Finding(module, mutant, Verdict.EQUIVALENT)
                continue
            tests = cover.tests_of(module, mutant, TESTS_MAX_S)
            found = shown(module, mutant, tests, cover, rehearsal, EXAMPLES)
            if found.verdict in (Verdict.SURVIVED, Verdict.UNSEEN) and again_s:
                others = cover.tests_of(module, mutant, again_s, frozenset(tests))
                if (later := shown(module, mutant, others, cover, rehearsal, EXAMPLES_AGAIN)).verdict != Verdict.UNSEEN:
                    found = later
            yield found


def shown(
    module: str, mutant: Mutant, tests: Sequence[str], cover: Cover, rehearsal: Rehearsal, examples: int
) -> Finding:
    if not tests:
        return Finding(module, mutant, Verdict.UNSEEN)
    path = ROOT / module
    tree = mutated(path.read_text(encoding="utf-8"), mutant)
    if not cover.runs_at_import(module, mutant):
        found = rehearsal.judge(module, compile(tree, str(path), "exec"), tests, examples)
        if found is not None:
            return Finding(module, mutant, *found)
    cpu_s = sum(cover.seconds[test] for test in tests)
    return Finding(module, mutant, judge(path, tree, tests, cover.seconds, cpu_s))


def side_by_side(
    order: Sequence[tuple[str, Mutant]],
    cover: Cover,
    *,
    jobs: int,
    seconds: float,
    again_s: float,
    reasons: Mapping[str, Mapping[str, str]],
) -> Iterator[Finding]:
    """Yields the findings of `jobs` processes, each with a share of the mutants."""
    give_up_at = time.monotonic() + seconds
    running: list[Connection] = []
    for job in range(jobs):
        ours, theirs = Pipe(duplex=False)
        if os.fork() == 0:
            for other in (ours, *running):
                other.close()
            code = 1
            try:
                for finding in examine(order[job::jobs], cover, give_up_at, again_s, reasons):
                    theirs.send(finding)
                code = 0
            except (KeyboardInterrupt, BrokenPipeError):
                code = 0
            except Exception:
                traceback.print_exc()  # the other processes go on
            finally:
                theirs.close()
                os._exit(code)
        theirs.close()
        running.append(ours)
    while running:
        for each in wait(running):
            try:
                yield each.recv()  # type: ignore[union-attr]
            except EOFError:
                running.remove(each)  # type: ignore[arg-type]


def interval(seen: int, due: int) -> tuple[float, float]:
    """Returns the interval for the share of all seen faults, with a probability of 95 %, if `seen` of `due` drawn at
    random were seen (Wilson)."""
    if due == 0:
        return 0.0, 1.0
    z, share = 1.96, seen / due
    middle = (share + z * z / (2 * due)) / (1 + z * z / due)
    reach = z * math.sqrt(share * (1 - share) / due + z * z / (4 * due * due)) / (1 + z * z / due)
    return min(max(0.0, middle - reach), share), max(min(1.0, middle + reach), share)


def tables(findings: Sequence[Finding], totals: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Returns the report: the number of mutants of each module, the findings, and the survivors."""
    report: dict[str, Any] = {"seed": seed, "modules": {}}
    for module in sorted({finding.module for finding in findings}):
        mine = [finding for finding in findings if finding.module == module]
        count = Counter(finding.verdict for finding in mine)
        due = len(mine) - count[Verdict.EQUIVALENT] - count[Verdict.UNSURE]
        report["modules"][module] = {
            "mutants": totals[module],
            "tried": len(mine),
            **{verdict.value: count[verdict] for verdict in Verdict},
            "score": round(sum(count[verdict] for verdict in SEEN) / due, 3) if due else 1.0,
            "survivors": [
                {"line": finding.mutant.line, "name": finding.mutant.name, "verdict": finding.verdict.value}
                for finding in mine
                if finding.verdict in (Verdict.SURVIVED, Verdict.UNSEEN)
            ],
        }
    return report


def markdown(report: Mapping[str, Any]) -> str:
    columns = ("mutants", "tried", "seen", "equivalent", "unsure", "survived")
    lines = [f"| Module | {' | '.join(columns).title()} |", "| --- |" + " ---: |" * len(columns)]
    total: Counter[str] = Counter()
    for module, row in report["modules"].items():
        seen, survived = row["killed"] + row["ended"], row["survived"] + row["unseen"]
        cells = (row["mutants"], row["tried"], seen, row["equivalent"], row["unsure"], survived)
        total.update(dict(zip(columns, cells, strict=True)))
        lines.append(f"| `{module}` | " + " | ".join(str(cell) for cell in cells) + " |")
    lines.append("| together | " + " | ".join(str(total[column]) for column in columns) + " |")
    due = total["seen"] + total["survived"]
    low, high = interval(total["seen"], due)
    lines += [
        "",
        f"Seen: {total['seen']} of {due}, {total['seen'] / max(due, 1):.1%}; of all {low:.1%} to {high:.1%}.",
        "",
    ]
    for module, row in report["modules"].items():
        lines += [f"- `{module}:{one['line']}` {one['verdict']}: `{one['name']}`" for one in row["survivors"]]
    return "\n".join(lines) + "\n"


def measured(folder: Path, jobs: int) -> Cover:
    files = covering.test_files()
    cover, missing = covering.load(folder, files)
    helpers = []
    for job in range(jobs if missing else 0):
        if (pid := os.fork()) == 0:
            for file in missing[job::jobs]:
                print(f"seeing what {file} runs …", flush=True)
                contained(partial(measure, folder, file), cpu_s=MEASURE_MAX_S, wall_s=MEASURE_WALL_MAX_S)
            os._exit(0)
        helpers.append(pid)
    for pid in helpers:
        os.waitpid(pid, 0)
    if missing:
        cover, missing = covering.load(folder, files)
    for file in missing:
        print(f"{file} could not be run, and is left out", flush=True)
    return cover


def doubt(order: Sequence[tuple[str, Mutant]], tried: Iterator[Finding]) -> int:
    """Counts mutants that are listed as no fault and are seen nevertheless. Their entries are wrong."""
    verdicts: Counter[Verdict] = Counter()
    for module, mutant, verdict, seen_by in tried:
        verdicts[verdict] += 1
        if verdict in SEEN:
            print(f"{module}:{mutant.line}: {verdict.value}, by {seen_by}: {mutant.name}", flush=True)
    wrong = sum(verdicts[verdict] for verdict in SEEN)
    print(f"{sum(verdicts.values())} of {len(order)} tried, {wrong} are faults")
    return 1 if wrong else 0


def measure(folder: Path, file: str) -> int:
    covering.measure(folder, file)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--count", type=int, default=None, help="of mutants; as many as there is time for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=float, default=AGAIN_MAX_S, help="CPU seconds of tests for each that survives")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--again", action="store_true", help="those that survived the last time")
    parser.add_argument("--equivalent", action="store_true", help="those that are named as no faults: none may be seen")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)  # child processes end with this one, wherever it was started
    cover = measured(given.folder, given.jobs)
    found = {module: mutants_of((ROOT / module).read_text(encoding="utf-8")) for module in modules(given.only)}
    if not any(found.values()):
        sys.exit(f"there are no mutants of {', '.join(given.only)}")
    order = drawn(found, given.seed)[: given.count]
    if given.again:
        last = json.loads((given.folder / "report.json").read_bytes())["modules"]
        names = {(module, one["name"]) for module, row in last.items() for one in row["survivors"]}
        order = [each for each in drawn(found, given.seed) if (each[0], each[1].name) in names]
    reasons = equivalents()
    if given.equivalent:
        order = [each for each in drawn(found, given.seed) if each[1].name in reasons.get(each[0], {})]
        return doubt(
            order, side_by_side(order, cover, jobs=given.jobs, seconds=given.seconds, again_s=given.tests, reasons={})
        )
    findings: list[Finding] = []
    began = time.monotonic()
    try:
        tried = side_by_side(order, cover, jobs=given.jobs, seconds=given.seconds, again_s=given.tests, reasons=reasons)
        for finding in tried:
            findings.append(finding)
            module, mutant, verdict, _ = finding
            if verdict not in (*SEEN, Verdict.EQUIVALENT):
                print(f"{module}:{mutant.line}: {verdict.value}: {mutant.name}", flush=True)
    except KeyboardInterrupt:
        print("stopped: what follows is of those that were tried")
    print(f"{len(findings)} in {time.monotonic() - began:.0f} s")
    report = tables(findings, {module: len(mutants) for module, mutants in found.items()}, given.seed)
    kept = given.folder / ("again" if given.again else "report")
    kept.with_suffix(".json").write_text(json.dumps(report, indent=1))
    kept.with_suffix(".md").write_text(markdown(report))
    print(markdown(report))
    return 1 if any(row["survivors"] for row in report["modules"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
