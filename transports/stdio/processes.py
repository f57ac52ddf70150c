"""Functions for child processes: whether one has exited, waiting for its exit, and signals to its group."""

from __future__ import annotations

import contextlib
import os
import subprocess

import anyio
from anyio import to_thread


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signals all processes in the child's group. A process that left the group or belongs to another user is not
    reached."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """True if the process has exited. Where the system supports it, the process is not reaped."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except (AttributeError, ChildProcessError):  # no waitid on this system, or the process is reaped already
        return process.poll() is not None


async def exits_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """True if the process has exited, or does within `limit_s` seconds."""
    if has_exited(process):
        return True
    with anyio.move_on_after(limit_s):
        await wait_exit(process)
        return True
    return False


async def wait_exit(process: subprocess.Popen[bytes]) -> None:
    """Returns when the process has exited; where the system supports it, before it is reaped."""
    if process.returncode is not None:
        return
    try:
        watch = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        # Not Linux, or forbidden. A limiter of its own, since long-lived children would use up the shared threads.
        await to_thread.run_sync(process.wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        return
    try:
        await anyio.wait_readable(watch)
    finally:
        os.close(watch)
