"""Child processes by their handles: whether one has exited, waiting until it has, and signals to its group."""

from __future__ import annotations

import contextlib
import os
import subprocess

import anyio
from anyio import to_thread


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal everyone in the child's group. Who left it, or belongs to another user, is not reached."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has exited. Where the system can tell, it is not reaped."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except (AttributeError, ChildProcessError):  # a system without it, or it is reaped already
        return process.poll() is not None


async def exits_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether the process has exited, or does within so many seconds."""
    if has_exited(process):
        return True
    with anyio.move_on_after(limit_s):
        await wait_exit(process)
        return True
    return False


async def wait_exit(process: subprocess.Popen[bytes]) -> None:
    """Return when the process has exited; where the system can tell, before it is reaped."""
    if process.returncode is not None:
        return
    try:
        watch = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        # Not Linux, or forbidden. A limiter of its own, or long-lived children would use up the common threads.
        await to_thread.run_sync(process.wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        return
    try:
        await anyio.wait_readable(watch)
    finally:
        os.close(watch)
