"""Measures the cost of a proxied call against floors, byte proxies and peers in the same run: `make bench`.

CPU time is the proxy process's own, from the kernel, and other load on the machine hardly affects it. Latencies and
throughput depend on that load, so only their ratios within one run are meaningful. Every figure is the median of
rounds, in each of which all subjects of a workload take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from files import measure_files, measure_start
from interpreter import description
from peers import versions
from programs import BUILD, Failed, Program, Programs, allow_open_files, build, free_port, idle_max, stub_command
from relayed_calls import measure_relay
from replica_calls import ROUNDS, measure_replicas
from report import render
from subjects import STARTERS, Route, Start, why_absent
from targets import Figures
from workloads import PEERS, SLOW, WORKLOADS, Workload

from storage import measure_storage

CALIBRATION_CALLS = 2
"""Calls of each session that show how many fit into the time for one measurement."""
OPENING_REQUESTS = 4
"""Requests of a session before its first call, at most."""
LOAD_TIMEOUT_S = 90
"""The bound on one run of the load generator; the slowest peer takes 60 ms a call."""
FAILURES = (Failed, OSError, subprocess.TimeoutExpired, ValueError)
"""Failures of one subject in one workload that do not end the run: a wrong response, a failed start, a timeout, or
output that is not JSON."""
IDLE_PER_S = 100
"""The lowest rate at which idle sessions are opened, by which the timeout grows."""

QUICK_ROUNDS = 1
QUICK_SECONDS = 0.25


class Run:
    """The state of one run. Programs keep running for later workloads of the same route."""

    def __init__(self, programs: Programs, *, seconds: float, calls_max: int | None, is_quick: bool = False) -> None:
        self.programs, self.seconds, self.calls_max = programs, seconds, calls_max
        self.is_quick = is_quick
        self._stubs: dict[str, Program] = {}
        self._started: dict[tuple[str, Route], tuple[Start, Program | None]] = {}
        self._calls: dict[tuple[str, str], int] = {}
        self._shown: dict[str, int] = {}  # the tokens of each file that clients have shown
        self.absent: dict[str, str] = {}

    def measure(self, workload: Workload, subject: str) -> Figures | None:
        """Returns the figures of one measurement; None if the subject is missing or failed, with the reason noted."""
        reason = why_absent(subject) or self.absent.get(f"{workload.name} {subject}")
        if reason:
            self.absent.setdefault(f"{workload.name} {subject}", reason)
            return None
        try:
            with Programs() if workload.is_fresh else contextlib.nullcontext(self.programs) as programs:
                target = self._target(workload.route, subject, programs, is_kept=not workload.is_fresh)
                return self._measure(workload, subject, target)
        except FAILURES as error:
            self.absent[f"{workload.name} {subject}"] = str(error)
            return None

    def _measure(self, workload: Workload, subject: str, target: list[str]) -> Figures:
        sessions, key = workload.sessions, (workload.name, subject)
        most = min(workload.calls_max, self.calls_max or workload.calls_max)
        if key not in self._calls:
            few = min(CALIBRATION_CALLS * sessions, most)
            figures = load(workload, self._with_tokens(target, sessions, few, 1), few, warm=1, with_idle=False)
            self._calls[key] = max(sessions, min(most, int(self.seconds * figures["calls"] / figures["wall_s"])))
            is_enough = figures["wall_s"] > self.seconds and not workload.idle
        else:
            is_enough = False
        if not is_enough:  # otherwise the calibration took as long as a measurement
            warm = min(10, 1 + self._calls[key] // sessions // 10)
            calls = self._calls[key]
            figures = load(workload, self._with_tokens(target, sessions, calls, warm), calls, warm=warm)
        figures["calls_per_s"] = figures["calls"] / figures["wall_s"]
        figures["growth_kb"] = figures["peak_kb"] - figures["rss_kb"]
        for figure in ("cpu_us", "kernel_us"):
            figures[figure] /= workload.divisor
        return figures

    def _target(self, route: Route, subject: str, programs: Programs, *, is_kept: bool) -> list[str]:
        """Returns the load generator's arguments for its target: the transport, and a port or, last, a command."""
        start, program = self._start(route, subject, programs, is_kept=is_kept)
        modern = ["--modern"] if route.client_era == "modern" else []
        if route.client == "stdio":
            env = [f"{name}={value}" for name, value in start.env]
            return ["stdio", *modern, "--", "env", *env, *start.command]
        assert program is not None
        watched = [] if subject == "direct" else ["--pid", str(program.pid)]
        shown = [] if start.tokens is None else ["--tokens", str(start.tokens)]
        named = ["--path", start.path, "--tool", start.tool]
        return [route.client, str(program.port), *named, *modern, *watched, *shown]

    def _with_tokens(self, target: list[str], sessions: int, calls: int, warm: int) -> list[str]:
        """Returns the arguments for the target of one run of the load generator. It shows tokens that no run before it
        has shown, as long as there are some."""
        if "--tokens" not in target:
            return target
        path = target[target.index("--tokens") + 1]
        at = self._shown.get(path, 0)
        self._shown[path] = at + calls + sessions * (warm + OPENING_REQUESTS)
        return [*target, "--token-at", str(at)]

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
        start = STARTERS[subject](route, port, upstream, programs.scratch)
        if start is None:
            raise Failed("not of this route")
        program = None
        if route.client != "stdio":
            program = programs.listening(start.command, port, dict(start.env), health=start.health)
        if is_kept:
            self._started[subject, route] = start, program
        return start, program

    def _stub(self, era: str) -> Program:
        if era not in self._stubs:
            self._stubs[era] = self.programs.stub(era)
        return self._stubs[era]


def load(workload: Workload, target: list[str], calls: int, *, warm: int, with_idle: bool = True) -> Figures:
    """Runs the load generator once, and returns its figures; CPU time and memory are those of the watched process.

    Raises:
        Failed: it got a wrong response, or none in time.
    """
    options = ["--sessions", str(workload.sessions), "--calls", str(calls), "--warm", str(warm)]
    idle = min(workload.idle, idle_max()) if with_idle else 0
    options += [*workload.load, "--idle", str(idle)]
    timeout_s = LOAD_TIMEOUT_S + idle // IDLE_PER_S
    options += ["--timeout-s", str(timeout_s)]
    at = target.index("--") if "--" in target else len(target)
    command = [str(BUILD / "load"), *target[:at], *options, *target[at:]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s + 30, check=False)
    if ran.returncode:
        raise Failed(ran.stderr.strip()[-1000:])
    figures: Figures = json.loads(ran.stdout)
    return figures


def medians(rounds: list[Figures]) -> Figures:
    """Returns the medians of the figures that every round has."""
    names = [name for name in rounds[0] if all(name in figures for figures in rounds)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in names}


def add_differences(row: dict[str, Figures]) -> None:
    """Adds to the figures of one round how much each subject adds to those without a proxy."""
    direct = row.get("direct", {})
    for figures in row.values():
        for name in ("p50_us", "p99_us", "delay_p50_us"):
            if name in direct:
                figures[f"added_{name}"] = figures[name] - direct[name]


def measured(
    run: Run, workloads: list[Workload], rounds: int, *, subjects: tuple[str, ...] | None = None
) -> Iterator[tuple[str, dict[str, Figures]]]:
    """Yields each workload with the medians of its subjects, or of `subjects` instead."""
    for workload in workloads:
        taken: dict[str, list[Figures]] = {}
        turns = [s for s in subjects or workload.subjects if s not in SLOW or not run.is_quick]
        for number in range(min(rounds, workload.rounds_max)):
            found = {subject: run.measure(workload, subject) for subject in turns if not number or subject not in PEERS}
            row = {subject: figures for subject, figures in found.items() if figures is not None}
            add_differences(row)
            for subject, figures in row.items():
                taken.setdefault(subject, []).append(figures)
        yield workload.name, {subject: medians(figures) for subject, figures in taken.items()}


def measured_apart(run: Run, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Figures]]]:
    """Yields the measurements that are no rows of `workloads.py`: the start, replicas, files, and the storage
    backends."""
    for name, measure in APART.items():
        if is_chosen(name, options) and not (name == "file" and options.quick and not options.only):
            try:
                with Programs() as programs:
                    yield from measure(run, programs, options).items()
            except FAILURES as error:
                run.absent[f"{name} isthmus"] = str(error)


def _start(run: Run, programs: Programs, options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    url = f"http://127.0.0.1:{programs.stub('legacy').port}/mcp"
    return {"start": {"isthmus": medians([measure_start(programs, url) for _ in range(options.rounds)])}}


def _relay(run: Run, programs: Programs, options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    taken = measure_relay(programs, options.rounds)
    return {"relay_64m": {subject: medians(rounds) for subject, rounds in taken.items()}}


def _replicas(run: Run, programs: Programs, options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    results, absent = measure_replicas(programs, options.rounds * ROUNDS)
    run.absent |= {f"replicas_c16 {subject}": why for subject, why in absent.items()}
    return {"replicas_c16": results}


def _files(run: Run, programs: Programs, options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    taken = measure_files(programs, options.file_mib * 1024 * 1024, options.rounds)
    return {work: {subject: medians(rounds) for subject, rounds in rows.items()} for work, rows in taken.items()}


def _storage(run: Run, programs: Programs, options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    return measure_storage(programs.scratch)


APART = {"start": _start, "relay_64m": _relay, "replicas_c16": _replicas, "file": _files, "storage": _storage}
"""The measurements apart from `workloads.py`, by the name of the workload or the beginning of it."""


def chosen(options: argparse.Namespace) -> list[Workload]:
    is_short = options.quick and not options.only
    return [w for w in WORKLOADS if is_chosen(w.name, options) and (w.is_quick or not is_short)]


def is_chosen(name: str, options: argparse.Namespace) -> bool:
    return not options.only or any(name.startswith(beginning) for beginning in options.only)


def main(options: argparse.Namespace) -> None:
    build()
    allow_open_files()
    if options.quick:
        options.rounds, options.seconds = min(options.rounds, QUICK_ROUNDS), min(options.seconds, QUICK_SECONDS)
    workloads = chosen(options)
    began = time.monotonic()
    results = {}
    with Programs() as programs:
        run = Run(programs, seconds=options.seconds, calls_max=options.calls, is_quick=options.quick)
        for name, figures in measured(run, workloads, options.rounds):
            results[name] = figures
            print(f"{time.monotonic() - began:4.0f} s  {name}: {summary(figures)}", file=sys.stderr, flush=True)
    for name, figures in measured_apart(run, options):
        results[name] = figures
        print(f"{time.monotonic() - began:4.0f} s  {name}", file=sys.stderr, flush=True)
    report = {
        "python": description(),
        "seconds": round(time.monotonic() - began),
        "rounds": options.rounds,
        "peers": versions(),
        "workloads": results,
        "absent": run.absent,
    }
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1))
    print(render(report))


def summary(figures: dict[str, Figures]) -> str:
    return ", ".join(f"{subject} {row['cpu_us']:.1f}" for subject, row in figures.items() if row["cpu_us"])


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", action="append", help="workloads whose names begin so; may be repeated")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--calls", type=int, help="at most, in one measurement")
    options.add_argument("--seconds", type=float, default=1.0, help="for one measurement")
    options.add_argument("--file-mib", type=int, default=1024, help="size of the file that is sent and fetched")
    options.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} round, less workloads and peers")
    options.add_argument("--json", metavar="FILE")
    return options


if __name__ == "__main__":
    main(parser().parse_args())
