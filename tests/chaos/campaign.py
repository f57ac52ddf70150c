"""Runs many storms: `campaign.py [SEED …] [--worlds N] [--minutes M] [--from N] [--keep]`.

Prints a line for each world, and for each failed one the command that runs it again. The exit code is 1 if any failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
from world import STORM_S, Report, run_world


def seeds(options: argparse.Namespace) -> Iterator[str]:
    if options.seeds:
        yield from options.seeds
        return
    began_at = time.monotonic()
    n = options.first
    while n < options.first + options.worlds and time.monotonic() < began_at + options.minutes * 60:
        yield str(n)
        n += 1


def run_one(seed: str, storm_s: float, *, keeps: bool) -> Report:
    folder = Path(tempfile.mkdtemp(prefix="isthmus-chaos-"))
    try:
        report = anyio.run(lambda: run_world(seed, folder, storm_s=storm_s))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        report = Report(seed, "?", [traceback.format_exc()])
    if report.wrongs or keeps:
        report.figures["folder"] = folder
    else:
        shutil.rmtree(folder)
    return report


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*")
    parser.add_argument("--worlds", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--storm", type=float, default=STORM_S, help="seconds")
    parser.add_argument("--keep", action="store_true", help="keep the folders of worlds in which all went well")
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    failed: list[str] = []
    worlds = 0
    for seed in seeds(options):
        report = run_one(seed, options.storm, keeps=options.keep)
        print(report, flush=True)
        worlds += 1
        totals.update(report.outcomes)
        if report.wrongs:
            failed.append(seed)
    print(f"{worlds} worlds, {sum(totals.values())} calls: {dict(totals)}")
    if failed:
        print(f"{len(failed)} went wrong; see again with: make chaos SEEDS='{' '.join(failed)}'")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
