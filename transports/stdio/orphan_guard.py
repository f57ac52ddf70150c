"""No orphans: a helper process that outlives us by the moment it takes to end what we started.

A process that is killed cannot clean up. So the first child process starts a helper, which holds the reading end of a
pipe and nothing else. It is told each process group that comes and goes, and when the pipe ends, because we are gone
in whatever way, it ends the groups that are left. Processes that moved to a group of their own (browsers do) are
found by a mark in their environment, where the system shows environments (Linux).

This file is both sides: imported, it is the `Warden`; run as a script, it is the helper. Standard library only, since
the helper runs isolated from whatever is installed.
"""

from __future__ import annotations

import contextlib
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
_LOOKS_MAX: Final = 25  # half a second: a process that is about to run another program is seen after microseconds
_KERNEL_THREAD: Final = 0x00200000


class Warden:
    """Our side of the helper: says what lives. Best effort by nature; callable from any thread."""

    def __init__(self) -> None:
        self._run = secrets.token_hex(8)
        self._serials = itertools.count(1)
        self._groups: set[int] = set()
        self._helper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def mint_mark(self) -> str:
        """A fresh value for `MARK_NAME` in a child's environment."""
        return f"{self._run}-{next(self._serials)}"

    def start(self) -> None:
        """Have the helper running, so that no child exists before it.

        Raises:
            OSError: it cannot be started. Children are then not protected against our sudden death.
        """
        with self._lock:
            if self._helper is not None and self._helper.poll() is None:
                return
            # Our own mark, if we have one, would let an outer warden end the helper before it has done its work.
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
        """The process group is ours to end."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"add {group}")

    def forget(self, group: int) -> None:
        """The process group has ended; its number may come to mean another."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"del {group}")

    def _tell(self, line: str) -> None:
        if self._helper is None:
            return
        assert self._helper.stdin is not None
        # A dead helper is replaced at the next start; one that does not read is left alone, for closing its pipe
        # would set it to work.
        with contextlib.suppress(OSError):
            os.write(self._helper.stdin.fileno(), f"{line}\n".encode())


WARDEN: Final = Warden()
"""The one of this process."""


def end_marked(mark: str, grace_s: float) -> None:
    """End every process whose environment holds exactly this mark: TERM, patience of `grace_s`, KILL. Blocks."""
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
    """Signal the groups and every process with the needle in its environment. False: there are none."""
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
    """Processes that began with `needle` in their environment, and whether there may be more: one that is about to run
    another program shows none for a moment."""
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
                    environment = _read(name, "environ")  # it runs by now; if there is nothing yet, it has none
                if environment.startswith(needle) or b"\0" + needle in environment:
                    found.append(int(name))
                elif not environment:
                    is_unsure = is_unsure or _is_starting(name)
    return found, is_unsure


def _is_starting(name: str) -> bool:
    """Whether a process has neither arguments nor environment, and is no zombie and none of the kernel's own.

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
    """The helper: listen until the pipe ends, then end what is left."""
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
