"""Runs many worlds: `simulating.py [SEED …] [--seconds N] [--from N]`.

Prints what happened in them, and for each failed world the command that shows it again and the smallest part of it that
still fails. The exit code is 1 if any failed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

import masks
from lasting import LASTING_FAULTS
from replica_network import REPLICA_FAULTS
from shrinking import TRIES_MAX, shrink
from simulated_network import STRANGE
from simulation import Report
from worlds import KINDS, kind_of, name_of, run_world

REPORT_INTERVAL_S: Final = 60.0
"""The interval between progress lines of a campaign."""


def run(checked_share: float, name: str) -> Report:
    """Runs a world. The oracle checks all named worlds and a fixed share of the others."""
    return run_world(name, is_checked=random.Random(f"heard {name}").random() < checked_share)


def reports(options: argparse.Namespace) -> Iterator[Report]:
    """Yields the reports as they come, or in the order of the given seeds."""
    ends_at = time.monotonic() + options.seconds
    seeds = iter(options.seeds) if options.seeds else map(name_of, itertools.count(options.first))
    make = partial(run, 1.0 if options.seeds else options.heard)
    if options.jobs == 1:
        yield from map(make, itertools.takewhile(lambda _: options.seeds or time.monotonic() < ends_at, seeds))
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        while batch := list(itertools.islice(seeds, options.jobs * 8)):
            yield from pool.map(make, batch)
            if not options.seeds and time.monotonic() >= ends_at:
                return


def print_failure(report: Report, tries_max: int) -> None:
    """Prints the failure, and the smallest part of the world that still fails."""
    faults = " ".join(report.faults) or "no faults"
    print(f"seed {report.seed}, with {faults}:\n{report.wrong}see it again with: make simulate SEEDS={report.seed}")
    smallest = shrink(report, tries_max=tries_max, run=run_world)
    if smallest is not report:
        print(f"the same goes wrong in {smallest.messages} messages, not {report.messages}, of:")
        print("".join(f"  {who}\n" for who in smallest.who), end="")
        print(f"see it with: make simulate LOG=1 SEEDS={smallest.seed}")
    print(flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()) % 10_000_000 * 1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--heard", type=float, default=0.25, help="share of the worlds in which the oracle listens")
    parser.add_argument("--tries", type=int, default=60, help="how often a world that went wrong is made smaller")
    parser.add_argument("--shrink", action="store_true", help=f"up to {TRIES_MAX} times")
    parser.add_argument("--log", action="store_true", help="print what the engine is told and orders, of each seed")
    options = parser.parse_args()
    for seed in options.seeds:
        if kind_of(seed) not in KINDS:
            kinds = ", ".join(f"{kind}-17" for kind in KINDS if kind)
            parser.error(f"got the seed {seed}, expected one such as 17, {kinds} or 17/far,s0,c1.3")
    if options.log:
        for seed in options.seeds:
            print(run_world(seed, log=print).wrong or "all is well")
        return 0
    began_at = reported_at = time.monotonic()
    counts: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    worlds = messages = 0
    failed: list[str] = []
    for report in reports(options):
        worlds, messages = worlds + 1, messages + report.messages
        if time.monotonic() > reported_at + REPORT_INTERVAL_S:
            reported_at = time.monotonic()
            print(f"so far {worlds} worlds, {messages} messages, {len(failed)} went wrong", flush=True)
        counts.update(report.counts)
        outcomes.update(report.outcomes)
        if report.wrong:
            failed.append(report.seed)
            print_failure(report, TRIES_MAX if options.shrink else options.tries)
        elif options.seeds:
            print(f"seed {report.seed}: {report.messages} messages, history {report.history}")
            if missing := (masks.parse(report.seed)[1] or set()) - set(report.parts):
                print(f"there is nothing of the name {' or '.join(sorted(missing))} in that world")
    taken_s = time.monotonic() - began_at
    print(f"{worlds} worlds, {messages} messages, {messages / max(taken_s, 0.001):.0f} a second")
    print("inputs:", ", ".join(f"{name} {n}" for name, n in sorted(counts.items()) if not name.startswith("fault ")))
    print(
        "faults:",
        ", ".join(f"{fault} {counts['fault ' + fault]}" for fault in (*STRANGE, *LASTING_FAULTS, *REPLICA_FAULTS)),
    )
    print("requests:", ", ".join(f"{name} {n}" for name, n in sorted(outcomes.items())))
    if failed:
        print(f"{len(failed)} went wrong; see them again with: make simulate SEEDS='{' '.join(failed)}'")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
