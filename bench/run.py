"""CPU time per proxied call, and memory, against the floor of the same stack in the same run: `make bench`.

CPU time is the proxy process's own, from the kernel, which other load on the machine hardly touches; wall times are not
reported. Each figure is the median of interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
HEADERS = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}'


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


class Client:
    """One keep-alive connection with one session."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.session = b""

    async def connect(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        head, _ = await self.post(INITIALIZE)
        found = re.search(rb"mcp-session-id: *([^\r]+)", head, re.IGNORECASE)
        self.session = b"mcp-session-id: %b\r\n" % found[1] if found else b""
        await self.post(INITIALIZED)

    async def post(self, body: bytes) -> tuple[bytes, bytes]:
        self.writer.write(
            b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\n%b%bcontent-length: %d\r\n\r\n%b"
            % (self.path, HEADERS, self.session, len(body), body)
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: *([0-9]+)", head, re.IGNORECASE)
        if length is None:
            raise RuntimeError(f"expected a reply with a length, got {head!r}")
        return head, await self.reader.readexactly(int(length[1]))

    async def calls(self, count: int) -> None:
        for number in range(1, count + 1):
            _, body = await self.post(CALL % number)
            assert b'"result"' in body, body


async def measure(port: int, path: bytes, pid: int, concurrency: int, calls: int) -> float:
    """CPU µs of process `pid` per call."""
    clients = [Client(path) for _ in range(concurrency)]
    for client in clients:
        await client.connect(port)
    await asyncio.gather(*(client.calls(20) for client in clients))
    before = cpu_seconds(pid)
    await asyncio.gather(*(client.calls(calls // concurrency) for client in clients))
    spent = cpu_seconds(pid) - before
    for client in clients:
        client.writer.close()
    return spent / (calls // concurrency * concurrency) * 1e6


def start(*command: str) -> tuple[subprocess.Popen[str], int]:
    """A process that prints its port, or a line that ends in one."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, int(re.findall(r"[0-9]+", line)[-1])


async def idle(port: int, path: bytes, count: int) -> list[Client]:
    clients = []
    for _ in range(count):
        client = Client(path)
        await client.connect(port)
        client.writer.close()  # a session outlives its connections
        clients.append(client)
    return clients


async def main(options: argparse.Namespace) -> dict[str, object]:
    isthmus = [sys.executable, "-m", "isthmus.app.cli", "wrap", "--listen", "127.0.0.1:0"]
    stub, stub_port = start(sys.executable, str(HERE / "stub.py"), "http")
    floor, floor_port = start(sys.executable, str(HERE / "floor.py"), str(stub_port))
    http, http_port = start(*isthmus, f"http://127.0.0.1:{stub_port}/mcp")
    stdio, stdio_port = start(*isthmus, "--", sys.executable, str(HERE / "stub.py"), "stdio")
    processes = [stub, floor, http, stdio]
    try:
        report: dict[str, object] = {"rss_mb_idle": round(rss_mb(http.pid), 1)}
        for concurrency in (1, 16):
            figures: dict[str, list[float]] = {"floor": [], "http": [], "stdio": []}
            for _ in range(options.rounds):
                for name, process, port in (
                    ("floor", floor, floor_port),
                    ("http", http, http_port),
                    ("stdio", stdio, stdio_port),
                ):
                    figures[name].append(await measure(port, b"/mcp", process.pid, concurrency, options.calls))
            medians = {name: round(statistics.median(values)) for name, values in figures.items()}
            report[f"cpu_us_per_call_c{concurrency}"] = medians
            report[f"ratio_to_floor_c{concurrency}"] = {
                name: round(medians[name] / medians["floor"], 2) for name in ("http", "stdio")
            }
        before = rss_mb(http.pid)
        await idle(http_port, b"/mcp", options.sessions)
        report[f"rss_mb_with_{options.sessions}_idle_sessions"] = round(rss_mb(http.pid), 1)
        report["kb_per_idle_session"] = round((rss_mb(http.pid) - before) / options.sessions * 1000, 1)
        return report
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(20)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=1000)
    print(json.dumps(asyncio.run(main(parser.parse_args())), indent=2))
