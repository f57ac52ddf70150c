"""Worlds, as many as are wanted: `simulating.py [SEED …] [--seconds N] [--from N]`.

Says what there was in them, and how to see one again that went wrong. Exit code 1 if any did.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))

from simulated_network import FAULTS
from simulation import Report, run_world


def reports(options: argparse.Namespace) -> Iterator[Report]:
    """As they come; in the order of their seeds."""
    ends_at = time.monotonic() + options.seconds
    seeds = iter(options.seeds) if options.seeds else map(str, itertools.count(options.first))
    if options.jobs == 1:
        yield from map(run_world, itertools.takewhile(lambda _: options.seeds or time.monotonic() < ends_at, seeds))
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        while batch := list(itertools.islice(seeds, options.jobs * 8)):
            yield from pool.map(run_world, batch)
            if not options.seeds and time.monotonic() >= ends_at:
                return


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--from", dest="first", type=int, default=int(time.time()) % 10_000_000 * 1000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    began_at = time.monotonic()
    told: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    worlds = messages = 0
    failed: list[str] = []
    for report in reports(options):
        worlds, messages = worlds + 1, messages + report.messages
        told.update(report.told)
        outcomes.update(report.outcomes)
        if report.wrong:
            failed.append(report.seed)
            faults = " ".join(report.faults) or "no faults"
            print(f"seed {report.seed}, with {faults}:\n{report.wrong}see it again with: make simulate", end="")
            print(f" SEEDS={report.seed}\n", flush=True)
        elif options.seeds:
            print(f"seed {report.seed}: {report.messages} messages, history {report.history}")
    taken_s = time.monotonic() - began_at
    print(f"{worlds} worlds, {messages} messages, {messages / max(taken_s, 0.001):.0f} a second")
    print("inputs:", ", ".join(f"{name} {n}" for name, n in sorted(told.items()) if not name.startswith("fault ")))
    print("faults:", ", ".join(f"{fault} {told['fault ' + fault]}" for fault in FAULTS))
    print("requests:", ", ".join(f"{name} {n}" for name, n in sorted(outcomes.items())))
    if failed:
        print(f"{len(failed)} went wrong; see them again with: make simulate SEEDS='{' '.join(failed)}'")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
