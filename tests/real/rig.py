"""Starts the processes of these tests, waits for their output, and proves that nothing of them is left.

Everything is a `Process`: isthmus itself, servers, clients in environments of their own. Each one carries a tag in its
environment, which its descendants inherit, so that an orphan is found wherever it went. Waiting is always for a line,
an exit or a condition, with a time limit that only a broken run meets.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import preloaded
from isthmus.app.runtime.token_files import find
from preloaded import ISTHMUS
from screens import unwrapped

ROOT: Final = Path(__file__).resolve().parents[2]
REAL: Final = Path(os.environ.get("ISTHMUS_REAL", ROOT / ".real"))
CLIENTS: Final = Path(__file__).resolve().parent / "clients"
PEERS: Final = Path(__file__).resolve().parent / "peers"
PYTHON_1: Final = REAL / "client1/bin/python"
PYTHON_2: Final = REAL / "filers/bin/python"
"""The interpreters with mcp 1.x, and with mcp 2.x and the libraries built on it."""
EVERYTHING: Final = REAL / "node/node_modules/.bin/mcp-server-everything"
PLAYWRIGHT: Final = REAL / "node/node_modules/.bin/playwright-mcp"
FILESYSTEM: Final = REAL / "node/node_modules/.bin/mcp-server-filesystem"
MARKITDOWN: Final = REAL / "filers/bin/markitdown-mcp"
PANDOC: Final = REAL / "filers/bin/mcp-pandoc"
WORD: Final = REAL / "filers/bin/word_mcp_server"
EXCEL: Final = REAL / "filers/bin/excel-mcp-server"

IMPORTS: Final[Mapping[str, Sequence[str]]] = {
    str(PYTHON_1): ("mcp.client.streamable_http", "mcp.client.websocket", "mcp.server.fastmcp", "uvicorn"),
    str(PYTHON_2): ("mcp", "mcp.server.lowlevel", "uvicorn"),
}
"""Modules that most scripts for an interpreter import, which takes it about a second."""

PATIENCE_S: Final = 60.0
"""A limit that only a broken run meets."""

TAG_NAME: Final = "LC_RIG"
"""The tag's variable. Isthmus passes `LC_*` on to its child processes, and little else, so this one reaches all
descendants."""


class RigError(AssertionError):
    """Raised when an expected event did not happen. The message contains what happened instead."""


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Waits for a condition by polling, such as the end of a process.

    Raises:
        RigError: the condition did not become true in time.
    """
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise RigError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(0.02)


# --- Processes ------------------------------------------------------------------------------------------------------


def _stat_of(pid: int) -> tuple[str, int] | None:
    """Returns state letter and parent of a process; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def children_of(pid: int) -> list[int]:
    """Returns the living children of a process, without zombies."""
    found = []
    for other in _pids():
        stat = _stat_of(other)
        if stat is not None and stat[1] == pid and stat[0] != "Z":
            found.append(other)
    return sorted(found)


def descendants_of(pid: int) -> list[int]:
    """Returns the children, their children, and so on."""
    found: list[int] = []
    for child in children_of(pid):
        found += [child, *descendants_of(child)]
    return found


def command_of(pid: int) -> str:
    """Returns the command line of a process, to tell children apart; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    stat = _stat_of(pid)
    return stat is not None and stat[0] != "Z"


def tagged(tag: str) -> list[int]:
    """Returns every living process that carries the tag. Zombies and the dead show no environment."""
    needle = f"{TAG_NAME}={tag}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def new_tag() -> str:
    return f"rig-{secrets.token_hex(6)}"


class Process:
    """A running command. Its stdout is kept line by line, its stderr goes to a file.

    Args:
        command: program and arguments.
        folder: the folder of the log. It may be shared.
        env: added to the environment of this test.
        has_stdin: True to give it a stdin to write to. Otherwise it reads an empty one.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        has_stdin: bool = False,
        tag: str | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.tag = tag or new_tag()
        self.lines: list[str] = []
        self._has_ended = False
        self._news = threading.Condition()
        self.log = folder / f"{Path(self.command[0]).name}-{self.tag}.log"
        with self.log.open("wb") as log:
            self.popen = preloaded.popen(
                self.command,
                stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(env or {}), TAG_NAME: self.tag},
                cwd=cwd,
                imports=IMPORTS.get(self.command[0], ()),
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def stderr(self) -> str:
        return self.log.read_text(errors="replace")

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for raw in self.popen.stdout:
            with self._news:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def wait_line(self, pattern: str, *, since: int = 0, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """Waits for a line of stdout, from number `since` on, in which the pattern is found. Returns the match.

        Raises:
            RigError: stdout ended without it, or the time was up.
        """
        give_up_at = time.monotonic() + timeout_s
        at = since
        with self._news:
            while True:
                while at < len(self.lines):
                    match = re.search(pattern, self.lines[at])
                    if match is not None:
                        return match
                    at += 1
                left = give_up_at - time.monotonic()
                if self._has_ended or left <= 0:
                    break
                self._news.wait(left)
        how = f"said nothing of it for {timeout_s:g} s"
        if self._has_ended:
            how = f"its stdout ended, exit code {self.wait_exit()}"
        raise RigError(f"{self.describe()}: {how}; waited for {pattern!r}")

    def write_line(self, line: str | bytes) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write((line.encode() if isinstance(line, str) else line) + b"\n")
        self.popen.stdin.flush()

    def close_stdin(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def wait_exit(self, *, timeout_s: float = PATIENCE_S) -> int:
        """Returns the exit code, once all of stdout was read."""
        try:
            code = self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RigError(f"{self.describe()}: did not exit within {timeout_s:g} s") from error
        self._reader.join(timeout_s)
        return code

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL to the process itself, and to no process that it started."""
        self.popen.kill()
        self.wait_exit()

    def stop(self, *, code: int | None = 0) -> None:
        """Sends SIGTERM, then proves that the process ended well and left nothing behind.

        Args:
            code: the expected exit code. None for any, as of a server that is not ours.
        """
        if self.popen.poll() is None:
            self.terminate()
        seen = self.wait_exit()
        assert code is None or seen == code, f"{self.describe()}: exit code {seen}, expected {code}"
        self.assert_gone()

    def assert_gone(self, *, timeout_s: float = 15.0) -> None:
        """Proves that the process and its descendants are gone, or soon will be."""
        try:
            until(lambda: not tagged(self.tag), "processes to end", timeout_s=timeout_s)
        except RigError as error:
            left = "; ".join(f"{pid}: {command_of(pid)}" for pid in tagged(self.tag))
            raise RigError(f"{self.describe()}: left behind {left}") from error

    def clean_up(self) -> None:
        """Ends the process and its descendants after a failure, whatever state they are in."""
        for pid in {*tagged(self.tag)} | ({self.pid} if self.popen.poll() is None else set()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(RigError):
            self.wait_exit(timeout_s=5)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def describe(self) -> str:
        tail = "\n  ".join(line[:400] for line in self.lines[-20:])
        return f"{' '.join(self.command)}\n  {tail}\nstderr:\n{self.stderr[-4000:]}"


@contextlib.contextmanager
def launched(
    command: Sequence[str | Path],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    has_stdin: bool = False,
    code: int | None = 0,
) -> Iterator[Process]:
    """Runs a process until the block ends, then stops it and proves that nothing is left."""
    process = Process(command, folder=folder, env=env, cwd=cwd, has_stdin=has_stdin)
    try:
        yield process
        process.stop(code=code)
    finally:
        process.clean_up()


# --- Isthmus --------------------------------------------------------------------------------------------------------


class Proxy(Process):
    """`isthmus` as an HTTP server, once its banner is out.

    Attributes:
        base_url: `http://127.0.0.1:PORT`, or https.
        port: that port.
    """

    base_url: str
    port: int

    def wait_ready(self) -> None:
        match = self.wait_line(r"listens on (https?://127\.0\.0\.1:([0-9]+))")
        self.base_url, self.port = match[1], int(match[2])
        self.wait_line(r"connect a client: ")

    @property
    def url(self) -> str:
        """The URL of its only server."""
        return f"{self.base_url}/mcp"

    @property
    def socket_url(self) -> str:
        """The URL of its only server, for WebSocket clients."""
        return f"{self.base_url.replace('http', 'ws', 1)}/ws"

    @property
    def sse_url(self) -> str:
        """The URL of its only server, for clients of HTTP+SSE."""
        return f"sse+{self.base_url}/sse"

    def url_of(self, server: str) -> str:
        return f"{self.base_url}/mcp/{server}"

    @property
    def operator(self) -> dict[str, str]:
        """The header of an operator, where the configuration says nothing of tokens."""
        found = find(("127.0.0.1", self.port))
        return {} if found is None else {"Authorization": f"Bearer {found.token}"}

    @property
    def banner(self) -> str:
        return unwrapped("\n".join(self.lines))

    @property
    def server_pids(self) -> list[int]:
        """Returns its children that are servers: all but the helper that ends orphans."""
        return [pid for pid in children_of(self.pid) if "orphan_guard" not in command_of(pid)]


def isthmus(
    arguments: Sequence[str | Path],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    has_stdin: bool = False,
) -> Process:
    """Starts isthmus with any arguments. The caller ends it."""
    return Process([ISTHMUS, *arguments], folder=folder, env=env, cwd=cwd, has_stdin=has_stdin)


@contextlib.contextmanager
def _proxy(
    arguments: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None, cwd: Path | None
) -> Iterator[Proxy]:
    proxy = Proxy([ISTHMUS, *arguments], folder=folder, env=env, cwd=cwd)
    try:
        proxy.wait_ready()
        yield proxy
        if proxy.popen.poll() is None:  # otherwise the test has ended it, and has checked how
            proxy.stop()
        proxy.assert_gone()
    finally:
        proxy.clean_up()


@contextlib.contextmanager
def wrap(
    *target: str | Path,
    folder: Path,
    options: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    asks: bool = False,
) -> Iterator[Proxy]:
    """Runs `isthmus wrap` on a port of its own, before a URL (one target) or a command, until the block ends.

    Args:
        asks: True to have it ask the server at its start. That is a session, and for a command a process, of its own.
    """
    target_words = wrap_target(*target)
    # Tests count processes and folders, so none is kept ready.
    is_warm = target_words[0] != "--" or "--share" in options or "--warm" in options
    warm = [] if is_warm else ["--warm", "0"]
    arguments = ["wrap", "--listen", "127.0.0.1:0", *_start(asks), *warm, *options, *target_words]
    with _proxy(arguments, folder, env, cwd) as proxy:
        yield proxy


@contextlib.contextmanager
def serve(
    config: Path,
    *,
    folder: Path,
    options: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    asks: bool = False,
) -> Iterator[Proxy]:
    """Runs `isthmus serve` with a configuration, whose port should be 0, until the block ends.

    Args:
        asks: True to have it ask its servers at its start, as `wrap` does.
    """
    with _proxy(["serve", *_start(asks), *options, config], folder, env, cwd) as proxy:
        yield proxy


def _start(asks: bool) -> list[str]:
    return [] if asks else ["--quiet-start"]


def wrap_target(*target: str | Path) -> list[str | Path]:
    """Returns the last arguments of `isthmus wrap`."""
    is_url = len(target) == 1 and re.match(r"((sse\+)?https?|wss?)://", str(target[0])) is not None
    return [str(target[0])] if is_url else ["--", *target]


def stdio_wrap(*target: str | Path, options: Sequence[str] = ()) -> list[str]:
    """Returns the command line of `isthmus wrap --listen stdio`, for a stdio client to start."""
    return [str(part) for part in (ISTHMUS, "wrap", "--listen", "stdio", *options, *wrap_target(*target))]


# --- Servers --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def everything_over_http(*, folder: Path, port: int = 0) -> Iterator[tuple[Process, str]]:
    """Runs server-everything as a Streamable HTTP server on loopback. Yields the process and its URL."""
    with _stopped(*start_everything_over_http(folder=folder, port=port)) as started:
        yield started


def start_everything_over_http(*, folder: Path, port: int = 0) -> tuple[Process, str]:
    """Starts what `everything_over_http` runs. The caller ends it."""
    return _start_everything("streamableHttp", "mcp", folder, port)


@contextlib.contextmanager
def everything_over_sse(*, folder: Path) -> Iterator[tuple[Process, str]]:
    """Runs server-everything as an HTTP+SSE server on loopback. Yields the process and the URL of its event stream."""
    with _stopped(*_start_everything("sse", "sse", folder, 0)) as started:
        yield started


def _start_everything(mode: str, path: str, folder: Path, port: int) -> tuple[Process, str]:
    require(EVERYTHING)
    command = ["node", "--require", CLIENTS / "loopback.cjs", EVERYTHING.resolve(), mode]
    return start_server(command, path, folder=folder, env={"PORT": str(port)})


def start_server(
    command: Sequence[str | Path], path: str, *, folder: Path, env: Mapping[str, str] | None = None
) -> tuple[Process, str]:
    """Starts a server that prints "listening on 127.0.0.1:PORT". Returns it and its URL. The caller ends it."""
    process = Process(command, folder=folder, env=env)
    try:
        match = process.wait_line(r"listening on 127\.0\.0\.1:([0-9]+)")
    except RigError:
        process.clean_up()
        raise
    return process, f"http://127.0.0.1:{match[1]}/{path}"


@contextlib.contextmanager
def _stopped(process: Process, url: str) -> Iterator[tuple[Process, str]]:
    try:
        yield process, url
        process.stop(code=None)
    finally:
        process.clean_up()


def free_ports(count: int) -> list[int]:
    """Returns ports of 127.0.0.1 on which nobody listens."""
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in free]


def listens(port: int) -> bool:
    """True if somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def require(path: Path) -> Path:
    """Returns the path of something that setup.sh installs. Fails if it is missing."""
    assert path.exists(), f"{path} is missing: run tests/real/setup.sh"
    return path


# --- Clients --------------------------------------------------------------------------------------------------------

CLIENT_COMMANDS: Final[Mapping[str, Sequence[str | Path]]] = {
    "python-1": (PYTHON_1, CLIENTS / "python1.py"),
    "python-2": (PYTHON_2, CLIENTS / "python2.py"),
    "typescript-1": ("node", CLIENTS / "typescript1.mjs"),
    "tasks-typescript-1": ("node", CLIENTS / "tasks_typescript1.mjs"),
    "tasks-python-1": (PYTHON_1, CLIENTS / "tasks_python1.py"),
    "tasks-fastmcp": (PYTHON_2, CLIENTS / "tasks_fastmcp.py"),
    "tasks-raw": (sys.executable, CLIENTS / "tasks_raw.py"),
    "visit-python-1": (PYTHON_1, CLIENTS / "visit_python1.py"),
    "visit-python-2": (PYTHON_2, CLIENTS / "visit_python2.py"),
    "listen-python-2": (PYTHON_2, CLIENTS / "listen_python2.py"),
    "visit-typescript-1": ("node", CLIENTS / "visit_typescript.mjs"),
    "visit-typescript-2": ("node", CLIENTS / "visit_typescript.mjs"),
}
"""Clients: official SDKs (mcp 1.x and 2.x of PyPI; @modelcontextprotocol/sdk 1.x and @modelcontextprotocol/client 2.x
of npm), FastMCP 4.x, and one without an SDK. The first three carry out a plan, the others make a visit
(peers/README.md)."""

NODE_MODULES: Final[Mapping[str, Path]] = {"visit-typescript-2": REAL / "node2/node_modules"}
"""The modules of clients whose SDK is not installed with the others."""


def run_client(
    kind: str,
    target: str | Sequence[str],
    sessions: Sequence[Mapping[str, Any]],
    *,
    folder: Path,
    timeout_s: float = 90.0,
) -> list[dict[str, Any]]:
    """Runs an official client through sessions. Returns its records, in order.

    Args:
        kind: a key of `CLIENT_COMMANDS`.
        target: a URL, or the command line of a stdio server, which the client starts.
        sessions: `{"capabilities": "none" | "all", "steps": […]}`, see `clients/README.md`. For a visit, one session,
            which may name the `mode` in which the SDK finds its revision.

    Raises:
        RigError: the client failed or got stuck, or left a process behind.
    """
    command = CLIENT_COMMANDS[kind]
    require(Path(command[-1]))
    node_modules = require(NODE_MODULES.get(kind, REAL / "node/node_modules"))
    tag = new_tag()
    # A stdio client passes only a few variables on to its server. These are the ones that matter here.
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "ISTHMUS_REAL") if name in os.environ}
    env[TAG_NAME] = tag
    plan = {
        "target": {"url": target} if isinstance(target, str) else {"command": list(target), "env": env},
        "sessions": list(sessions),
        "node_modules": str(node_modules),
    }
    plan_file = folder / f"plan-{tag}.json"
    plan_file.write_text(json.dumps(plan))
    process = Process([*command, plan_file], folder=folder, tag=tag)
    try:
        code = process.wait_exit(timeout_s=timeout_s)
        if code != 0:
            raise RigError(f"{process.describe()}: exit code {code}")
        process.assert_gone()
        return [json.loads(line) for line in process.lines if line.startswith("{")]
    finally:
        process.clean_up()
