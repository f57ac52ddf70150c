"""Measures how long a person waits for the servers of a file, through several proxies: `make bench-starts`.

Each proxy is started as its user starts it, with the same real servers behind it. All subjects take turns in a round,
and every figure is the median of the rounds. A round of the first configuration comes before them and does not count:
it compiles what Python loads. Times depend on other work, so each measurement waits for a moment without it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from interpreter import description
from peers import PEERS, RUNS, is_there, versions
from programs import ROOT, Failed, Programs, compile_python, free_port
from report import fill, interpreter_line, number, table
from sessions import Endpoint, HttpSession, ProcessSession, Session, begin, tools_of
from subjects import ISTHMUS

ANSWER_TIMEOUT_S = 120.0
LISTED_EVERY_S = 0.05
SETTLE_MAX_S = 30.0
SETTLED_S = 0.5
"""The processes are idle when none of them took CPU time, but for a tick, for so long."""
BUSY_SAMPLE_S = 1.0
BUSY_MAX = 0.2
"""Processors that may be busy with other work when a measurement begins."""
FAILURES = (Failed, OSError, subprocess.SubprocessError, ValueError, KeyError)
"""Failures of one subject that do not end the run: a failed start, a wrong response, a timeout."""

PYTHON_SERVERS: Final = PEERS / "servers-pypi/bin"
NODE_SERVERS: Final = PEERS / "servers-npm/node_modules/.bin"
SERVERS_MARK: Final = str(PEERS / "servers-")


@dataclass(frozen=True)
class Server:
    """A real server on stdio.

    Attributes:
        command: with the words `{folder}` for a folder of its own, which is a git repository.
        tool: the name of a tool that it must list.
    """

    id: str
    command: tuple[str, ...]
    tool: str

    def command_in(self, folder: Path) -> list[str]:
        return [word.replace("{folder}", str(folder)) for word in self.command]


SEVEN: Final = (
    Server("time", (f"{PYTHON_SERVERS}/mcp-server-time", "--local-timezone", "UTC"), "convert_time"),
    Server("everything", (f"{NODE_SERVERS}/mcp-server-everything", "stdio"), "echo"),
    Server("git", (f"{PYTHON_SERVERS}/mcp-server-git", "--repository", "{folder}"), "git_status"),
    Server("fetch", (f"{PYTHON_SERVERS}/mcp-server-fetch",), "fetch"),
    Server("markitdown", (f"{PYTHON_SERVERS}/markitdown-mcp",), "convert_to_markdown"),
    Server("filesystem", (f"{NODE_SERVERS}/mcp-server-filesystem", "{folder}"), "read_text_file"),
    Server("playwright", (f"{NODE_SERVERS}/playwright-mcp", "--headless"), "browser_navigate"),
)
CONFIGURATIONS: Final = {"two": SEVEN[:2], "seven": SEVEN}
CALLED: Final = SEVEN[0]
"""The server that the second session is with, and its call."""
CALL: Final = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
CALLED_RESULT: Final = "T21:00:00+09:00"


@dataclass(frozen=True)
class Launch:
    """The processes of a proxy.

    Attributes:
        commands: each with the port that it listens on.
        endpoints: by the ids of servers. Endpoints that are equal but for `prefix` are one, with all these servers.
    """

    commands: dict[int, list[str]]
    endpoints: dict[str, Endpoint]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A configuration file, and the servers in it."""

    servers: tuple[Server, ...]
    file: Path
    folder: Path


Figures = dict[str, float]
Subject = Callable[[Setting], Launch]


def isthmus(setting: Setting) -> Launch:
    """Returns the start of the product, with an endpoint for each server."""
    port = free_port()
    endpoints = {one.id: Endpoint(port, f"/mcp/{one.id}") for one in setting.servers}
    return Launch({port: [*ISTHMUS, "serve", "--port", str(port), str(setting.file)]}, endpoints)


def isthmus_all(setting: Setting) -> Launch:
    """Returns the start of the product, whose clients have all servers at one endpoint."""
    port = free_port()
    endpoints = {one.id: Endpoint(port, prefix=f"{one.id}__") for one in setting.servers}
    return Launch({port: [*ISTHMUS, "serve", "--all", "--port", str(port), str(setting.file)]}, endpoints)


def mcp_proxy_pypi(setting: Setting) -> Launch:
    port = free_port()
    command = [str(PEERS / "mcp-proxy-pypi/bin/mcp-proxy"), "--port", str(port), "--log-level", "ERROR"]
    endpoints = {one.id: Endpoint(port, f"/servers/{one.id}/mcp/") for one in setting.servers}
    return Launch({port: [*command, "--named-server-config", str(setting.file)]}, endpoints)


def fastmcp(setting: Setting) -> Launch:
    """Returns the start of FastMCP, whose clients have all servers at one endpoint."""
    port = free_port()
    command = [str(PEERS / "fastmcp/bin/fastmcp"), "run", str(setting.file), "--transport", "http", "--no-banner"]
    endpoints = {one.id: Endpoint(port, prefix=f"{one.id}_") for one in setting.servers}
    return Launch({port: [*command, "--port", str(port), "--log-level", "ERROR"]}, endpoints, FASTMCP_ENV)


FASTMCP_ENV: Final = {"FASTMCP_CHECK_FOR_UPDATES": "off"}


def one_each(command: Callable[[int, list[str]], list[str]], setting: Setting) -> Launch:
    """Returns the start of a proxy that has one server: as many processes as there are servers.

    Args:
        command: returns the words for a port and the command of a server.
    """
    ports = {one.id: free_port() for one in setting.servers}
    commands = {ports[one.id]: command(ports[one.id], one.command_in(setting.folder)) for one in setting.servers}
    return Launch(commands, {id: Endpoint(port) for id, port in ports.items()})


def _mcp_proxy_npm(port: int, server: list[str]) -> list[str]:
    script = str(PEERS / "mcp-proxy-npm/node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs")
    return ["node", script, "--port", str(port), "--host", "127.0.0.1", "--server", "stream", "--", *server]


def _supergateway(port: int, server: list[str]) -> list[str]:
    script = str(PEERS / "supergateway/node_modules/supergateway/dist/index.js")
    options = ["--outputTransport", "streamableHttp", "--stateful", "--port", str(port), "--logLevel", "none"]
    return ["node", script, "--stdio", shlex.join(server), *options]


SUBJECTS: Final[dict[str, Subject | None]] = {
    "direct": None,
    "isthmus": isthmus,
    "isthmus-again": isthmus_all,
    "mcp-proxy-npm": partial(one_each, _mcp_proxy_npm),
    "mcp-proxy-pypi": mcp_proxy_pypi,
    "fastmcp": fastmcp,
    "supergateway": partial(one_each, _supergateway),
}
"""`direct` has no proxy: the client starts the servers, and another one for its second session. `isthmus-again` was
started before with the same file, and has kept the lists. Each other subject has a folder with nothing in it."""
STORED: Final = ("isthmus-again",)
CHECKS: Final[dict[str, list[str]]] = {
    "isthmus": [*ISTHMUS, "check"],
    "fastmcp": [str(PEERS / "fastmcp/bin/fastmcp"), "list", "--json"],
}
"""Commands that ask all servers of a file, and print the names of their tools."""


def measure(subject: str, setting: Setting) -> Figures:
    """Measures one subject once. Times are in µs, memory is in KiB.

    Raises:
        Failed: an answer is wrong or missing.
    """
    starter = SUBJECTS[subject]
    if starter is None:
        figures = _measure_direct(setting)
    elif subject in STORED:
        if not (setting.file.parent / "data").exists():
            _measure_proxy(starter, setting)
        figures = _measure_proxy(starter, setting)
    else:
        with tempfile.TemporaryDirectory(dir=setting.folder.parent) as folder:
            file = Path(shutil.copy(setting.file, folder))
            figures = _measure_proxy(starter, dataclasses.replace(setting, file=file))
    if subject in CHECKS:
        began = time.monotonic()
        _check(subject, setting)
        figures["check_us"] = (time.monotonic() - began) * 1e6
    return figures


def _measure_proxy(starter: Subject, setting: Setting) -> Figures:
    launch = starter(setting)
    with Programs() as programs:
        began = time.monotonic()
        deadline = began + ANSWER_TIMEOUT_S
        started = [
            programs.start(command, port, launch.env, cwd=programs.scratch) for port, command in launch.commands.items()
        ]
        roots = [process.pid for process in started]
        try:
            figures = {"all_us": list_all([(HttpSession(e, deadline), t) for e, t in wanted(launch, setting)], began)}
            settle(roots)
            endpoint = launch.endpoints[CALLED.id]
            second = HttpSession(endpoint, time.monotonic() + ANSWER_TIMEOUT_S)
            figures |= _use_second(lambda: second, endpoint.prefix)
        except Failed as failure:
            outputs = " ".join(programs.output(port) for port in launch.commands)
            raise Failed(f"{failure}: {outputs}") from failure
        settle(roots)
        for pid in proxy_pids(roots, processes()):
            figures["cpu_us"] = figures.get("cpu_us", 0) + cpu_us(pid)
            figures["pss_kb"] = figures.get("pss_kb", 0) + pss_kb(pid)
        return figures


def wanted(launch: Launch, setting: Setting) -> list[tuple[Endpoint, set[str]]]:
    """Returns each endpoint once, with the names of tools that it must list."""
    found: dict[tuple[int, str], set[str]] = {}
    for server in setting.servers:
        endpoint = launch.endpoints[server.id]
        found.setdefault((endpoint.port, endpoint.path), set()).add(endpoint.prefix + server.tool)
    return [(Endpoint(*where), tools) for where, tools in found.items()]


def _measure_direct(setting: Setting) -> Figures:
    with contextlib.ExitStack() as ended:

        def start(server: Server) -> ProcessSession:
            command = server.command_in(setting.folder)
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen(command, **pipes, start_new_session=True)
            roots.append(process.pid)
            ended.enter_context(process)
            ended.callback(process.terminate)
            return ProcessSession(process)

        roots: list[int] = []
        began = time.monotonic()
        figures = {"all_us": list_all([(start(one), {one.tool}) for one in setting.servers], began)}
        settle(roots)
        return figures | _use_second(lambda: start(CALLED), "")


def list_all(sessions: Iterable[tuple[Session, set[str]]], began: float) -> float:
    """Begins all sessions at once. Returns the time from `began` to the last list of tools, in µs.

    An endpoint of several servers may answer before all of them have. Such a list is asked for again.

    Raises:
        Failed: one of them lacks a tool that was expected, or has no answer.
    """

    def list_one(session: Session, expected: set[str]) -> float:
        begin(session)
        while True:
            try:
                require(tools_of(session), expected)
                return time.monotonic() - began
            except Failed:
                if time.monotonic() - began > ANSWER_TIMEOUT_S:
                    raise
            time.sleep(LISTED_EVERY_S)

    sessions = list(sessions)
    with ThreadPoolExecutor(len(sessions)) as threads:
        return max(threads.map(list_one, *zip(*sessions, strict=True))) * 1e6


def _use_second(session_of: Callable[[], Session], prefix: str) -> Figures:
    began = time.monotonic()
    session = session_of()
    begin(session)
    require(tools_of(session), {prefix + CALLED.tool})
    listed = time.monotonic()
    result = session.request("tools/call", {"name": prefix + CALLED.tool, "arguments": CALL})
    called = time.monotonic()
    if CALLED_RESULT not in json.dumps(result["content"]):
        raise Failed(f"a wrong result: {result}")
    return {"second_us": (listed - began) * 1e6, "call_us": (called - listed) * 1e6}


def require(found: set[str], expected: set[str]) -> None:
    if not expected <= found:
        raise Failed(f"no {', '.join(sorted(expected - found))} in {sorted(found)}")


def _check(subject: str, setting: Setting) -> None:
    command = [*CHECKS[subject], str(setting.file)]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=ANSWER_TIMEOUT_S,
        env=os.environ | FASTMCP_ENV,
        cwd=setting.folder,
        check=False,
    )
    if ran.returncode:
        raise Failed(f"{subject} checks with status {ran.returncode}: {ran.stderr[-300:]} {ran.stdout[-300:]}")
    require({one.id for one in setting.servers if one.id in ran.stdout}, {one.id for one in setting.servers})


# --- Processes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process of the system.

    Attributes:
        ticks: its CPU time, with that of children that it has waited for.
    """

    parent: int
    command: str
    ticks: int


def processes() -> dict[int, Process]:
    """Returns all processes by their ids."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = Process(int(fields[1]), command, sum(map(int, fields[11:15])))
    return found


def tree(roots: Iterable[int], known: dict[int, Process]) -> list[int]:
    """Returns the ids of `roots` and of all their descendants, parents first."""
    found = [root for root in roots if root in known]
    for pid in found:
        found += [child for child, process in known.items() if process.parent == pid]
    return found


def proxy_pids(roots: Iterable[int], known: dict[int, Process]) -> list[int]:
    """Returns the processes of a tree that are no servers: the roots, and those below them neither started from the
    folder of the servers nor by such a process."""
    roots = list(roots)
    servers: set[int] = set()
    for pid in tree(roots, known):
        process = known[pid]
        if pid not in roots and (SERVERS_MARK in process.command or process.parent in servers):
            servers.add(pid)
    return [pid for pid in tree(roots, known) if pid not in servers]


def settle(roots: list[int]) -> None:
    """Waits until the processes below `roots` are idle, up to `SETTLE_MAX_S`."""
    deadline = time.monotonic() + SETTLE_MAX_S
    before = -1
    while time.monotonic() < deadline:
        known = processes()
        now = sum(known[pid].ticks for pid in tree(roots, known))
        if abs(now - before) <= 1:
            return
        before = now
        time.sleep(SETTLED_S)


def cpu_us(pid: int) -> float:
    """Returns the CPU time of a process, without that of its children."""
    return time.clock_gettime((~pid << 3) | 2) * 1e6  # as `programs.cpu_s` has it


def pss_kb(pid: int) -> int:
    """Returns the memory of a process, where a page that n processes share counts as 1/n.

    Source: Linux, Documentation/filesystems/proc.rst, "smaps_rollup".
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def busy_processors() -> float:
    """Returns how many processors the system uses, over `BUSY_SAMPLE_S`."""

    def used_ticks() -> int:
        user, nice, system, _, _, irq, softirq, steal, *_ = map(
            int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        )
        return user + nice + system + irq + softirq + steal

    before, began = used_ticks(), time.monotonic()
    time.sleep(BUSY_SAMPLE_S)
    return (used_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


# --- The run ----------------------------------------------------------------------------------------------------------


def prepare(name: str, folder: Path) -> Setting:
    """Writes a configuration file into a folder of its own."""
    servers, file = CONFIGURATIONS[name], folder / name / "mcp.json"
    place = folder / name / "files"
    place.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    commands = {one.id: one.command_in(place) for one in servers}
    file.write_text(json.dumps({"mcpServers": {id: {"command": c[0], "args": c[1:]} for id, c in commands.items()}}))
    return Setting(servers, file, place)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures, and returns the report, which can be written as JSON."""
    report: dict[str, Any] = {
        "python": description(),
        "machine": f"{os.cpu_count()} processors, Linux {os.uname().release}",
        "node": subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        "peers": {name: version for name, version in versions().items() if name in RUNS["starts"]},
        "before": [],
        "results": {},
        "absent": {name: reason for name in SUBJECTS if (reason := why_absent(name))},
    }
    with Programs() as programs:
        settings = {name: prepare(name, programs.scratch) for name in options.only or CONFIGURATIONS}
        first = next(iter(settings))
        say(f"{first}, a round that does not count")
        measure_round(first, settings[first], options, 0, report)
        for count in range(1, options.rounds + 1):
            for name, setting in settings.items():
                say(f"{name}, round {count}")
                measure_round(name, setting, options, count, report)
            if options.json:
                options.json.write_text(json.dumps(report, indent=1))
    return report


def measure_round(name: str, setting: Setting, options: argparse.Namespace, count: int, report: dict[str, Any]) -> None:
    """Measures all subjects once, and adds the figures to the report unless `count` is 0."""
    absent = report["absent"]
    for subject in turns(options.through or SUBJECTS, count):
        if subject in absent:
            continue
        busy, load = wait_until_quiet(options.wait), os.getloadavg()[0]
        try:
            figures = measure(subject, setting)
        except FAILURES as error:
            absent[subject] = f"{name}: {' '.join(str(error).split())[-300:]}"
            say(f"  {subject} is left out: {absent[subject]}")
            continue
        say(f"  {subject}: {summary(figures)}; before it: load {load:.2f}, {busy:.1f} processors busy")
        if count:
            report["before"].append({"load": load, "busy": busy})
            report["results"].setdefault(name, {}).setdefault(subject, []).append(figures)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def wait_until_quiet(wait_s: float) -> float:
    """Waits until the system has no other work, for `wait_s` at most. Returns how many processors are busy then."""
    deadline = time.monotonic() + wait_s
    while (busy := busy_processors()) > BUSY_MAX and time.monotonic() < deadline:
        pass
    return busy


def turns(subjects: Iterable[str], number: int) -> list[str]:
    """Returns the subjects in the order of a round. Each round begins with another one."""
    subjects = list(subjects)
    first = number % len(subjects)
    return subjects[first:] + subjects[:first]


def why_absent(subject: str) -> str | None:
    """Returns the reason why a subject cannot be measured here; None if it can."""
    needed = [subject, *(name for name in RUNS["starts"] if name.startswith("servers-"))]
    return next((reason for name in needed if (reason := is_there(name))), None)


def summary(figures: Figures) -> str:
    return ", ".join(f"{name} {value / 1000:,.0f}" for name, value in figures.items())


COLUMNS: Final = {
    "all_us": ("all lists s", 1e6),
    "second_us": ("second session s", 1e6),
    "call_us": ("its first call ms", 1e3),
    "check_us": ("check s", 1e6),
    "cpu_us": ("CPU s", 1e6),
    "pss_kb": ("PSS MiB", 1024.0),
}
"""The heading and the divisor of each figure."""


def render(report: dict[str, Any]) -> str:
    """Returns the table of a report, with what it was measured on, as Markdown."""
    rows = [
        [name, subject, str(len(rounds)), *(spread(rounds, figure, unit) for figure, (_, unit) in COLUMNS.items())]
        for name, subjects in report["results"].items()
        for subject, rounds in subjects.items()
    ]
    loads, busy = ([one[key] for one in report["before"]] for key in ("load", "busy"))
    quiet = sum(one <= BUSY_MAX for one in busy)
    parts = [
        f"{interpreter_line(report['python'])} Node.js {report['node']}. {report['machine']}. Load average before the "
        f"measurements: {min(loads):.2f} to {max(loads):.2f}; no other work before {quiet} of {len(busy)}. "
        "A figure is the median of its rounds, with their range in brackets.",
        table(("servers", "through", "rounds", *(heading for heading, _ in COLUMNS.values())), rows),
        "With: " + ", ".join(report["peers"].values()) + ".",
    ]
    if report["absent"]:
        parts.append("Left out:\n\n" + "\n".join(f"- {name}: {why}" for name, why in report["absent"].items()))
    return "\n\n".join(parts) + "\n"


def spread(rounds: list[Figures], figure: str, unit: float) -> str:
    """Returns the median of a figure with its range, if every round has it."""
    if not all(figure in one for one in rounds):
        return number(None)
    values = [one[figure] for one in rounds]
    middle, *ends = (number(value, unit) for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({ends[0]}–{ends[1]})" if len(values) > 1 else middle


def main(options: argparse.Namespace) -> None:
    if options.report:
        show(json.loads(options.report.read_text()), options.page)
        return
    compile_python(ROOT)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    show(run(options), options.page)


def show(report: dict[str, Any], page: Path | None) -> None:
    """Prints the table, or puts it into a page."""
    text = render(report)
    if page is None:
        print(text)
    else:
        page.write_text(fill(page.read_text(), text, "measured starts"))


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", action="append", choices=CONFIGURATIONS, help="a configuration; may be repeated")
    options.add_argument("--through", action="append", choices=SUBJECTS, help="a subject; may be repeated")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--wait", type=float, default=60.0, help="seconds, at most, for other work to end each time")
    options.add_argument("--json", metavar="FILE", type=Path)
    options.add_argument("--report", metavar="FILE", type=Path, help="measure nothing: take what --json has written")
    options.add_argument("--page", metavar="FILE", type=Path, help="put the table into this page, and print nothing")
    return options


if __name__ == "__main__":
    main(parser().parse_args())
