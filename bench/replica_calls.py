"""Measures what a call costs with two processes of the product: `python bench/replica_calls.py [ROUNDS]`.

The two are workers behind one port, or replicas on shared stores. A call comes to the process of its session, or to the
other one, which passes it on. What they are compared with is two processes that know nothing of each other: two that
compete for the cores and caches of a machine take more for a call than one that has them alone, whatever they are.

CPU time is that of all processes of the product together, those that only wait among them. All subjects take turns, and
the mean of the least quarter of the rounds counts: other load on the machine only adds to the figure.

Shared stores are started for the measurement, if they are installed. The tests have what starts them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Final

from programs import BUILD, ROOT, START_TIMEOUT_S, Failed, Program, Programs, allow_open_files, build, free_port, says
from subjects import ISTHMUS, STARTERS, Route
from targets import Figures

TAGS: Final = ("a", "b")
SESSIONS: Final = 16
"""Sessions of each process. With half of them, each of two would be woken more often for its calls than the one."""
CALLS: Final = 2_000
PARTS: Final = 8
"""Parts of these calls that are measured apart. The least counts, and a short one is more likely to meet no other
load."""
WARM: Final = 5
"""Calls of a session before those that count: the process that passes calls on has its connections then."""
ROUNDS: Final = 8
"""Rounds for each of the other measurements. One takes two seconds."""
TIMEOUT_S: Final = 90
_HTTP: Final = Route("http", "http")
_KEY: Final = "a-key-of-all-replicas-that-are-measured"


@dataclass(frozen=True)
class Subject:
    """Processes that are measured.

    Attributes:
        processes: the number of those that have sessions.
        pids: all processes of the product.
        options: those of the load generator.
    """

    port: int
    processes: int
    pids: tuple[int, ...]
    options: tuple[str, ...] = ()


class Missing(Exception):
    """Raised if the stores of a subject are not installed, or do not start."""


def measure_replicas(programs: Programs, rounds: int, calls: int = CALLS) -> tuple[dict[str, Figures], dict[str, str]]:
    """Returns the CPU time and the highest throughput by subject, and why subjects are missing."""
    url = f"http://127.0.0.1:{programs.stub('legacy').port}/mcp"
    started: dict[str, Subject] = {}
    absent: dict[str, str] = {}
    for name, start in SUBJECTS.items():
        try:
            subject = started[name] = start(programs, url)
        except Missing as reason:
            absent |= dict.fromkeys((name, PASSED[name]), str(reason))
            continue
        if name in PASSED:
            options = (*subject.options, "--crossed")
            started[PASSED[name]] = Subject(subject.port, subject.processes, subject.pids, options)
    taken: dict[str, list[Figures]] = {name: [] for name in started}
    for _ in range(rounds):
        for name, subject in started.items():
            taken[name].append(measure(subject, calls))
    return {name: _summary(figures) for name, figures in taken.items()}, absent


def _summary(rounds: list[Figures]) -> Figures:
    least_us = sorted(figures["cpu_us"] for figures in rounds)[: (len(rounds) + 3) // 4]
    return {"cpu_us": mean(least_us), "calls_per_s": max(figures["calls_per_s"] for figures in rounds)}


def measure(subject: Subject, calls: int, *options: str) -> Figures:
    """Returns the figures of one run of the load generator.

    Raises:
        Failed: it got a wrong response, or none in time.
    """
    sessions = str(SESSIONS * subject.processes)
    calling = ["--sessions", sessions, "--calls", str(calls), "--warm", str(WARM), "--parts", str(PARTS)]
    bounds = ["--idle", "0", "--timeout-s", str(TIMEOUT_S)]
    watched = [part for pid in subject.pids for part in ("--pid", str(pid))]
    command = [str(BUILD / "load"), "http", str(subject.port), *calling, *bounds, *watched, *subject.options, *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S + 30, check=False)
    if ran.returncode:
        raise Failed(ran.stderr.strip()[-1000:])
    figures = json.loads(ran.stdout)
    return {"cpu_us": figures["cpu_us"], "calls_per_s": figures["calls"] / figures["wall_s"]}


# --- Subjects -------------------------------------------------------------------------------------------------------


def _one(programs: Programs, url: str) -> Subject:
    program = _served(programs, url)
    return Subject(program.port, 1, (program.pid,))


def _apart(programs: Programs, url: str) -> Subject:
    first, second = _served(programs, url), _served(programs, url)
    return Subject(first.port, 2, (first.pid, second.pid), ("--second-port", str(second.port)))


def _workers(programs: Programs, url: str) -> Subject:
    program = _served(programs, url, "--workers", "2")
    _await_all(program.port, ("w1", "w2"), programs)
    return Subject(program.port, 2, (program.pid, *_children(program.pid)), ("--workers", "2"))


def _served(programs: Programs, url: str, *options: str) -> Program:
    port = free_port()
    start = STARTERS["isthmus-served"](_HTTP, port, url, programs.scratch)
    assert start is not None
    *command, config = start.command
    return programs.listening([*command, *options, config], port, dict(start.env))


def _replicas(programs: Programs, url: str) -> Subject:
    storage, env = _stores(programs)
    started = []
    for tag in TAGS:
        port = free_port()
        path = programs.scratch / f"{port}.json"
        settings = {
            "core": {"port": port, "link_keys": [_KEY]},
            "sessions": {"request_state_keys": [_KEY]},
            "storage": {"root": str(programs.scratch / f"{port}.data"), **storage},
            "cluster": {"replica": tag, "listen": f"127.0.0.1:{free_port()}", "secret": _KEY},
            "servers": [{"id": "stub", "upstream": {"url": url, "era": "handshake"}}],
        }
        path.write_text(json.dumps(settings))
        started.append(programs.listening([*ISTHMUS, "serve", str(path)], port, env))
    first, second = started
    return Subject(first.port, 2, (first.pid, second.pid), ("--second-port", str(second.port)))


SUBJECTS: Final[dict[str, Callable[[Programs, str], Subject]]] = {
    "isthmus-served": _one,
    "isthmus-apart": _apart,
    "isthmus-workers": _workers,
    "isthmus-replicas": _replicas,
}
PASSED: Final = {"isthmus-workers": "isthmus-workers-passed", "isthmus-replicas": "isthmus-replicas-passed"}
"""The names of subjects whose calls are measured a second time, where they have to be passed on."""
NAMES: Final = (*SUBJECTS, *PASSED.values())


def _stores(programs: Programs) -> tuple[dict[str, str], dict[str, str]]:
    """Starts the stores. Returns the settings that name them, and the variables that the replicas need.

    Raises:
        Missing: one is not installed, or does not start.
    """
    sys.path.append(str(ROOT / "tests" / "storage"))
    try:
        from record_servers import NotInstalled, PostgresServer, running
        from s3_server import BUCKET, MOTO, SECRET, S3Server
    except ImportError as error:
        raise Missing(f"it needs {error.name}") from None
    if not MOTO.exists():
        raise Missing(f"{MOTO} is not installed: run tests/real/setup.sh, which installs it")
    try:
        records = programs.enter_context(running("postgres"))
        blobs = S3Server(programs.scratch / "moto.log")
    except (NotInstalled, AssertionError) as error:
        raise Missing(str(error)) from None
    assert isinstance(records, PostgresServer)
    programs.callback(blobs.stop)
    location = f"s3://{BUCKET}/bench?endpoint=http://127.0.0.1:{blobs.port}&region=us-east-1"
    keys = {"AWS_ACCESS_KEY_ID": "isthmus", "AWS_SECRET_ACCESS_KEY": SECRET}
    return {"records": records.dsn(), "blobs": location}, keys


def _await_all(port: int, tags: tuple[str, ...], programs: Programs) -> None:
    """Waits until each worker has answered.

    Raises:
        Failed: one has not in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    for tag in tags:
        while not _answers(port, tag):
            if time.monotonic() > deadline:
                raise Failed(f"worker {tag} does not answer: {programs.output(port)}")
            time.sleep(0.02)


def _answers(port: int, tag: str) -> bool:
    try:
        return says(port, "/healthz", f'"replica":"{tag}"')
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in found for child in each.read_text().split()]


def main() -> None:
    build()
    allow_open_files()
    with Programs() as programs:
        results, absent = measure_replicas(programs, int(sys.argv[1]) if sys.argv[1:] else 3 * ROUNDS)
    apart = results["isthmus-apart"]["cpu_us"]
    for name, figures in results.items():
        cpu_us, calls_per_s = figures["cpu_us"], figures["calls_per_s"]
        print(f"{name:24} {cpu_us:6.1f} us of CPU a call ({cpu_us / apart:.2f}), {calls_per_s:,.0f} calls/s")
    for name, why in absent.items():
        print(f"{name}: {why}")


if __name__ == "__main__":
    main()
