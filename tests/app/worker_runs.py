"""Runs of `isthmus serve --workers 2`, and clients that use a connection of its own for each request."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from command import PATIENCE_S, Run, Session, call_message, is_alive, request, until

TOOLBOX = str(Path(__file__).parent / "peers" / "toolbox.py")


class Workers(Run):
    """One run with two workers, whose banner is out."""

    def __init__(self, config: Path, *options: str) -> None:
        super().__init__("serve", "--workers", "2", *options, str(config))
        base_url = self.wait_line(r"listens on (http\S+)")[1]
        self.wait_line("connect a client")
        self.url = f"{base_url}/mcp/a"

    @property
    def children(self) -> list[int]:
        """The pids of the workers."""
        return children(self.pid)

    def sessions(self, count_each: int = 1) -> dict[str, list[Session]]:
        """Sessions by the tag of their worker, so many or more of each of two workers."""
        found: dict[str, list[Session]] = {}
        give_up_at = time.monotonic() + PATIENCE_S
        while len(found) < 2 or min(map(len, found.values())) < count_each:
            assert time.monotonic() < give_up_at, f"all sessions are with one worker: {list(found)}"
            session = Session(self.url)
            assert session.id is not None
            found.setdefault(session.id.partition(".")[0], []).append(session)
        return found

    def pid_of(self, tag: str) -> int:
        """The pid of a worker, which holds the lock on its folder."""
        (found,) = [pid for pid in self.children if f"/workspaces/{tag}/.lock" in _open_files(pid)]
        return found


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in found for child in each.read_text().split()]


def _open_files(pid: int) -> str:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(each))
    return " ".join(found)


def tool_pid(session: Session) -> int:
    """The process of the server that answers a session."""
    pid: int = json.loads(session.call("environment"))["pid"]
    return pid


def status_of(session: Session) -> int:
    """The HTTP status of a call."""
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Mcp-Session-Id": str(session.id)}
    return request("POST", session.url, json.dumps(call_message(2, "echo", text="hello")).encode(), headers)[0]


@contextmanager
def running(config: Path, *options: str) -> Iterator[Workers]:
    """Runs workers, and ends them. No process of theirs is left then."""
    with Workers(config, *options) as workers:
        yield workers
        seen = family(workers.pid)
        workers.signal(signal.SIGTERM)
        assert workers.wait_exit() == 0, workers.stderr
        until(lambda: not any(map(is_alive, seen)), "the end of all processes")


def family(pid: int) -> set[int]:
    """The pids below a process."""
    return {below for child in children(pid) for below in {child, *family(child)}}
