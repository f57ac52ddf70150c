"""Measures the start of the product, and files of a gigabyte through the product and through nginx.

An upload goes to a signed link, as `curl -T` sends it, and is measured up to its response; a download is an artifact
that the stub wrote. nginx stores a PUT in a folder and serves a file from one, on the same disk. The client is this
process, which lets the kernel send the file.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from peers import PEERS
from programs import Failed, Program, Programs, cpu_s, free_port, status_kb, stub_command
from subjects import ISTHMUS, why_absent
from targets import Figures

MIB: Final = 1024 * 1024
PART: Final = b"isthmus " * 131_072
TIMEOUT_S = 120.0
ANSWER_MAX_BYTES = 65_536


def measure_start(programs: Programs, upstream_url: str) -> Figures:
    """Measures `isthmus wrap` until it listens, and its CPU time and memory one second later."""
    port = free_port()
    began = time.monotonic()
    program = programs.listening([*ISTHMUS, "wrap", "--listen", f"127.0.0.1:{port}", upstream_url], port)
    wall_s = time.monotonic() - began
    time.sleep(1)
    return {"cpu_us": cpu_s(program.pid) * 1e6, "p50_us": wall_s * 1e6, "rss_kb": status_kb(program.pid, "VmRSS")}


def measure_files(programs: Programs, size_bytes: int, rounds: int) -> dict[str, dict[str, list[Figures]]]:
    """Returns throughput, CPU time and growth of memory of uploads and downloads, by workload, subject and round.

    All subjects take turns in each round, because other load on the disk and the machine affects the figures.
    """
    sent = programs.scratch / "sent.bin"
    with sent.open("wb") as file:
        for _ in range(size_bytes // len(PART)):
            file.write(PART)
    size_bytes = sent.stat().st_size
    movers: dict[str, Mover] = {"isthmus": Isthmus(programs, size_bytes)}
    if why_absent("nginx") is None:
        movers["nginx"] = Nginx(programs)
    results: dict[str, dict[str, list[Figures]]] = {"file_upload": {}, "file_download": {}}
    for _ in range(rounds):
        for name, mover in movers.items():
            moved = _watched(mover.program, size_bytes, partial(mover.take, mover.place(), sent))
            results["file_upload"].setdefault(name, []).append(moved)
        for name, mover in movers.items():
            moved = _watched(mover.program, size_bytes, partial(_get, mover.program.port, mover.made, size_bytes))
            results["file_download"].setdefault(name, []).append(moved)
    return results


class Mover(Protocol):
    """A program that stores and serves files.

    Attributes:
        made: the target of a file that can be downloaded, once one was uploaded.
    """

    program: Program
    made: str

    def place(self) -> str:
        """Returns the target for the next upload."""

    def take(self, place: str, file: Path) -> None: ...


class Isthmus:
    def __init__(self, programs: Programs, size_bytes: int) -> None:
        self.program = _isthmus(programs)
        self._session = Session(self.program.port)
        made = self._session.call("echo", {"message": "made", "write": "made.bin", "write_size": size_bytes})
        self.made = _target(made["_meta"]["artifact"]["download_url"])

    def place(self) -> str:
        """Returns the target of a new upload link, since each is good for one file."""
        offer = self._session.call("stub_get_upload_url", {})
        return _target(json.loads(offer["content"][0]["text"])["upload_url"])

    def take(self, place: str, file: Path) -> None:
        _put(self.program.port, place, file, expected=b"upload_handle")


class Nginx:
    made = "/files/taken.bin"

    def __init__(self, programs: Programs) -> None:
        self.program = _nginx(programs)
        self._made = 0

    def place(self) -> str:
        """Returns a new target: nginx responds to a PUT over an existing file with another status."""
        self._made += 1
        self.made = f"/files/taken{self._made}.bin"
        return self.made

    def take(self, place: str, file: Path) -> None:
        _put(self.program.port, place, file, expected=b"201")


def _target(url: str) -> str:
    link = urlsplit(url)
    return f"{link.path}?{link.query}"


def _isthmus(programs: Programs) -> Program:
    port = free_port()
    settings = {
        "core": {"port": port},
        "storage": {"root": str(programs.scratch / "data")},
        "sessions": {"max_total_session_size": "8Gi"},
        "uploads": {"max_file_bytes": "2Gi"},
        "artifacts": {"max_file_bytes": "2Gi"},
        "servers": [{"id": "stub", "upstream": {"command": stub_command("legacy")}, "files": "auto"}],
    }
    path = programs.scratch / "files.json"
    path.write_text(json.dumps(settings))
    return programs.listening([*ISTHMUS, "serve", str(path)], port)


def _nginx(programs: Programs) -> Program:
    port, folder = free_port(), programs.scratch
    (folder / "files").mkdir()
    path = folder / "files.conf"
    path.write_text(
        f"""daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr error; events {{ }}
http {{
    access_log off; sendfile on; client_max_body_size 4g; client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; location /files/ {{ root {folder}; dav_methods PUT; }} }}
}}
"""
    )
    return programs.listening([str(PEERS / "nginx/usr/sbin/nginx"), "-c", str(path), "-e", "stderr"], port)


def _watched(program: Program, size_bytes: int, work: Callable[[], None]) -> Figures:
    Path(f"/proc/{program.pid}/clear_refs").write_text("5")
    before_kb, before_s, began = status_kb(program.pid, "VmRSS"), cpu_s(program.pid), time.monotonic()
    work()
    wall_s = time.monotonic() - began
    return {
        "mib_per_s": size_bytes / MIB / wall_s,
        "cpu_us": (cpu_s(program.pid) - before_s) * 1e6 / (size_bytes / MIB),
        "growth_kb": status_kb(program.pid, "VmHWM") - before_kb,
    }


def _put(port: int, target: str, file: Path, *, expected: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection, file.open("rb") as body:
        head = f"PUT {target} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-filename: sent.bin\r\n"
        connection.sendall(f"{head}content-length: {os.fstat(body.fileno()).st_size}\r\n\r\n".encode())
        connection.sendfile(body)
        answer = b""
        while expected not in answer:
            received = connection.recv(ANSWER_MAX_BYTES)
            if not received or len(answer) > ANSWER_MAX_BYTES:
                raise Failed(f"the upload was answered with {answer[:500]!r}")
            answer += received


def _get(port: int, target: str, size_bytes: int) -> None:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n".encode())
        held = bytearray(MIB)
        size = connection.recv_into(held)
        end = held.find(b"\r\n\r\n", 0, size)
        if not held.startswith(b"HTTP/1.1 200") or end < 0:
            raise Failed(f"the download was answered with {bytes(held[:size])!r}")
        size -= end + 4
        while received := connection.recv_into(held):
            size += received
        if size != size_bytes:
            raise Failed(f"got {size} bytes of a download, expected {size_bytes}")


class Session:
    """An MCP session that can call the tools that give links."""

    def __init__(self, port: int) -> None:
        self.port, self.headers = port, {"accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self._post({"id": 0, "method": "initialize", "params": hello})
        self._post({"method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = self._post({"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        if answer is None or "result" not in answer or answer["result"].get("isError"):
            raise Failed(f"{tool} was answered with {answer}")
        result: dict[str, Any] = answer["result"]
        return result

    def _post(self, message: dict[str, Any]) -> dict[str, Any] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            headers = {**self.headers, "content-type": "application/json"}
            connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
            response = connection.getresponse()
            body = response.read().decode()
        finally:
            connection.close()
        if response.status >= 300:
            raise Failed(f"{message['method']} was answered with {response.status}: {body[:500]}")
        if session := response.getheader("mcp-session-id"):
            self.headers["mcp-session-id"] = session
        events = [line[5:] for line in body.splitlines() if line.startswith("data:") and '"id"' in line]
        found = events[-1] if events else body
        return json.loads(found) if found else None
