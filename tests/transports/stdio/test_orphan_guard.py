"""Tests of the orphan guard: when this process is killed, nothing that it started outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from isthmus.transports.stdio import orphan_guard as orphan_guard_module
from isthmus.transports.stdio.orphan_guard import MARK_NAME, OrphanGuard, end_marked

PATIENCE_S = 20.0
SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
DEAF = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)",
]

# Starts a child through `Child`, which starts a grandchild in a session of its own, and prints their ids.
PARENT = """if True:
    import sys
    import anyio
    from isthmus.core.base.ids import ChannelId
    from isthmus.core.base.limits import Limits
    from isthmus.transports.stdio.server_process import Child, ChildSpec

    CHILD = '''if True:
        import os, subprocess, sys, time
        sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
        print(os.getpid(), subprocess.Popen(sleeper, start_new_session=True).pid, flush=True)
        time.sleep(600)'''

    class Port:
        def opened(self, channel, opening): pass
        def arrived(self, channel, messages): print(messages[0].decode(), flush=True)
        def closed(self, channel, cause): pass

    child = Child(ChildSpec((sys.executable, "-c", CHILD)), ChannelId(1), Port(), Limits(), log=lambda line: None)
    anyio.run(child.run, backend=sys.argv[1])"""


def is_alive(pid: int) -> bool:
    """True if the process runs; zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(*pids: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < give_up_at, f"alive: {[pid for pid in pids if is_alive(pid)]}"
        time.sleep(0.01)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended after the test in any case."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def start(
    started: list[subprocess.Popen[bytes]], command: list[str], *, mark: str = "", session: bool = True
) -> subprocess.Popen[bytes]:
    """A process that has begun to run."""
    environment = dict(os.environ) | ({MARK_NAME: mark} if mark else {})
    process = subprocess.Popen(command, env=environment, start_new_session=session, stdout=subprocess.PIPE)
    started.append(process)
    if command is DEAF:
        assert process.stdout is not None
        process.stdout.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_killed_parent_leaves_neither_child_nor_detached_grandchild(
    backend: str, number: int, started: list[subprocess.Popen[bytes]]
) -> None:
    parent = start(started, [sys.executable, "-c", PARENT, backend])
    assert parent.stdout is not None
    child, grandchild = map(int, parent.stdout.readline().split())
    assert is_alive(child)
    assert is_alive(grandchild)
    os.kill(parent.pid, number)
    wait_gone(child, grandchild)


def end(guard: OrphanGuard, *ended: subprocess.Popen[bytes]) -> None:
    """Does what the kernel does to the pipe when this process dies; `ended` are the processes that TERM ends."""
    helper = guard._helper
    assert helper is not None
    assert helper.stdin is not None
    helper.stdin.close()
    for process in ended:
        assert process.wait(PATIENCE_S) == -signal.SIGTERM
    assert helper.wait(PATIENCE_S) == 0


def test_what_was_forgotten_is_left_alone(started: list[subprocess.Popen[bytes]]) -> None:
    guard = OrphanGuard()
    before, kept, forgotten = (start(started, SLEEP) for _ in range(3))
    guard.watch(before.pid)
    guard.start()
    guard.start()
    guard.watch(kept.pid)
    guard.watch(forgotten.pid)
    guard.forget(forgotten.pid)
    end(guard, before, kept)
    assert forgotten.poll() is None


def test_the_helper_minds_no_signal_but_its_pipe(started: list[subprocess.Popen[bytes]]) -> None:
    guard = OrphanGuard()
    guard.start()
    helper = guard._helper
    assert helper is not None
    sleeper = start(started, SLEEP)
    guard.watch(sleeper.pid)
    ignored = Path(f"/proc/{helper.pid}/status")
    give_up_at = time.monotonic() + PATIENCE_S
    mask = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    while int(ignored.read_text().partition("SigIgn:")[2].split()[0], 16) & mask != mask:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    assert os.getsid(helper.pid) == helper.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(helper.pid, number)
    assert sleeper.poll() is None
    end(guard, sleeper)


def test_a_dead_helper_is_replaced_and_gets_the_living_processes(started: list[subprocess.Popen[bytes]]) -> None:
    guard = OrphanGuard()
    guard.start()
    sleeper = start(started, SLEEP)
    guard.watch(sleeper.pid)
    first = guard._helper
    assert first is not None
    first.kill()
    first.wait(PATIENCE_S)
    guard.watch(sleeper.pid)  # into a broken pipe: no error
    guard.start()
    assert guard._helper is not first
    end(guard, sleeper)


def test_the_helper_does_not_carry_our_own_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outer guard would otherwise end the helper with us, before it has ended our children."""
    monkeypatch.setenv(MARK_NAME, "outer-1")
    guard = OrphanGuard()
    guard.start()
    assert guard._helper is not None
    assert MARK_NAME.encode() not in Path(f"/proc/{guard._helper.pid}/environ").read_bytes()
    end(guard)


def test_exactly_the_marked_are_ended_deaf_or_not(started: list[subprocess.Popen[bytes]]) -> None:
    guard = OrphanGuard()
    mark, other = guard.mint_mark(), guard.mint_mark()
    longer = mark + "0"
    obedient = start(started, SLEEP, mark=mark)
    deaf = start(started, DEAF, mark=mark)
    others = [start(started, SLEEP, mark=other), start(started, SLEEP, mark=longer), start(started, SLEEP)]
    end_marked(mark, 0.2)
    assert obedient.wait(PATIENCE_S) == -signal.SIGTERM
    assert deaf.wait(PATIENCE_S) == -signal.SIGKILL
    assert all(process.poll() is None for process in others)


def test_nothing_to_end_takes_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("slept"))
    end_marked("no-such-mark", 1000.0)


def test_a_system_that_shows_no_processes_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert orphan_guard_module._find(b"x") == ([], False)


def test_what_is_only_just_being_started_is_ended(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process shows no environment at the moment in which it begins to run its program."""
    sleeper = start(started, SLEEP, mark="just-now")
    reads = orphan_guard_module._read
    hidden = [b""] * 3

    def read(name: str, what: str) -> bytes:
        if name == str(sleeper.pid) and what == "environ" and hidden:
            return hidden.pop()
        return b"" if name == str(sleeper.pid) and what == "cmdline" and hidden else reads(name, what)

    monkeypatch.setattr(orphan_guard_module, "_read", read)
    end_marked("just-now", PATIENCE_S)
    assert sleeper.wait(PATIENCE_S) == -signal.SIGTERM
    assert not hidden


NEEDLE = b"MARK=a\0"


@pytest.mark.parametrize(
    "environments, arguments, state, flags, found, is_unsure",
    [
        ([b"A=1\0MARK=a\0"], b"x\0", b"S", 0, [7], False),
        ([b"MARK=ab\0"], b"x\0", b"S", 0, [], False),
        ([b"", b"MARK=a\0"], b"x\0", b"S", 0, [7], False),  # it began to run between two scans
        ([b""], b"x\0", b"S", 0, [], False),
        ([b""], b"", b"R", 0, [], True),
        ([b""], b"", b"D", 64, [], True),
        ([b""], b"", b"Z", 0, [], False),
        ([b""], b"", b"I", 0x04208060, [], False),
    ],
    ids=["marked", "another's", "now marked", "without any", "starting", "also", "zombie", "of the kernel"],
)
def test_who_may_yet_turn_out_to_be_marked(
    environments: list[bytes],
    arguments: bytes,
    state: bytes,
    flags: int,
    found: list[int],
    is_unsure: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(name: str, what: str) -> bytes:
        assert name == "7"
        if what == "environ":
            return environments.pop(0) if len(environments) > 1 else environments[0]
        return {"cmdline": arguments, "stat": b"7 (a ) b) %b 1 7 7 0 -1 %d 0 0" % (state, flags)}[what]

    monkeypatch.setattr(orphan_guard_module, "_read", read)
    monkeypatch.setattr(os, "listdir", lambda path: ["7", "self"])
    assert orphan_guard_module._find(NEEDLE) == (found, is_unsure)


def test_what_stays_without_a_name_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(orphan_guard_module, "_POLL_S", 0)
    monkeypatch.setattr(orphan_guard_module, "_find", lambda needle: (looks.append(needle) or [], True))
    end_marked("a", PATIENCE_S)
    assert len(looks) == orphan_guard_module._LOOKS_MAX
