"""The scene of a check: a gateway that is started for it, its clients, and what its server processes have written down.
Each wait has a limit, and polls."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from .clients import CheckFailed, HttpClient, PipeClient
from .target import Start, Target

CHILD: Final = str(Path(__file__).with_name("child.py"))
REST_S: Final = 0.5
"""Time without a change after which something counts as at rest."""
POLL_S: Final = 0.02


class CheckSkipped(Exception):
    """Raised where a check does not apply to a gateway. The text says why."""


class Gateway:
    """A gateway that runs, with a server of the kit behind it.

    Attributes:
        target: as its authors gave it.
    """

    def __init__(self, target: Target, folder: Path, timeout_s: float, stack: ExitStack) -> None:
        self.target = target
        self._folder = folder
        self._timeout_s = timeout_s
        self._stack = stack
        self._pipes: list[tuple[PipeClient, subprocess.Popen[bytes]]] = []

    @property
    def is_http(self) -> bool:
        return bool(self.target.url)

    def http(self) -> HttpClient:
        """Returns a new client over HTTP.

        Raises:
            CheckSkipped: the gateway serves one client on stdio.
        """
        if not self.is_http:
            raise CheckSkipped("the gateway serves one client on stdio")
        return HttpClient(self.target.url, self._timeout_s)

    def needs_processes(self) -> None:
        """Raises CheckSkipped for a driver that starts no process."""
        if not self.target.runs_processes:
            raise CheckSkipped("the driver starts no process")

    def client(self) -> HttpClient | PipeClient:
        """Returns a new client; the only one where the gateway serves stdio."""
        if self.is_http:
            return self.http()
        assert not self._pipes
        process = subprocess.Popen(
            self.target.command,
            env=self.target.env,
            cwd=self.target.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._stack.callback(_end, process)
        self._pipes.append((PipeClient(process, self._timeout_s), process))
        return self._pipes[-1][0]

    def stop(self) -> None:
        """Stops the gateway: at a URL by its `stop`, on stdio by the end of its client. Then no server is left, and no
        breach was reported.

        Raises:
            CheckFailed: the gateway does not end in time, leaves a process, or has broken the contract.
        """
        stopping = threading.Thread(target=self._stop, daemon=True)
        stopping.start()
        stopping.join(self._timeout_s)
        if stopping.is_alive():
            raise CheckFailed(f"got no end of the gateway within {self._timeout_s:g} s of its stop")
        if self.target.runs_processes:
            self.until(lambda: not self.living(), "no server process is left after the stop")
        if breaches := [*self.target.breaches()]:
            raise CheckFailed("; ".join(breaches))

    def _stop(self) -> None:
        for client, process in self._pipes:
            with suppress(CheckFailed):
                client.leave()
            process.wait()
        if self.is_http:
            self.target.stop()

    def living(self) -> list[int]:
        """The process ids of the servers that run."""
        return [int(path.name) for path in self._folder.iterdir() if not is_gone(int(path.name))]

    def log(self) -> list[str]:
        """All that servers have written down."""
        return [line for path in sorted(self._folder.iterdir()) for line in path.read_text().splitlines()]

    def until(self, condition: Callable[[], object], expected: str) -> None:
        """Waits for a condition.

        Raises:
            CheckFailed: it does not come true in time.
        """
        give_up_at = time.monotonic() + self._timeout_s
        while not condition():
            if time.monotonic() > give_up_at:
                raise CheckFailed(f"waited {self._timeout_s:g} s in vain, expected that {expected}")
            time.sleep(POLL_S)

    def poured(self) -> int:
        """The number of messages that servers have poured, once it has not changed for a while."""
        seen, since = -1, time.monotonic()

        def is_at_rest() -> bool:
            nonlocal seen, since
            found = sum(line.startswith("poured") for line in self.log())
            if not found or found != seen:
                seen, since = found, time.monotonic()
            return time.monotonic() - since > REST_S

        self.until(is_at_rest, "the server waits")
        return seen


class Scene:
    """The stage of one check."""

    def __init__(self, start: Start, folder: Path, timeout_s: float) -> None:
        self._start = start
        self._folder = folder
        self._timeout_s = timeout_s

    @contextmanager
    def gateway(self, mode: str = "", **limits: Any) -> Iterator[Gateway]:
        """A gateway whose server has that mode. At the end of the block it is stopped, and judged."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        command = [sys.executable, "-I", "-S", CHILD, str(folder), *([mode] if mode else [])]
        with ExitStack() as stack:
            stack.callback(_end_all, folder)
            target = stack.enter_context(self._start(command, limits))
            gateway = Gateway(target, folder, self._timeout_s, stack)
            yield gateway
            gateway.stop()


def is_gone(pid: int) -> bool:
    """True if there is no such process, or if it has ended and its parent does not ask for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


def _end_all(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(ProcessLookupError):
            if not is_gone(int(path.name)):
                os.kill(int(path.name), 9)
