"""Measures what a call costs with two workers behind one port, beside one process: `python bench/workers.py [ROUNDS]`.

CPU time is that of all processes of the product together, those that only wait among them. Each session has its
connection, so its worker answers it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from programs import BUILD, Failed, Program, Programs, allow_open_files, build, cpu_s, free_port
from subjects import STARTERS, Route
from targets import Figures

SUBJECTS: Final[dict[str, tuple[str, ...]]] = {"one process": (), "two workers": ("--workers", "2")}
"""The options of each."""
SESSIONS: Final = 16
CALLS: Final = 20_000
TIMEOUT_S: Final = 90
_HTTP: Final = Route("http", "http")


def measure_workers(programs: Programs, rounds: int, calls: int = CALLS) -> dict[str, list[Figures]]:
    """Returns CPU time and throughput by subject and round. The subjects take turns."""
    url = f"http://127.0.0.1:{programs.stub('legacy').port}/mcp"
    started: dict[str, Program] = {}
    for name, options in SUBJECTS.items():
        port = free_port()
        start = STARTERS["isthmus-served"](_HTTP, port, url, programs.scratch)
        assert start is not None
        *command, config = start.command
        started[name] = programs.listening([*command, *options, config], port, dict(start.env))
        _load(started[name], 10 * SESSIONS)
    results: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for name, program in started.items():
            results.setdefault(name, []).append(_measure(program, calls))
    return results


def _measure(program: Program, calls: int) -> Figures:
    pids = [program.pid, *_children(program.pid)]
    before_s = sum(map(cpu_s, pids))
    figures = _load(program, calls)
    spent_s = sum(map(cpu_s, pids)) - before_s
    return {"cpu_us": spent_s * 1e6 / figures["calls"], "calls_per_s": figures["calls"] / figures["wall_s"]}


def _load(program: Program, calls: int) -> Figures:
    target = ["http", str(program.port), "--path", "/mcp", "--tool", "echo", "--sessions", str(SESSIONS)]
    options = ["--calls", str(calls), "--warm", "1", "--idle", "0", "--timeout-s", str(TIMEOUT_S)]
    command = [str(BUILD / "load"), *target, *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S + 30, check=False)
    if ran.returncode:
        raise Failed(ran.stderr.strip()[-1000:])
    figures: Figures = json.loads(ran.stdout)
    return figures


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in found for child in each.read_text().split()]


def main() -> None:
    build()
    allow_open_files()
    with Programs() as programs:
        for name, rounds in measure_workers(programs, int(sys.argv[1]) if sys.argv[1:] else 9).items():
            cpu_us = statistics.median(figures["cpu_us"] for figures in rounds)
            calls_per_s = statistics.median(figures["calls_per_s"] for figures in rounds)
            print(f"{name}: {cpu_us:.1f} us of CPU a call, {calls_per_s:.0f} calls/s")


if __name__ == "__main__":
    main()
