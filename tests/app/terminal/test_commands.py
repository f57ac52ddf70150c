"""Tests of `isthmus tail` and `isthmus top` with a running gateway, a client and a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from command import PATIENCE_S, Run, Session, run
from preloaded import ISTHMUS

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]


class Watched(NamedTuple):
    """A gateway with a live page, and the URLs of its listeners."""

    run: Run
    clients: str
    page: str


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    path = tmp_path / "isthmus.json"
    servers = [{"id": "box", "upstream": {"command": TOOLBOX}, "warm": 0}]
    storage, ui = {"root": str(tmp_path / "data")}, {"listen": "127.0.0.1:0", "keep": True}
    path.write_text(json.dumps({"core": {"port": 0}, "storage": storage, "ui": ui, "servers": servers}))
    with Run("serve", str(path)) as served:
        clients = re.sub(r"/mcp.*", "", served.wait_url())
        yield Watched(served, clients, served.wait_line(r"shown at (\S+)/ui")[1])


class Terminal:
    """A terminal, and the command that runs in it."""

    def __init__(self, *command: str) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(24)
        self.modes = termios.tcgetattr(self._theirs)
        environ = {**os.environ, "TERM": "xterm", "NO_COLOR": ""}
        ends = {"stdin": self._theirs, "stdout": self._theirs, "stderr": self._theirs}
        self._popen = subprocess.Popen([str(ISTHMUS), *command], **ends, env=environ, start_new_session=True)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(PATIENCE_S)
        os.close(self._ours)
        os.close(self._theirs)

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self, pattern: str) -> None:
        """Waits until what is shown from now on has the pattern."""
        end = time.monotonic() + PATIENCE_S
        new = ""
        while not re.search(pattern, new):
            ready, _, _ = select.select([self._ours], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {pattern!r} in {new!r}"
            new += os.read(self._ours, 65536).decode()
        self.shown += new

    def wait_exit(self) -> int:
        code = self._popen.wait(PATIENCE_S)
        while select.select([self._ours], [], [], 0)[0]:
            self.shown += os.read(self._ours, 65536).decode()
        return code

    def is_as_before(self) -> bool:
        """True if the modes, the screen and the cursor are those that the terminal had before the command."""
        is_left = self.shown.count("\x1b[?1049h") == self.shown.count("\x1b[?1049l") > 0
        return (
            is_left
            and self.shown.rindex("\x1b[?25h") > self.shown.rindex("\x1b[K")
            and self.modes == (termios.tcgetattr(self._theirs))
        )


def test_tail_follows_until_it_is_ended(watched: Watched) -> None:
    with Run("tail", "--url", watched.page, "method:tools/*") as plain, contextlib.ExitStack() as stack:
        client = Session(watched.clients + "/mcp")
        client.call("echo", text="one")
        line = plain.wait_line(r"t 0 → box +tools/call echo +result +\d")
        client.call("two")
        plain.wait_line("tools/call two +result +")
        plain.signal(signal.SIGINT)
        assert (plain.wait_exit(), plain.stderr) == (-signal.SIGINT, "")
        assert "initialize" not in plain.stdout and line.string.isprintable()
        full = stack.enter_context(Run("tail", "--url", watched.page, "--json", "--", "-method:initialize"))
        found = json.loads(full.wait_line("tools/call")[0] and full.stdout.splitlines()[-1])
        assert (found["type"], found["state"], found["attempts"][0]["server"]) == ("request", "over", "box")
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as unread:
            code, _, complaint = run("tail", "--url", watched.page, "--lines", "0", stdout=unread)
        assert (code, complaint) == (-signal.SIGPIPE, "")
        watched.run.signal(signal.SIGTERM)
        full.wait_line("trying again every 1 s", "stderr")


def test_a_gateway_without_a_live_page_is_named(watched: Watched) -> None:
    for command in (("tail",), ("top", "--once")):
        code, out, complaint = run(*command, "--url", watched.clients)
        assert (code, out, "--ui" in complaint) == (1, "", True)
        code, out, complaint = run(*command, "--url", "http://127.0.0.1:1")
        assert (code, out, "--ui" in complaint) == (1, "", True)
        code, out, complaint = run(*command, "--url", watched.page, "--token", "an0ther")
        assert (code, out, "does not take this token" in complaint) == (1, "", True)
    for words, right in ((["metod:x"], "did you mean method?"), (["--lines", "x"], "number"), (["-n"], "option -n")):
        code, out, complaint = run("tail", "--url", watched.page, *words)
        assert (code, out, right in complaint) == (2, "", True)
    code, _, complaint = run("top", "--url", watched.page)
    assert (code, "--once" in complaint) == (2, True)


def test_top_in_a_terminal(watched: Watched) -> None:
    client = Session(watched.clients + "/mcp")
    client.call("echo", text="one")
    with Terminal("top", "--url", watched.page) as terminal:
        terminal.wait(r"\x1b\[\?1049h.*sorted by name[^$]*box  +.*\d ms[^$]*SESSION")
        terminal.type("s")
        terminal.wait("sorted by REQ/S")
        terminal.type("p")
        terminal.wait(r"\(paused\)")
        terminal.resize(2)
        terminal.signal(signal.SIGWINCH)
        terminal.wait(r"\x1b\[H[^\n]+\n\x1b\[K\x1b\[J")
        terminal.type("q")
        assert (terminal.wait_exit(), terminal.is_as_before()) == (0, True)
    for number in (signal.SIGINT, signal.SIGTERM):
        with Terminal("top", "--url", watched.page) as terminal:
            terminal.wait("SESSION")
            terminal.signal(number)
            assert (terminal.wait_exit(), terminal.is_as_before()) == (-number, True)
    shown = json.loads(run("top", "--json", "--url", watched.page)[1])
    assert (shown["servers"][0]["name"], len(shown["sessions"]), shown["open"]) == ("box", 1, [])
    assert run("top", "--once", "--url", watched.page)[1].splitlines()[1].startswith("box ")
