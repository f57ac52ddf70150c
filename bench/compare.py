"""Compares the cost of a call with that at a commit: `python bench/compare.py BASE [options of run.py]`.

`make bench-compare BASE=…` runs it. Both versions take turns in one run, with the same interpreter and dependencies, so
their ratio depends on the code alone.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

import run
from programs import BUILD, PACKAGES, ROOT, Programs, allow_open_files, build, compile_python
from report import number, table
from subjects import MODULE, STARTERS, Route, Start, Starter
from targets import Figures

OURS: Final = ("isthmus", "isthmus-anyio", "isthmus-shared", "isthmus-sqlite")
FIGURES: Final = (("cpu_us", 1, "CPU µs"), ("p50_us", 1000, "p50 ms"), ("growth_kb", 1024, "+ MiB"))


def check_out(base: str) -> Path:
    """Returns a folder that has the package `isthmus` as of `base`, for the front of the module path."""
    commit = subprocess.run(
        ["git", "rev-parse", "--verify", f"{base}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    if not commit:
        sys.exit(f"got {base!r}, expected a commit of this repository")
    folder = BUILD / f"base-{commit[:12]}"
    if not folder.exists():
        scratch = BUILD / f"base-{commit[:12]}.{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "isthmus").mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit, *PACKAGES], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", scratch / "isthmus"], input=archive.stdout, check=True)
        compile_python(scratch / "isthmus")
        scratch.rename(folder)
    return folder


def at_base(starter: Starter, folder: Path) -> Starter:
    # Commits before `app/main.py` have the command in a module `app/cli.py`.
    module = MODULE if (folder / "isthmus/app/main.py").exists() else "isthmus.app.cli"

    def start(route: Route, port: int, upstream: str | list[str], scratch: Path) -> Start | None:
        found = starter(route, port, upstream, scratch)
        command = [module if part == MODULE else part for part in found.command] if found else []
        return found and Start(command, found.path, (*found.env, ("PYTHONPATH", str(folder))))

    return start


def rows_of(workload: str, figures: dict[str, Figures]) -> list[list[str]]:
    """Returns a row for each figure of each subject of ours that was measured at both commits."""
    rows = []
    for name in OURS:
        now, then = figures.get(name), figures.get(f"{name}@base")
        if now and then:
            for figure, unit, title in FIGURES:
                ratio = number(now[figure] / then[figure]) if then[figure] else "–"
                rows.append([workload, name, title, number(then[figure], unit), number(now[figure], unit), ratio])
    return rows


def main(arguments: list[str]) -> None:
    base, *rest = arguments
    options = run.parser().parse_args(rest)
    build()
    allow_open_files()
    folder = check_out(base)
    STARTERS.update({f"{name}@base": at_base(STARTERS[name], folder) for name in OURS})
    rows, ratios = [], []
    with Programs() as programs:
        measuring = run.Run(programs, seconds=options.seconds, calls_max=options.calls)
        for workload in run.chosen(options):
            names = [name for name in workload.subjects if name in OURS]
            subjects = tuple(subject for name in names for subject in (f"{name}@base", name))
            for _, figures in run.measured(measuring, [workload], options.rounds, subjects=subjects):
                rows += rows_of(workload.name, figures)
                both = [name for name in names if name in figures and f"{name}@base" in figures]
                ratios += [figures[name]["cpu_us"] / figures[f"{name}@base"]["cpu_us"] for name in both]
                print(f"{workload.name}: {run.summary(figures)}", file=sys.stderr, flush=True)
    print(table(("workload", "through", "figure", base, "now", "ratio"), rows))
    if ratios:
        print(f"\nCPU time, geometric mean of all: {statistics.geometric_mean(ratios):.3f} of {base}")
    for name, why in measuring.absent.items():
        print(f"left out: {name}: {why}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
