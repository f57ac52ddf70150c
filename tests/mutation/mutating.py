"""Puts small faults into the core, one at a time, and says which of them no test sees.

    make mutants SECONDS=600 ONLY='core/timers.py core/wire'

A fault that survives is a test that is missing, or changes nothing that matters: such are named in `equivalent.toml`,
each with its reason. Modules take turns, with faults drawn at random by SEED, so that whatever time there is tells
something of each. Ends with 1 if there were survivors without a reason.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import covering
from covering import ROOT, Cover
from judging import WALL_TIMES, Verdict, contained, judge
from mutators import Mutant, mutants_of, mutated

TESTS_MAX_S: Final = 2.0
"""CPU time of the tests that one mutant is shown."""
MEASURE_MAX_S: Final = 120
"""CPU time of one file of tests, all that it runs noted."""
SEEN: Final = (Verdict.KILLED, Verdict.ENDED)


class Finding(NamedTuple):
    module: str
    mutant: Mutant
    verdict: Verdict


def equivalents() -> dict[str, dict[str, str]]:
    """By module and name, why a mutant is no fault."""
    return tomllib.loads(Path(__file__).with_name("equivalent.toml").read_text(encoding="utf-8"))


def modules(only: Sequence[str]) -> list[str]:
    """Those asked for, as files or folders; the whole core else."""
    wanted = tuple(one if one.endswith(".py") else f"{one.rstrip('/')}/" for one in only) or ("",)
    paths = (path.relative_to(ROOT).as_posix() for path in (ROOT / "core").glob("**/*.py"))
    return sorted(path for path in paths if path.startswith(wanted) and not path.endswith("__init__.py"))


def drawn(found: Mapping[str, list[Mutant]], seed: int) -> Iterator[tuple[str, Mutant]]:
    """Every mutant once: one of each module in turn, each module's in random order."""
    rng = random.Random(seed)
    rows = [[(module, mutant) for mutant in rng.sample(mutants, len(mutants))] for module, mutants in found.items()]
    for row in itertools.zip_longest(*rows):
        yield from (one for one in row if one is not None)


def examine(found: Mapping[str, list[Mutant]], cover: Cover, *, seconds: float, seed: int) -> Iterator[Finding]:
    reasons = equivalents()
    give_up_at = time.monotonic() + seconds
    for module, mutant in drawn(found, seed):
        if time.monotonic() > give_up_at:
            return
        if mutant.name in reasons.get(module, {}):
            yield Finding(module, mutant, Verdict.EQUIVALENT)
            continue
        path = ROOT / module
        tests = cover.tests_of(module, mutant.line, TESTS_MAX_S)
        cpu_s = sum(cover.seconds[test] for test in tests)
        tree = mutated(path.read_text(encoding="utf-8"), mutant)
        yield Finding(module, mutant, judge(path, tree, tests, cover.seconds, cpu_s))


def tables(findings: Sequence[Finding], totals: Mapping[str, int], seed: int) -> dict[str, Any]:
    """The report: how many mutants each module has, what became of those that were tried, and the survivors."""
    told: dict[str, Any] = {"seed": seed, "modules": {}}
    for module in sorted({finding.module for finding in findings}):
        mine = [finding for finding in findings if finding.module == module]
        count = Counter(finding.verdict for finding in mine)
        due = len(mine) - count[Verdict.EQUIVALENT]
        told["modules"][module] = {
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
    return told


def markdown(told: Mapping[str, Any]) -> str:
    lines = ["| Module | Mutants | Tried | Seen | Equivalent | Survived | Score |", "| --- |" + " ---: |" * 6]
    for module, row in told["modules"].items():
        seen, survived = row["killed"] + row["ended"], row["survived"] + row["unseen"]
        cells = (row["mutants"], row["tried"], seen, row["equivalent"], survived, f"{row['score']:.0%}")
        lines.append(f"| `{module}` | " + " | ".join(str(cell) for cell in cells) + " |")
    for module, row in told["modules"].items():
        lines += [f"- `{module}:{one['line']}` {one['verdict']}: `{one['name']}`" for one in row["survivors"]]
    return "\n".join(lines) + "\n"


def measured(folder: Path, only: Sequence[str]) -> Cover:
    files = covering.test_files(modules(only) if only else [])
    cover, missing = covering.load(folder, files)
    for file in missing:
        print(f"seeing what {file} runs …", flush=True)
        contained(partial(measure, folder, file), cpu_s=MEASURE_MAX_S, wall_s=MEASURE_MAX_S * WALL_TIMES)
    if missing:
        cover, missing = covering.load(folder, files)
    for file in missing:
        print(f"{file} could not be run, and is left out", flush=True)
    return cover


def measure(folder: Path, file: str) -> int:
    covering.measure(folder, file)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("only", nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)  # what is at hand ends with us, wherever we were started
    cover = measured(given.folder, given.only)
    chosen = [module for module in modules(given.only) if module in cover.lines]
    found = {module: mutants_of((ROOT / module).read_text(encoding="utf-8")) for module in chosen}
    if not found:
        sys.exit(f"no test runs any of {', '.join(given.only)}")
    findings: list[Finding] = []
    try:
        for finding in examine(found, cover, seconds=given.seconds, seed=given.seed):
            findings.append(finding)
            module, mutant, verdict = finding
            if verdict in (Verdict.SURVIVED, Verdict.UNSEEN):
                print(f"{module}:{mutant.line}: {verdict.value}: {mutant.name}", flush=True)
    except KeyboardInterrupt:
        print("stopped: what follows is of those that were tried")
    told = tables(findings, {module: len(mutants) for module, mutants in found.items()}, given.seed)
    (given.folder / "report.json").write_text(json.dumps(told, indent=1))
    (given.folder / "report.md").write_text(markdown(told))
    print(markdown(told))
    return 1 if any(row["survivors"] for row in told["modules"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
