"""Tests of a child process as a channel: its output arrives, and nothing of it is left in any case."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import msgspec
import pytest
from isthmus.core.base.budget import Budget, Share
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.stdio import server_process
from isthmus.transports.stdio.exit_reason import HINTS
from isthmus.transports.stdio.server_process import Child, ChildSpec
from line_drivers import anyio_backend, driver, protocols  # noqa: F401
from ports import RecordingPort

pytestmark = pytest.mark.anyio
CHANNEL = ChannelId(1)
LIMITS = Limits(stop_grace_s=0.3)
PATIENCE_S = 20.0

ECHO = "import sys\nfor line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()"


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the timeouts. No test depends on it; those whose processes ignore signals wait for it."""
    monkeypatch.setattr(server_process, "QUICK_GRACE_S", 0.2)


@pytest.fixture(autouse=True)
def chosen(protocols: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(Stage, "protocols", protocols)


class Stage:
    """One child on a recording port, and its log."""

    protocols = True

    def __init__(self, spec: ChildSpec, limits: Limits = LIMITS) -> None:
        self.port = RecordingPort()
        self.log: list[str] = []
        self.child = Child(spec, CHANNEL, self.port, limits, log=self.log.append, protocols=self.protocols)

    def send(self, message: bytes) -> None:
        self.child.send(Send(CHANNEL, message))

    def close(self) -> None:
        self.child.close(Close(CHANNEL))

    async def run_to_end(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            await self.child.run()


def python(code: str, *args: str) -> ChildSpec:
    return ChildSpec((sys.executable, "-I", "-S", "-c", code, *args))


@contextlib.asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[Stage]:
    """A child that runs within. At the end it must have ended by itself or by order."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.child.run)
            yield stage


def is_alive(pid: int) -> bool:
    """True if the process runs; zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def wait_gone(pid: int) -> None:
    for _ in range(1000):
        if not is_alive(pid):
            return
        await anyio.sleep(PATIENCE_S / 1000)
    pytest.fail(f"process {pid} is alive")


async def test_messages_go_there_and_back() -> None:
    stage = Stage(python(ECHO))
    stage.send(b'{"before":"start"}')
    async with running(stage):
        assert await stage.port.wait_opened(CHANNEL) == Connected()
        assert await stage.port.wait_message(CHANNEL) == [b'{"before":"start"}']
        big = json.dumps({"big": "x" * 1_000_000}).encode()
        for message in (b"{}", big, b"[\n1,\r\n2]"):
            stage.send(message)
        assert (await stage.port.wait_message(CHANNEL, 4))[1:] == [b"{}", big, b"[ 1,  2]"]
        await stage.port.wait_sent(CHANNEL, 18 + 2 + len(big) + 8)
        pid = stage.child.pid
        stage.close()
        stage.close()
    assert stage.port.closes[CHANNEL].end is End.DONE
    assert pid is not None
    assert not is_alive(pid)


async def test_a_banner_is_passed_on_for_the_engine_to_judge() -> None:
    stage = Stage(python("print('Welcome!'); print('{}')"))
    await stage.run_to_end()
    assert stage.port.messages[CHANNEL] == [b"Welcome!", b"{}"]


async def test_the_last_output_of_a_child_is_delivered_before_its_end() -> None:
    """The last output is delivered even if reading is paused."""
    stage = Stage(python("import sys; sys.stdin.readline()\nfor n in range(500): print(n)\nsys.exit(3)"))
    async with running(stage):
        await stage.port.wait_opened(CHANNEL)
        stage.child.pause()
        stage.send(b"{}")
        cause = await stage.port.wait_closed(CHANNEL)
    assert stage.port.messages[CHANNEL] == [b"%d" % n for n in range(500)]
    assert cause.end is End.BROKEN
    assert cause.detail == "exited with code 3"


async def test_a_child_that_dies_at_start_is_quoted_with_a_hint() -> None:
    code = "import sys\nfor n in range(9): print('line', n, 'é' * 600, file=sys.stderr)\nimport no_such_module"
    stage = Stage(python(code))
    await stage.run_to_end()
    cause = stage.port.closes[CHANNEL]
    assert cause.end is End.BROKEN
    assert cause.detail.startswith("exited with code 1; last stderr: ")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in cause.detail
    assert "; hint: a Python module is missing" in cause.detail
    assert len(cause.detail) < 6 * 512
    assert "\n" not in cause.detail
    assert "ModuleNotFoundError: No module named 'no_such_module'" in stage.log
    assert stage.child.last_stderr[0] == "line 0 " + "é" * 600


async def test_a_child_that_spoke_gets_no_hint() -> None:
    stage = Stage(python("print('{}', flush=True); import no_such_module"))
    await stage.run_to_end()
    assert "hint" not in stage.port.closes[CHANNEL].detail


async def test_stderr_is_bounded() -> None:
    code = """if True:
        import os
        for n in range(50): os.write(2, b"%d\\n" % n)
        os.write(2, b"\\xff" + b"y" * 100000 + b"\\n" + b"unfinished")"""
    stage = Stage(python(code), msgspec.structs.replace(LIMITS, stderr_ring_lines=10))
    await stage.run_to_end()
    assert stage.child.last_stderr[:-2] == [str(n) for n in range(42, 50)]
    assert stage.child.last_stderr[-2:] == ["\ufffd" + "y" * 4095, "unfinished"]


async def test_a_signal_is_named() -> None:
    stage = Stage(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    await stage.run_to_end()
    assert stage.port.closes[CHANNEL].detail == "was killed by signal 9"


def not_executable(folder: Path) -> ChildSpec:
    (folder / "server").write_text("#!/bin/sh\n")
    return ChildSpec((str(folder / "server"),))


def no_interpreter(folder: Path) -> ChildSpec:
    (folder / "server").write_text("#!/no/such/interpreter\n")
    (folder / "server").chmod(0o755)
    return ChildSpec(("server",), env={"PATH": str(folder)})


def no_format(folder: Path) -> ChildSpec:
    (folder / "server").write_bytes(b"\x00\x01")
    (folder / "server").chmod(0o755)
    return ChildSpec((str(folder / "server"),))


@pytest.mark.parametrize(
    "make_spec, words",
    [
        (lambda _: ChildSpec(("no-such-command",)), ["'no-such-command' not found on PATH", "install it"]),
        (lambda _: ChildSpec(("npx", "x"), env={"PATH": "/nowhere"}), ["'npx' not found on PATH", "install Node.js"]),
        (lambda _: ChildSpec(("/no/such/command",)), ["'/no/such/command' does not exist"]),
        (lambda _: ChildSpec(("true",), cwd="/no/such/folder"), ["'/no/such/folder' is not a folder"]),
        (lambda _: ChildSpec(("true", "\0")), ["'true' cannot be started", "null byte"]),
        (not_executable, ["is not executable", "chmod +x"]),
        (no_interpreter, ["is on PATH", "#! line"]),
        (no_format, ["cannot be started", "Exec format error"]),
    ],
)
async def test_a_child_that_cannot_start_is_unreachable_with_a_reason(
    make_spec: Callable[[Path], ChildSpec], words: list[str], tmp_path: Path
) -> None:
    stage = Stage(make_spec(tmp_path))
    stage.send(b"{}")
    await stage.run_to_end()
    cause = stage.port.closes[CHANNEL]
    assert cause.end is End.UNREACHABLE
    assert cause.unsent
    assert all(word in cause.detail for word in words), cause.detail
    assert not stage.port.opened_channels


async def test_a_channel_closed_before_its_start_starts_nothing(tmp_path: Path) -> None:
    stage = Stage(ChildSpec(("touch", str(tmp_path / "ran"))))
    stage.close()
    await stage.run_to_end()
    assert stage.port.closes[CHANNEL].end is End.DONE
    assert not stage.port.opened_channels
    assert not (tmp_path / "ran").exists()


async def test_the_queue_is_written_before_stdin_is_closed() -> None:
    """An orderly child reads all, sees the end, and leaves by itself."""
    code = "import sys; n = sum(len(line) for line in sys.stdin); print('read', n, file=sys.stderr)"
    stage = Stage(python(code), Limits(stop_grace_s=PATIENCE_S))
    async with running(stage):
        await stage.port.wait_opened(CHANNEL)
        for _ in range(100):
            stage.send(b"x" * 9999)
        stage.close()
    assert stage.child.last_stderr == ["read 1000000"]
    assert stage.port.closes[CHANNEL].end is End.DONE


async def test_a_child_that_talks_while_it_is_stopped_does_not_block() -> None:
    """The child's output is thrown away, paused or not, so that it comes to see the end of its stdin."""
    code = """if True:
        import sys
        print("{}", flush=True)
        sys.stdin.read()
        print("x" * 1000000)
        print("left by itself", file=sys.stderr)"""
    stage = Stage(python(code), Limits(stop_grace_s=PATIENCE_S))
    async with running(stage):
        await stage.port.wait_message(CHANNEL)
        stage.child.pause()
        stage.close()
    assert stage.port.messages[CHANNEL] == [b"{}"]
    assert stage.child.last_stderr == ["left by itself"]


DEAF = """if True:
    import signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    pids = [subprocess.Popen(sleeper, env={}).pid, subprocess.Popen(sleeper, start_new_session=True).pid]
    print(*pids, flush=True)
    time.sleep(600)"""


@pytest.mark.parametrize("how", ["close", "cancel", "killed"])
async def test_nothing_of_a_deaf_child_is_left(how: str) -> None:
    """A child that ignores the end of stdin and TERM is ended with its group, and with a detached grandchild."""
    stage = Stage(python(DEAF))
    with anyio.fail_after(2 * PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.child.run)
            pids = [int(word) for word in (await stage.port.wait_message(CHANNEL))[0].split()]
            assert stage.child.pid is not None
            assert is_alive(stage.child.pid)
            assert all(map(is_alive, pids))
            if how == "close":
                stage.send(b"x" * 1_000_000)  # it does not read its stdin either
                stage.close()
            elif how == "cancel":
                tasks.cancel_scope.cancel()
            else:
                os.kill(stage.child.pid, signal.SIGKILL)
    assert not is_alive(stage.child.pid)
    for pid in pids:
        await wait_gone(pid)
    assert stage.port.closes[CHANNEL].end is (End.BROKEN if how == "killed" else End.DONE)


async def test_a_child_that_does_not_read_disturbs_nobody() -> None:
    stage = Stage(python("import time; print('{}', flush=True); time.sleep(600)"))
    async with running(stage):
        for _ in range(100):
            stage.send(b"x" * 10_000)
        await stage.port.wait_message(CHANNEL)
        assert stage.port.sent_bytes[CHANNEL] < 1_000_000
        stage.close()
    assert stage.port.closes[CHANNEL].end is End.DONE


@pytest.mark.parametrize("fd", [0, 1])
async def test_a_child_that_hangs_up_but_goes_on_is_stopped(fd: int) -> None:
    stage = Stage(python(f"import os, time; print('{{}}', flush=True); os.close({fd}); time.sleep(600)"))
    async with running(stage):
        await stage.port.wait_message(CHANNEL)
        if fd == 0:
            with anyio.fail_after(PATIENCE_S):
                while CHANNEL not in stage.port.closes:  # a writer learns of it only by writing
                    stage.send(b"{}")
                    await anyio.sleep(0.01)
        cause = await stage.port.wait_closed(CHANNEL)
    assert cause.end is End.BROKEN
    assert cause.detail.startswith("closed its stdin or stdout but went on running")


async def test_a_paused_child_is_not_read() -> None:
    stage = Stage(python(ECHO))
    async with running(stage):
        stage.send(b"{}")
        await stage.port.wait_message(CHANNEL)
        stage.child.pause()
        stage.child.pause()
        stage.send(b"[]")
        await stage.port.wait_sent(CHANNEL, 4)
        for _ in range(20):
            await anyio.sleep(0.005)
            assert stage.port.messages[CHANNEL] == [b"{}"]
        stage.child.resume()
        await stage.port.wait_message(CHANNEL, 2)
        stage.close()


async def test_an_oversize_answer_becomes_an_error_and_reading_goes_on() -> None:
    code = """if True:
        print('{"jsonrpc":"2.0","id":5,"result":"' + "x" * 200000 + '"}')
        print("y" * 200000)
        print("{}")"""
    stage = Stage(python(code), msgspec.structs.replace(LIMITS, reply_size_max_bytes=100_000))
    await stage.run_to_end()
    error, after = stage.port.messages[CHANNEL]
    assert json.loads(error)["id"] == 5
    assert json.loads(error)["error"]["code"] == -31007
    assert after == b"{}"
    assert sum("dropped a line" in line for line in stage.log) == 2


async def test_an_answer_cut_off_by_the_end_gives_its_room_back() -> None:
    budget = Budget(limit=1_000_000, owner_limit=1_000_000)
    spec = python("import time; print('x' * 200_000, end='', flush=True); time.sleep(60)")
    stage = Stage(spec)
    stage.child = Child(
        spec,
        CHANNEL,
        stage.port,
        LIMITS,
        log=stage.log.append,
        share=Share(budget, "s"),
        protocols=stage.protocols,
    )
    async with running(stage):
        for _ in range(1000):
            if budget.used == 200_000:
                break
            await anyio.sleep(PATIENCE_S / 1000)
        assert budget.used == 200_000
        stage.close()
    assert budget.used == 0


async def test_a_last_line_without_its_end_is_a_line() -> None:
    stage = Stage(python("print('{}'); print('[1]', end='')"))
    await stage.run_to_end()
    assert stage.port.messages[CHANNEL] == [b"{}", b"[1]"]


async def test_without_pidfd_a_thread_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise PermissionError("seccomp")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.delattr(os, "waitid")
    stage = Stage(python("import sys; sys.exit(4)"))
    await stage.run_to_end()
    assert stage.port.closes[CHANNEL].detail == "exited with code 4"
    deaf = Stage(python(DEAF))
    async with running(deaf):
        pids = [int(word) for word in (await deaf.port.wait_message(CHANNEL))[0].split()]
        deaf.close()
    for pid in pids:
        await wait_gone(pid)


async def test_environment_and_folder_reach_the_child(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd()); print(os.environ['A']); print(os.environ['ISTHMUS_MARK'])"
    spec = ChildSpec((sys.executable, "-c", code), env={"A": "b", "ISTHMUS_MARK": "forged"}, cwd=str(tmp_path))
    stage = Stage(spec)
    await stage.run_to_end()
    folder, a, mark = stage.port.messages[CHANNEL]
    assert (folder.decode(), a) == (str(tmp_path.resolve()), b"b")
    assert mark != b"forged"


SAMPLES = {
    "npm ERR! code E404": "npm knows",
    "npm error 404 Not Found - GET https://registry.npmjs.org/nope": "npm knows",
    "  x No solution found when resolving tool dependencies:": "no such Python package",
    "npm ERR! errno ENOTFOUND": "a download failed",
    "Error: listen EADDRINUSE: address already in use 127.0.0.1:80": "its port is taken",
    "OSError: [Errno 98] Address already in use": "its port is taken",
    "/usr/bin/python: No module named server": "a Python module",
    "Error: Cannot find module '/x/server.js'": "a Node.js module",
    "npm WARN EBADENGINE Unsupported engine": "it wants another version",
    "Error: EACCES: permission denied, open '/x'": "it may not use",
    "sh: 1: frobnicate: command not found": "it calls a command",
    "Error: ENOENT: no such file or directory, stat '/x'": "a file or folder",
    "server.py: error: unrecognized arguments: --x": "it does not know",
}


async def test_each_hint_has_a_sample_that_finds_it_first() -> None:
    found = {line: next(hint for pattern, hint in HINTS if re.search(pattern, line, re.IGNORECASE)) for line in SAMPLES}
    assert all(found[line].startswith(start) for line, start in SAMPLES.items()), found
    assert set(found.values()) == {hint for _, hint in HINTS}
