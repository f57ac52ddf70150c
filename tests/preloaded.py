"""Starts a Python program, such as `isthmus`, as a fork of a process that has loaded what it imports. Loading takes
most of the CPU of a start.

A fork has the arguments, the environment, the folder, the standard descriptors and the session of a process that was
started for it. Only /proc shows the command line and the environment of the process that was forked.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

ISTHMUS: Final = Path(sys.executable).with_name("isthmus")
COMMAND: Final = "isthmus.app.cli.cli"
"""The module that `isthmus` imports."""
TIMEOUT_S: Final = 60.0
_REQUEST_MAX_BYTES: Final = 128 * 1024
_AT_START: Final = ("PYTHON", "COVERAGE_", "LD_", "MALLOC_", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""Beginnings of the names of variables that a process reads when it starts, and a fork no more."""


def popen(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    env: Mapping[str, str],
    cwd: Path | None = None,
    imports: Sequence[str] = (),
) -> subprocess.Popen[bytes] | Fork:
    """Starts a command in a session of its own: signals to the tests do not reach it, nor the other way round.

    The command is a fork if it is `isthmus` or a script, unless the environment sets what a fork does not read.

    Args:
        imports: modules that a script imports. Without any it is no fork.
    """
    is_measured = any(name.startswith("COVERAGE_PROCESS_") for name in os.environ)
    if not is_measured and _settings(env) == _settings(os.environ):
        if command[0] == str(ISTHMUS):
            return Fork(command, (stdin, stdout, stderr), env, cwd, _preloaded(os.getpid(), sys.executable, (COMMAND,)))
        if imports and command[1].endswith(".py"):
            preloaded = _preloaded(os.getpid(), command[0], tuple(imports))
            return Fork(command[1:], (stdin, stdout, stderr), env, cwd, preloaded)
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
    )


def _settings(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


class Fork:
    """A running program, with what the tests use of `subprocess.Popen`.

    Args:
        command: a Python script and its arguments.
        standard: stdin, stdout and stderr: `PIPE`, `DEVNULL` or a file.
        preloaded: the connection to the process that is forked.
    """

    def __init__(
        self,
        command: Sequence[str],
        standard: Sequence[int | IO[bytes]],
        env: Mapping[str, str],
        cwd: Path | None,
        preloaded: socket.socket,
    ) -> None:
        self.returncode: int | None = None
        self._command = command
        self._lock = threading.Lock()
        request = json.dumps({"argv": list(command), "env": dict(env), "cwd": str(cwd or os.getcwd())}).encode()
        assert len(request) < _REQUEST_MAX_BYTES
        with contextlib.ExitStack() as theirs:
            pipes: list[IO[bytes] | None] = []
            given = []
            for number, target in enumerate(standard):
                pipe, descriptor = _ends(number, target)
                theirs.callback(os.close, descriptor)
                pipes.append(pipe)
                given.append(descriptor)
            self.stdin, self.stdout, self.stderr = pipes
            self._status, status = socket.socketpair()
            theirs.enter_context(status)
            socket.send_fds(preloaded, [request], [*given, status.fileno()])
        self._status.settimeout(TIMEOUT_S)
        self.pid = self._receive()
        self._descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            self._descriptor = os.pidfd_open(self.pid)

    def _receive(self) -> int:
        data = self._status.recv(16)
        assert data, "the preloaded process is gone"
        return int(data)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code.

        Raises:
            subprocess.TimeoutExpired: the process has not ended in time.
        """
        with self._lock:
            if self.returncode is None:
                self._status.settimeout(timeout)
                try:
                    self.returncode = self._receive()
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired(self._command, timeout or 0) from None
                self._status.close()
                if self._descriptor is not None:
                    os.close(self._descriptor)
            return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None and self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _ends(number: int, target: int | IO[bytes]) -> tuple[IO[bytes] | None, int]:
    """Returns our end of a pipe, if it is to be one, and the descriptor that the process is to have."""
    if not isinstance(target, int):
        return None, os.dup(target.fileno())
    if target == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    assert target == subprocess.PIPE
    reading, writing = os.pipe()
    return (os.fdopen(writing, "wb"), reading) if number == 0 else (os.fdopen(reading, "rb"), writing)


@functools.cache
def _preloaded(tests_pid: int, interpreter: str, imports: tuple[str, ...]) -> socket.socket:
    """Starts the process that is forked, once for each process of tests. It ends once the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [interpreter, __file__, str(theirs.fileno()), *imports],
            stdin=subprocess.PIPE,  # standard input and output are buffered as their kind wants it
            stdout=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        if os.getpid() == tests_pid:
            ours.close()
            process.wait(TIMEOUT_S)

    atexit.register(end)
    return ours


# --- The process that is forked ---------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Makes a fork for each request, and reports its process id and then its exit code. Returns in a fork, with its
    request, and with None at the end."""
    with requests, selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    pid, status = key.data
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with status, contextlib.suppress(OSError):  # nobody waits for it any more
                        status.send(str(code).encode())
                    continue
                data, fds, _, _ = socket.recv_fds(requests, _REQUEST_MAX_BYTES, 4)
                if not data:
                    return None
                request: dict[str, Any] = json.loads(data)
                *standard, reports = fds
                status = socket.socket(fileno=reports)
                if (pid := os.fork()) == 0:
                    for other in [one for one in selector.get_map().values() if one.data is not None]:
                        os.close(other.fd)
                        other.data[1].close()
                    status.close()
                    _become(request, standard)
                    return request
                for fd in standard:
                    os.close(fd)
                status.send(str(pid).encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def _become(request: Mapping[str, Any], standard: Sequence[int]) -> None:
    os.setsid()
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])


if __name__ == "__main__":
    gc.disable()  # as `isthmus.app.main` does
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    gc.freeze()
    if _serve(socket.socket(fileno=int(sys.argv[1]))) is not None:
        gc.enable()
        if sys.argv[0] == str(ISTHMUS):
            sys.modules[COMMAND].main()
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
