"""The orphan guard: a helper process that outlives us and ends the child processes we leave behind.

A process that is killed cannot clean up. So before the first child starts, a helper is started that holds the reading
end of a pipe and nothing else. It is told of each process group that starts and ends. When the pipe ends, because we
are gone in whatever way, it ends the groups that are left. Processes that moved to a group of their own (browsers do)
are found by a mark in their environment, on systems that show environments (Linux).

This file is both sides: imported, it is the `OrphanGuard`; run as a script, it is the helper. It uses the standard
library only, since the helper runs isolated from all installed packages.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Final

MARK_NAME: Final = "ISTHMUS_MARK"
TERM_GRACE_S: Final = 2.0
_POLL_S: Final = 0.02
_KILL_PASSES: Final = 5  # a process may fork while the list of processes is read
_LOOKS_MAX: Final = 25  # half a second; a process in the midst of exec shows its environment after microseconds
_KERNEL_THREAD: Final = 0x00200000


class OrphanGuard:
    """Our side of the helper: tells it which process groups live. Best effort; callable from any thread."""

    def __init__(self) -> None:
        self._serials = itertools.count(1)
        self._groups: set[int] = set()
        self._helper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @functools.cached_property
    def _run(self) -> str:
        """The part of all marks of this process. It is chosen with the first of them: a fork may share all before."""
        return secrets.token_hex(8)

    def mint_mark(self) -> str:
        """Returns a fresh value for `MARK_NAME` in a child's environment."""
        return f"{self._run}-{next(self._serials)}"

    def start(self) -> None:
        """Starts the helper if it does not run. Call it before a child is started.

        Raises:
            OSError: the helper cannot be started. Children are then not ended if we are killed.
        """
        with self._lock:
            if self._helper is not None and self._helper.poll() is None:
                return
            # With our own mark, if we have one, an outer guard would end the helper before it has done its work.
            environment = {name: value for name, value in os.environ.items() if name != MARK_NAME}
            self._helper = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.abspath(__file__)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
            assert self._helper.stdin is not None
            os.set_blocking(self._helper.stdin.fileno(), False)
            self._tell(f"mark {self._run}-")
            for group in self._groups:
                self._tell(f"add {group}")

    def watch(self, group: int) -> None:
        """Adds a process group to those that the helper ends."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"add {group}")

    def forget(self, group: int) -> None:
        """Removes a process group that has ended: the system may use its number again."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"del {group}")

    def _tell(self, line: str) -> None:
        if self._helper is None:
            return
        assert self._helper.stdin is not None
        # A dead helper is replaced at the next start. One that does not read is left alone, because closing its pipe
        # would make it end the groups.
        with contextlib.suppress(OSError):
            os.write(self._helper.stdin.fileno(), f"{line}\n".encode())


ORPHAN_GUARD: Final = OrphanGuard()
"""The guard of this process."""


def end_marked(mark: str, grace_s: float) -> None:
    """Ends every process whose environment holds exactly this mark: sends TERM, waits `grace_s` seconds, sends KILL.
    Blocks."""
    _end(frozenset(), f"{MARK_NAME}={mark}\0".encode(), grace_s)


def _end(groups: Iterable[int], needle: bytes, grace_s: float) -> None:
    if not _signal(groups, needle, signal.SIGTERM):
        return
    give_up_at = time.monotonic() + grace_s
    while time.monotonic() < give_up_at:
        if not _signal(groups, needle, 0):
            return
        time.sleep(_POLL_S)
    for _ in range(_KILL_PASSES):
        if not _signal(groups, needle, signal.SIGKILL):
            return
        time.sleep(_POLL_S)


def _signal(groups: Iterable[int], needle: bytes, number: int) -> bool:
    """Signals the groups, and every process with `needle` in its environment. Returns False if there are none."""
    is_any = False
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
            is_any = True
    for _ in range(_LOOKS_MAX):
        found, is_unsure = _find(needle)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                is_any = True
        if is_any or not is_unsure:
            break
        time.sleep(_POLL_S)
    return is_any


def _find(needle: bytes) -> tuple[list[int], bool]:
    """Finds processes with a variable in their environment that begins with `needle`. The second result is True if
    there may be more: a process in the midst of exec shows no environment for a moment."""
    found: list[int] = []
    is_unsure = False
    try:
        names = os.listdir("/proc")
    except OSError:
        return found, False
    for name in names:
        if name.isdecimal():
            with contextlib.suppress(OSError):
                environment = _read(name, "environ")
                if not environment and _read(name, "cmdline"):
                    environment = _read(name, "environ")  # the exec is over by now; if it is still empty, it has none
                if environment.startswith(needle) or b"\0" + needle in environment:
                    found.append(int(name))
                elif not environment:
                    is_unsure = is_unsure or _is_starting(name)
    return found, is_unsure


def _is_starting(name: str) -> bool:
    """True if a process has neither arguments nor environment, and is neither a zombie nor a kernel thread.

    Source: Linux, proc_pid_stat(5): state and flags are the first and the seventh field behind the name.
    """
    if _read(name, "cmdline"):
        return False
    fields = _read(name, "stat").rpartition(b")")[2].split()
    return len(fields) > 6 and fields[0] not in (b"Z", b"X") and not int(fields[6]) & _KERNEL_THREAD


def _read(name: str, what: str) -> bytes:
    with open(f"/proc/{name}/{what}", "rb") as file:
        return file.read()


def _keep_watch() -> None:
    """Runs the helper: reads lines from its stdin until the pipe ends, then ends the groups that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    needle = b""
    for line in sys.stdin.buffer:
        verb, _, value = line.decode("ascii").strip().partition(" ")
        if verb == "mark":
            needle = f"{MARK_NAME}={value}".encode()
        elif verb == "add":
            groups.add(int(value))
        elif verb == "del":
            groups.discard(int(value))
    if needle:  # without it every process would match
        _end(groups, needle, TERM_GRACE_S)


if __name__ == "__main__":
    _keep_watch()
