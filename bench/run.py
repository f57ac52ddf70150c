"""What a proxied call costs, against floors, byte proxies and peers in the same run: `make bench`.

CPU time is the proxy process's own, from the kernel, which other load on the machine hardly touches; latencies and
throughput are of the moment, and only their ratios within one run say something. Every figure is the median of rounds,
in each of which all subjects of a workload take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from programs import BUILD, Failed, Program, Programs, allow_open_files, build, free_port, stub_command
from subjects import STARTERS, Route, Start, why_absent
from workloads import WORKLOADS, Workload

CALIBRATION_CALLS = 4
"""For each session, to learn how many calls fit into the time for one measurement."""
LOAD_TIMEOUT_S = 90
"""For one run of the load generator; the slowest peer takes 60 ms a call."""

Figures = dict[str, float]


class Run:
    """Programs stay started from one workload to the next of the same route."""

    def __init__(self, programs: Programs, *, seconds: float, calls_max: int | None) -> None:
        self.programs, self.seconds, self.calls_max = programs, seconds, calls_max
        self._stubs: dict[str, Program] = {}
        self._started: dict[tuple[str, Route], tuple[Start, Program | None]] = {}
        self._calls: dict[tuple[str, str], int] = {}
        self.absent: dict[str, str] = {}

    def measure(self, workload: Workload, subject: str) -> Figures | None:
        """The figures of one measurement; None for a subject that cannot be had, or failed, with its reason noted."""
        reason = why_absent(subject) or self.absent.get(f"{workload.name} {subject}")
        if reason:
            self.absent.setdefault(f"{workload.name} {subject}", reason)
            return None
        try:
            with Programs() if workload.is_fresh else contextlib.nullcontext(self.programs) as programs:
                target = self._target(workload.route, subject, programs, is_kept=not workload.is_fresh)
                return self._measure(workload, subject, target)
        except Failed as error:
            self.absent[f"{workload.name} {subject}"] = str(error)
            return None

    def _measure(self, workload: Workload, subject: str, target: list[str]) -> Figures:
        sessions, key = workload.sessions, (workload.name, subject)
        most = min(workload.calls_max, self.calls_max or workload.calls_max)
        if key not in self._calls:
            tried = load(workload, target, min(CALIBRATION_CALLS * sessions, most), warm=1, with_idle=False)
            self._calls[key] = max(sessions, min(most, int(self.seconds * tried["calls"] / tried["wall_s"])))
        figures = load(workload, target, self._calls[key], warm=min(10, self._calls[key] // sessions))
        figures["calls_per_s"] = figures["calls"] / figures["wall_s"]
        figures["growth_kb"] = figures["peak_kb"] - figures["rss_kb"]
        figures["cpu_us"] /= workload.divisor
        return figures

    def _target(self, route: Route, subject: str, programs: Programs, *, is_kept: bool) -> list[str]:
        """What the load generator is pointed at: its transport, and a port or, last, a command."""
        start, program = self._start(route, subject, programs, is_kept=is_kept)
        modern = ["--modern"] if route.client_era == "modern" else []
        if route.client == "stdio":
            env = [f"{name}={value}" for name, value in start.env]
            return ["stdio", *modern, "--", "env", *env, *start.command]
        assert program is not None
        watched = [] if subject == "direct" else ["--pid", str(program.pid)]
        return [route.client, str(program.port), "--path", start.path, *modern, *watched]

    def _start(self, route: Route, subject: str, programs: Programs, *, is_kept: bool) -> tuple[Start, Program | None]:
        if is_kept and (subject, route) in self._started:
            return self._started[subject, route]
        upstream: str | list[str]
        if route.server == "stdio":
            upstream = stub_command(route.server_era)
        else:
            upstream = f"http://127.0.0.1:{self._stub(route.server_era).port}/mcp"
        if subject == "direct":
            return Start([]), self._stub(route.server_era)
        port = free_port()
        start = STARTERS[subject](route, port, upstream)
        if start is None:
            raise Failed("not of this route")
        program = None if route.client == "stdio" else programs.listening(start.command, port, dict(start.env))
        if is_kept:
            self._started[subject, route] = start, program
        return start, program

    def _stub(self, era: str) -> Program:
        if era not in self._stubs:
            self._stubs[era] = self.programs.stub(era)
        return self._stubs[era]


def load(workload: Workload, target: list[str], calls: int, *, warm: int, with_idle: bool = True) -> Figures:
    """One run of the load generator: its figures, of which CPU and memory are those of the watched process.

    Raises:
        Failed: it saw something wrong, or nothing in time.
    """
    options = ["--sessions", str(workload.sessions), "--calls", str(calls), "--warm", str(warm)]
    options += workload.load if with_idle or "--idle" not in workload.load else []
    options += ["--timeout-s", str(LOAD_TIMEOUT_S)]
    at = target.index("--") if "--" in target else len(target)
    command = [str(BUILD / "load"), *target[:at], *options, *target[at:]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S + 30, check=False)
    if ran.returncode:
        raise Failed(ran.stderr.strip()[-1000:])
    figures: Figures = json.loads(ran.stdout)
    return figures


def medians(rounds: list[Figures]) -> Figures:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def measured(run: Run, workloads: list[Workload], rounds: int) -> Iterator[tuple[str, dict[str, Figures]]]:
    for workload in workloads:
        taken: dict[str, list[Figures]] = {}
        for _ in range(min(rounds, workload.rounds_max)):
            for subject in workload.subjects:
                figures = run.measure(workload, subject)
                if figures is not None:
                    taken.setdefault(subject, []).append(figures)
        yield workload.name, {subject: medians(figures) for subject, figures in taken.items()}


def main(options: argparse.Namespace) -> None:
    build()
    allow_open_files()
    chosen = [workload for workload in WORKLOADS if not options.quick or workload.is_quick]
    if options.only:
        chosen = [workload for workload in WORKLOADS if any(workload.name.startswith(name) for name in options.only)]
    began = time.monotonic()
    with Programs() as programs:
        run = Run(programs, seconds=options.seconds, calls_max=options.calls)
        results = {}
        for name, figures in measured(run, chosen, options.rounds):
            results[name] = figures
            for subject, row in figures.items():
                print(
                    f"{name:16} {subject:16} {row['cpu_us']:10.1f} µs  p50 {row['p50_us'] / 1000:8.2f} ms  "
                    f"{row['calls_per_s']:8.0f}/s  +{row['growth_kb']:.0f} KiB",
                    file=sys.stderr,
                )
        report = {
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - began),
            "rounds": options.rounds,
            "workloads": results,
            "absent": run.absent,
        }
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="workloads whose names begin so; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, help="at most, in one measurement")
    parser.add_argument("--seconds", type=float, default=1.0, help="for one measurement")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    main(parser.parse_args())
