"""Runs hostile peers against a gateway with honest clients: `campaign.py [SEED …] [--only KIND …] [--minutes M]`.

Prints a line for each storm, and a verdict. The exit code is 1 if an honest call was lost, if memory or descriptors
were not given back, if an attack did not reach a limit that it is to reach, or if anything else was wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "chaos"))  # the honest clients are those of the storms there

import anyio  # noqa: E402
from hostile_world import (  # noqa: E402
    BUDGETS,
    HEALTH_CPU_TARGET_S,
    STORM_S,
    WARM_UP_S,
    HostileWorld,
    Row,
    budget_bytes,
    kinds_of,
)


def run_one(seed: str, options: argparse.Namespace, ends_at: float | None) -> tuple[list[Row], list[str]]:
    """Runs the world of a seed. Returns its rows and all that was wrong. Its folder is kept if anything was."""
    folder = Path(tempfile.mkdtemp(prefix="isthmus-hostile-"))
    world = HostileWorld(
        seed,
        folder,
        kinds_of(options.only),
        storm_s=options.storm,
        warm_up_s=options.warm_up,
        ends_at=ends_at,
    )
    print(f"seed {seed}\n{Row.HEAD}", flush=True)
    wrongs = world.wrongs
    try:
        anyio.run(world.run)
    except Exception:
        wrongs.append(traceback.format_exc())
    wrongs = [*wrongs, *(f"{row.kind}: {wrong}" for row in world.rows for wrong in row.wrongs)]
    for row in world.rows[1:]:
        print(f"  {row.kind}: {', '.join(f'{count} {what}' for what, count in sorted(row.counts.items()))}")
    for wrong in wrongs[:40]:
        print(f"  WRONG: {wrong[:2000]}")
    if wrongs:
        print(f"  the folder with the log: {folder}")
    else:
        shutil.rmtree(folder)
    return world.rows, wrongs


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="*")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", nargs="*", default=[], metavar="KIND")
    parser.add_argument("--storm", type=float, default=STORM_S, help="seconds of each storm")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, help="seconds of each storm before those measured")
    options = parser.parse_args()
    ends_at = time.monotonic() + options.minutes * 60
    seeds = list(options.seeds)
    first, rows, failed = int(time.time()) % 1_000_000, list[Row](), dict[str, list[str]]()
    count = 0
    while count < len(seeds) if seeds else time.monotonic() < ends_at:
        seed = seeds[count] if seeds else str(first + count)
        count += 1
        more, wrongs = run_one(seed, options, None if seeds else ends_at)
        rows += more
        if wrongs:
            failed[seed] = wrongs
    slow = sorted({row.kind for row in rows if row.meter.health_cpu_s > HEALTH_CPU_TARGET_S})
    sums = " + ".join(f"{times} x {name}" for name, times, _ in BUDGETS)
    print(f"memory may grow during a storm by {budget_bytes() >> 20} MiB = {sums}")
    print(f"over {HEALTH_CPU_TARGET_S * 1000:.0f} ms of CPU time before an answer of /healthz (*): {slow or 'none'}")
    print(f"limits reached: {', '.join(sorted({limit for row in rows for limit in row.reached})) or 'none'}")
    answered, refused = sum(row.tally.answered for row in rows), sum(row.tally.refusals for row in rows)
    lost = sum(len(row.tally.lost) for row in rows)
    print(
        f"{'WRONG' if failed else 'RIGHT'}: {count} worlds, {len(rows)} periods, {answered} honest calls answered, "
        f"{refused} refused and sent again, {lost} lost, {sum(map(len, failed.values()))} wrongs"
    )
    if failed:
        kinds = sorted({row.kind for row in rows if row.wrongs} - {"(quiet)"})
        print(f"see again with: make hostile SEEDS='{' '.join(failed)}' ONLY='{' '.join(kinds)}'")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
