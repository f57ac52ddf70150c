"""The processes of a run: builds the C programs, starts each proxy and waits for its port, and ends all of them."""

from __future__ import annotations

import compileall
import contextlib
import http.client
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "bench"
FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE")
START_TIMEOUT_S = 60.0
"""The bound on the start of a program: those in Node and Python load for seconds on a busy machine."""
STOP_TIMEOUT_S = 15.0
WORDS_SHOWN_MAX = 2000
OPEN_FILES = 65_536
OTHER_FILES = 1000
"""Open files of a proxy besides those of idle sessions: sessions that call, pooled connections, logs."""


class Failed(Exception):
    """A program that is measured did not start, or gave a wrong response."""


PACKAGES = ("core", "transports", "storage", "app")


def build() -> None:
    """Compiles the C programs and the product, if they are older than their sources.

    An installed product is compiled too. Without that, each start would compile it again where Python cannot write.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    compile_python(ROOT)
    for name in ("stub", "load"):
        made, sources = BUILD / name, [HERE / f"{name}.c", HERE / "wire.h"]
        if not made.exists() or any(source.stat().st_mtime > made.stat().st_mtime for source in sources):
            scratch = (
                BUILD / f"{name}.{os.getpid()}"
            )  # a run that begins meanwhile finds the old program or the new one
            subprocess.run(["cc", *FLAGS, "-o", scratch, HERE / f"{name}.c"], check=True)
            scratch.rename(made)


def compile_python(folder: Path) -> None:
    for package in PACKAGES:
        compileall.compile_dir(folder / package, quiet=1)


def allow_open_files() -> None:
    """Raises the limit of open files for the programs started: 10,000 sessions are 20,000 sockets of a proxy."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):  # only root may raise its limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, max(hard, OPEN_FILES)))
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def idle_max() -> int:
    """Returns how many sessions the limit of open files lets a proxy hold: each may be a socket on either side."""
    return (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES) // 2


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process so far, with all its threads, to the nanosecond.

    Source: Linux, include/linux/posix-timers.h: the clock of a process is the complement of its id, then 3 bits.
    """
    return time.clock_gettime((~pid << 3) | 2)


def status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise Failed(f"process {pid} has no {field}")


@dataclass(frozen=True)
class Program:
    """A process that accepts connections.

    Attributes:
        start_cpu_s: the CPU time until it accepted the first.
    """

    pid: int
    port: int
    start_cpu_s: float = 0.0


class Programs(contextlib.ExitStack):
    """The programs started in this context, which ends them.

    Attributes:
        scratch: a folder for their configurations, logs and data, which is removed with them.
    """

    def __init__(self) -> None:
        super().__init__()
        BUILD.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(self.enter_context(tempfile.TemporaryDirectory(dir=BUILD, ignore_cleanup_errors=True)))

    def __enter__(self) -> Programs:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)
        return self

    def listening(
        self,
        command: list[str],
        port: int,
        env: dict[str, str] | None = None,
        cwd: Path = ROOT,
        health: tuple[str, str] | None = None,
    ) -> Program:
        """Starts `command`, and waits until it listens on `port`, and until the path `health[0]` says `health[1]`.

        Raises:
            Failed: it ended, or did not listen in time; with the end of its output.
        """
        process = self.start(command, port, env, cwd)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                if health is None or says(port, *health):
                    return Program(process.pid, port, cpu_s(process.pid))
            time.sleep(0.05)
        raise Failed(f"{command[0]} does not listen on port {port}: {self.output(port)}")

    def start(
        self, command: list[str], port: int, env: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> subprocess.Popen[bytes]:
        """Starts `command`, which is to listen on `port`, and does not wait for it."""
        with open(self.scratch / f"{port}.log", "w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | (env or {}),
                cwd=cwd,
                start_new_session=True,
            )
        self.callback(_stop, process, with_children=True)
        return process

    def output(self, port: int) -> str:
        """Returns the end of the output of the program that was started for `port`."""
        return (self.scratch / f"{port}.log").read_text(errors="replace")[-WORDS_SHOWN_MAX:]

    def stub(self, era: str) -> Program:
        """Starts the upstream server, which chooses its port."""
        process = subprocess.Popen([BUILD / "stub", "http", "--era", era], stdout=subprocess.PIPE, text=True)
        self.callback(_stop, process, with_children=False)
        assert process.stdout is not None
        self.callback(process.stdout.close)
        return Program(process.pid, int(process.stdout.readline()))


def says(port: int, path: str, text: str) -> bool:
    """True if the response to a GET of `path` has `text`.

    Raises:
        OSError: there is no response.
    """
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=1)) as connection:
        connection.request("GET", path)
        return text.encode() in connection.getresponse().read()


def stub_command(era: str) -> list[str]:
    return [str(BUILD / "stub"), "stdio", "--era", era]


def _leave(number: int, frame: object) -> NoReturn:
    """Exits, so that the programs that were started end when this process gets SIGTERM."""
    raise SystemExit(128 + number)


def _stop(process: subprocess.Popen[str] | subprocess.Popen[bytes], *, with_children: bool) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if with_children else process.kill()
        process.wait()
    if with_children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # processes that it left behind are in its process group
