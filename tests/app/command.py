"""Runs the `isthmus` command as a person would, waits for its output, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import preloaded
from preloaded import ISTHMUS

PATIENCE_S = 20.0
Json = dict[str, Any]


def until(condition: Callable[[], object], what: str) -> None:
    """Waits by polling, for conditions that nothing announces."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, f"waited in vain: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def _default_hang_ups() -> Iterator[None]:
    """Lets started processes handle SIGHUP even if the tests run with SIGHUP ignored: an ignored signal is
    inherited, a handled one is not."""
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Run:
    """One run of the command. Leaving its context kills it, unless it has ended.

    Args:
        stdout: a file to write to; without one the output is kept here.
        through: a command that starts it, such as nohup.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[bytes] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        with _default_hang_ups():
            self._popen = preloaded.popen(
                [*through, str(ISTHMUS), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if stdout is None else stdout,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env={**os.environ, **(env or {})},
            )
        self._lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        pipes = {"stdout": self._popen.stdout, "stderr": self._popen.stderr}
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(name, pipe), daemon=True)
            for name, pipe in pipes.items()
            if pipe is not None
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        for line in pipe:
            with self._changed:
                self._lines[name].append(line.decode().rstrip("\n"))
                self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdout(self) -> str:
        return "\n".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        return "\n".join(self._lines["stderr"])

    def wait_line(self, pattern: str, stream: str = "stdout") -> re.Match[str]:
        """The first match of `pattern` in a line, as soon as there is one."""

        def find() -> re.Match[str] | None:
            return next((found for line in self._lines[stream] if (found := re.search(pattern, line))), None)

        with self._changed:
            assert self._changed.wait_for(find, PATIENCE_S), f"no {pattern!r} in {stream}: {self._lines}"
        found = find()
        assert found is not None
        return found

    def wait_url(self) -> str:
        """The URL of its MCP endpoint, once its banner is out."""
        base_url = self.wait_line(r"listens on (\S+)")[1]
        self.wait_line("connect a client|a client starts")
        [id, shown] = self.wait_line(r"^(\S+) +(?:ready|FAILED|waits|relayed|not asked) .*?(\w+://\S+|/mcp)?$").groups()
        return shown if shown and "://" in shown else f"{base_url}{shown or f'/mcp/{id}'}"

    def write(self, *messages: Json, end: bool = False) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self._popen.stdin.flush()
        if end:
            self._popen.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait_exit(self) -> int:
        """The exit code. All output is there by then."""
        code = self._popen.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code


def run(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdout: IO[bytes] | None = None
) -> tuple[int, str, str]:
    """Runs the command to its end: exit code, stdout, stderr."""
    with Run(*arguments, cwd=cwd, env=env, stdout=stdout) as started:
        code = started.wait_exit()
        return code, started.stdout, started.stderr


def told(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs the command to its end: exit code, and all that it printed, stdout first."""
    code, *printed = run(*arguments, cwd=cwd, env=env)
    return code, "".join(f"{text}\n" for text in printed if text)


# --- HTTP requests --------------------------------------------------------------------------------------------------

INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
}
INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call_message(id: int, tool: str, **arguments: object) -> Json:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def request(method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> tuple[int, Json]:
    """Status, and headers and body in one: the body's members, with the session under `session`."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body or None, dict(headers or {}))
        response = connection.getresponse()
        text = response.read()
        decoded: Json = json.loads(text) if text else {}
        return response.status, {**decoded, "session": response.getheader("Mcp-Session-Id")}
    finally:
        connection.close()


class Session:
    """A client's session over HTTP that has only one request open at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.id: str | None = None
        self.hello = self.post(INITIALIZE)
        self.id = self.hello["session"]
        if self.id is not None:
            self.post(INITIALIZED)

    def post(self, message: Json) -> Json:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.id is not None:
            headers["Mcp-Session-Id"] = self.id
        return request("POST", self.url, json.dumps(message).encode(), headers)[1]

    def call(self, tool: str, **arguments: object) -> str:
        answer = self.post(call_message(2, tool, **arguments))
        text: str = answer["result"]["content"][0]["text"]
        return text


def in_background(work: Callable[[], object]) -> Sequence[object]:
    """Starts `work` in a thread. Its result, or the error it raises, appears in the list."""
    results: list[object] = []

    def do() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    threading.Thread(target=do, daemon=True).start()
    return results
