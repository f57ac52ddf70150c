"""Measures what a call costs while somebody watches: `python bench/watched_calls.py [ROUNDS]`.

The subjects are a gateway without a live page, one whose page nobody looks at, one whose page is read as a browser does
it, and one with a page that has stopped reading. All take turns, and the mean of the least quarter of the rounds
counts. A further measurement is how late a page sees a call, at 500 calls a second.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean, quantiles
from typing import Final

from programs import Failed, Programs, allow_open_files, build, free_port
from replica_calls import Subject, measure
from subjects import ISTHMUS
from targets import Figures

ROUNDS: Final = 8
CALLS: Final = 2_000
WAIT_S: Final = 20
RATE: Final = 500
"""Calls a second at which the delay of the page is measured."""
PACED_S: Final = 4.0
DRAIN_S: Final = 6.0
"""Seconds after which what was logged of the other measurements is read."""


class Page:
    """A reader of the API of a live page, which asks again as soon as it is answered."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}"}
        self.delays_s: list[float] = []
        self.skipped = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reads until the block ends."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._read, args=[is_over])
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Asks for everything, and reads nothing of it, until the block ends."""
        connections = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(4)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = f"GET /ui/api/events?after=0&wait={WAIT_S} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            connection.sendall(f"{head}authorization: {self._headers['Authorization']}\r\n\r\n".encode() * 50)
        yield
        for connection in connections:
            connection.close()

    def _read(self, is_over: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        after = self._ask(connection, 0, 0)["last"]
        while not is_over.is_set():
            news = self._ask(connection, after, 1)
            now = time.time()
            self.skipped += news["skipped"]
            for event in news["events"]:
                after = event["n"]
                if event["type"] == "message":
                    self.delays_s.append(now - event["at"])
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, after: int, wait_s: int) -> dict[str, int | list[object]]:
        connection.request("GET", f"/ui/api/events?after={after}&wait={wait_s}", headers=self._headers)
        found: dict[str, int | list[object]] = json.loads(connection.getresponse().read())
        return found


def measure_watched(programs: Programs, rounds: int) -> dict[str, Figures]:
    """Returns the CPU time of a call by subject, and how late a page sees it."""
    url = f"http://127.0.0.1:{programs.stub('legacy').port}/mcp"
    plain, _ = _served(programs, url, has_page=False)
    watched, page = _served(programs, url, has_page=True)
    unseen, _ = _served(programs, url, has_page=True)
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        taken.setdefault("isthmus", []).append(measure(plain, CALLS)["cpu_us"])
        taken.setdefault("isthmus-unseen", []).append(measure(unseen, CALLS)["cpu_us"])
        with page.reading():
            taken.setdefault("isthmus-watched", []).append(measure(watched, CALLS)["cpu_us"])
        with page.frozen():
            taken.setdefault("isthmus-frozen", []).append(measure(watched, CALLS)["cpu_us"])
    found: dict[str, Figures] = {name: {"cpu_us": _least(figures)} for name, figures in taken.items()}
    time.sleep(DRAIN_S)
    page.delays_s.clear()
    page.skipped = 0
    with page.reading():
        subprocess.run([sys.executable, __file__, "--pace", str(watched.port)], check=True, timeout=60)
        time.sleep(1)
    cuts = quantiles(page.delays_s, n=100)
    found["isthmus-watched"] |= {"delay_p50_us": cuts[49] * 1e6, "delay_p99_us": cuts[98] * 1e6}
    return found


def _call_paced(port: int) -> None:
    """Makes `RATE` calls a second, for `PACED_S`. In a process of its own, it shares no lock with the reader."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}

    def post(**members: object) -> None:
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **members}), headers)
        response = connection.getresponse()
        response.read()
        headers["Mcp-Session-Id"] = response.headers.get("Mcp-Session-Id") or headers.get("Mcp-Session-Id", "")

    post(id=0, method="initialize", params=client)
    post(method="notifications/initialized")
    begun = time.monotonic()
    for number in range(int(RATE * PACED_S)):
        time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        post(id=number, method="tools/call", params={"name": "echo", "arguments": {"text": "hello"}})


def _least(figures: list[float]) -> float:
    return mean(sorted(figures)[: (len(figures) + 3) // 4])


def _served(programs: Programs, url: str, *, has_page: bool) -> tuple[Subject, Page]:
    port, page_port = free_port(), free_port()
    path = programs.scratch / f"{port}.json"
    settings = {
        "core": {"port": port, "log_level": "warning"},
        "storage": {"root": str(programs.scratch / f"{port}.data")},
        "ui": {"listen": f"127.0.0.1:{page_port}"} if has_page else {},
        "servers": [{"id": "stub", "upstream": {"url": url, "era": "handshake"}}],
    }
    path.write_text(json.dumps(settings))
    program = programs.listening([*ISTHMUS, "serve", str(path)], port)
    deadline, token = time.monotonic() + 30, None
    while has_page and token is None:
        if time.monotonic() > deadline:
            raise Failed(f"no live page: {programs.output(port)}")
        token = re.search(r"#token=(\w+)", programs.output(port))
        time.sleep(0.05)
    return Subject(port, 1, (program.pid,)), Page(page_port, "" if token is None else token[1])


def main() -> None:
    if sys.argv[1:2] == ["--pace"]:
        _call_paced(int(sys.argv[2]))
        return
    build()
    allow_open_files()
    with Programs() as programs:
        found = measure_watched(programs, int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
    base = found["isthmus"]["cpu_us"] or 1
    for name, row in found.items():
        print(f"{name:20}{row['cpu_us']:8.1f} µs  {(row['cpu_us'] or 0) / base:5.2f} x")
    row = found["isthmus-watched"]
    print(
        f"seen after {(row['delay_p50_us'] or 0) / 1000:.0f} ms (p50), {(row['delay_p99_us'] or 0) / 1000:.0f} ms (p99)"
    )


if __name__ == "__main__":
    main()
