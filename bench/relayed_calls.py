"""Measures a request and a response of 64 MiB each through a transparent server and through byte proxies.

The server answers once it has the request, because nginx stalls if both bodies are under way at the same time. Client
and server are this process: only the proxy's CPU time and memory count.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Final

from programs import Failed, Program, Programs, cpu_s, free_port, status_kb
from subjects import STARTERS, Route, why_absent
from targets import Figures

MIB: Final = 1024 * 1024
SIZE_BYTES: Final = 64 * MIB
PART_BYTES: Final = 256 * 1024
TIMEOUT_S: Final = 120.0
SUBJECTS: Final = ("isthmus-relay", "isthmus-relay-anyio", "nginx", "haproxy")
_HTTP: Final = Route("http", "http")


def measure_relay(programs: Programs, rounds: int) -> dict[str, list[Figures]]:
    """Returns throughput, CPU time and growth of memory by subject and round. All subjects take turns."""
    upstream = programs.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
    threading.Thread(target=_serve, args=[upstream], daemon=True).start()
    url = f"http://127.0.0.1:{upstream.getsockname()[1]}/mcp"
    started: dict[str, Program] = {}
    for name in SUBJECTS:
        if why_absent(name) is None:
            port = free_port()
            start = STARTERS[name](_HTTP, port, url, programs.scratch)
            assert start is not None
            started[name] = programs.listening(start.command, port, dict(start.env))
    results: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for name, program in started.items():
            results.setdefault(name, []).append(_measure(program))
    return results


def _measure(program: Program) -> Figures:
    _exchange(program.port, MIB)  # both connections are open then
    Path(f"/proc/{program.pid}/clear_refs").write_text("5")
    before_kb, before_s, began = status_kb(program.pid, "VmRSS"), cpu_s(program.pid), time.monotonic()
    _exchange(program.port, SIZE_BYTES)
    wall_s = time.monotonic() - began
    return {
        "mib_per_s": SIZE_BYTES / MIB / wall_s,
        "cpu_us": (cpu_s(program.pid) - before_s) * 1e6 / (SIZE_BYTES / MIB),
        "growth_kb": status_kb(program.pid, "VmHWM") - before_kb,
    }


def _exchange(port: int, size_bytes: int) -> None:
    """Sends a body, and receives one of the same size.

    Raises:
        Failed: the response is another.
    """
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        _send(connection, size_bytes)
        head, received = _read_head(connection)
        if not head.startswith(b"HTTP/1.1 200"):
            raise Failed(f"a body of {size_bytes} bytes was answered with {head!r}")
        size = len(received)
        while size < size_bytes and (data := connection.recv(PART_BYTES)):
            size += len(data)
        if size != size_bytes:
            raise Failed(f"got {size} bytes of a response, expected {size_bytes}")


def _send(connection: socket.socket, size_bytes: int) -> None:
    head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: x/y\r\ncontent-length: {size_bytes}\r\n\r\n"
    connection.sendall(head.encode())
    part = bytes(PART_BYTES)
    for _ in range(size_bytes // PART_BYTES):
        connection.sendall(part)


def _serve(upstream: socket.socket) -> None:
    while True:
        try:
            connection, _ = upstream.accept()
        except OSError:  # the run is over
            return
        threading.Thread(target=_answer, args=[connection], daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """Answers each request of a connection with a body of the same size."""
    part = bytes(PART_BYTES)
    with connection:
        while True:
            head, data = _read_head(connection)
            if not head:
                return
            lines = head.lower().split(b"\r\n")
            (left,) = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
            size = left
            left -= len(data)
            while left and (data := connection.recv(PART_BYTES)):
                left -= len(data)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: x/y\r\ncontent-length: %d\r\n\r\n" % size)
            for _ in range(size // PART_BYTES):
                connection.sendall(part)


def _read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    """Returns a head and what came behind it; b"" at the end of the stream."""
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            received = connection.recv(PART_BYTES)
        except OSError:
            return b"", b""
        if not received:
            return b"", b""
        data += received
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest
