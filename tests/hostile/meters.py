"""Measurements of the gateway's process: resident memory, descriptors, and CPU time while /healthz waits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
from callers import Cut, requested
from world import fd_count, rss_bytes

HEALTH_TIMEOUT_S = 60.0
SAMPLE_S = 0.05


def cpu_s(pid: int) -> float:
    """Returns the CPU time of all threads of a process, without its children, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Meter:
    """The highest figures of one period.

    Attributes:
        health_cpu_s: the most CPU time of the gateway between sending a request for /healthz and its answer.
        health_s: the longest time that one took.
        health_failures: descriptions of requests for /healthz without the answer 200.
    """

    def __init__(self, pid: int, port: int) -> None:
        self.rss_bytes = 0
        self.fds = 0
        self.health_cpu_s = 0.0
        self.health_s = 0.0
        self.health_count = 0
        self.health_failures: list[str] = []
        self._pid = pid
        self._port = port

    async def sample(self) -> None:
        """Samples until it is cancelled."""
        while True:
            self.rss_bytes = max(self.rss_bytes, rss_bytes(self._pid))
            self.fds = max(self.fds, fd_count(self._pid))
            await anyio.sleep(SAMPLE_S)

    async def probe(self) -> None:
        """Asks for /healthz until it is cancelled."""
        while True:
            cpu, began_at = cpu_s(self._pid), time.monotonic()
            try:
                with anyio.fail_after(HEALTH_TIMEOUT_S):
                    async with requested(self._port, "GET", "/healthz", {}) as response:
                        await response.body()
                if response.status != 200:
                    self.health_failures.append(f"/healthz: HTTP {response.status}")
            except (Cut, TimeoutError) as error:
                self.health_failures.append(f"/healthz: {error!r}")
            self.health_count += 1
            self.health_cpu_s = max(self.health_cpu_s, cpu_s(self._pid) - cpu)
            self.health_s = max(self.health_s, time.monotonic() - began_at)
            await anyio.sleep(SAMPLE_S)
