"""Tests of logging: it blocks no caller, and reports each line that it drops."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isthmus.app.base import logs

Captured = pytest.CaptureFixture[str]
PATIENCE_S = 30.0
LINES = 100_000

FLOOD = f"""
import logging, sys
from isthmus.app.base import logs
logs.set_up("warning", "text")
logs.set_up("info", "text")
logger = logging.getLogger("isthmus.test")
for number in range({LINES}):
    logger.info("line %d: %s", number, "x" * 100)
print("through", flush=True)
sys.stdin.read()
logger.info("the last one")
"""


@pytest.fixture
def flood():  # type: ignore[no-untyped-def]
    """A process that logs many more lines than are queued, reports that on stdout, and ends when its stdin does."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FLOOD], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            process.kill()
            watchdog.cancel()


def test_whoever_logs_does_not_wait_for_a_reader(flood: subprocess.Popen[str]) -> None:
    """The number of dropped lines is logged once there is a reader."""
    assert flood.stdout is not None and flood.stderr is not None and flood.stdin is not None
    assert flood.stdout.readline() == "through\n"
    flood.stdin.close()
    lines = flood.stderr.read().splitlines()
    assert flood.wait(PATIENCE_S) == 0
    assert re.fullmatch(r"\d\d:\d\d:\d\d info    line 0: x+", lines[0])
    dropped = [int(found[1]) for line in lines if (found := re.search(r" warning (\d+) log lines dropped", line))]
    assert dropped
    assert len(lines) - len(dropped) + sum(dropped) == LINES + 1


def test_the_end_waits_only_so_long_for_a_reader(flood: subprocess.Popen[str]) -> None:
    assert flood.stdout is not None and flood.stdin is not None
    assert flood.stdout.readline() == "through\n"
    flood.stdin.close()
    assert flood.wait(PATIENCE_S) == 0


def test_the_last_lines_are_written_before_the_end() -> None:
    script = "import logging\nfrom isthmus.app.base import logs\nlogs.set_up('info', 'text')\n"
    script += "for n in range(1000): logging.getLogger('isthmus').info('line %d \\udc80', n)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S, check=True)
    lines = ended.stderr.decode().splitlines()
    assert [line.split("info    ")[1] for line in lines] == [f"line {n} \\udc80" for n in range(1000)]


def test_each_line_is_formatted_when_it_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of a line may change before it is written."""
    reading, writing = os.pipe()
    root = logging.getLogger("isthmus")
    before = (root.handlers[:], root.level, root.propagate)
    with open(writing, "w") as stream, open(reading) as reader, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        logs.set_up("info", "text")
        state = ["before"]
        logging.getLogger("isthmus.test").info("it is %s", state)
        state[0] = "after"
        root.handlers[0].flush()
        assert reader.readline().endswith("it is ['before']\n")
        root.handlers[0].close()
        root.handlers[:], level, root.propagate = before
        root.setLevel(level)


@pytest.fixture
def captured(capsys: Captured) -> Iterator[Captured]:
    """Captures the log, and leaves the logger as it was: the stream is closed behind the test."""
    logger = logging.getLogger("isthmus")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield capsys
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


FORGED = "\x1b[2J\r12:00:00 error   forged\n12:00:00 error   forged\x00\x9b31m \u202e \u2028 \ud800"


def test_a_peer_can_neither_forge_a_line_nor_control_the_terminal(captured: Captured) -> None:
    logs.set_up("info", "text")
    logger = logging.getLogger("isthmus.test")
    logger.info("said %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("failed")
    said, failed, *trace = captured.readouterr().err.removesuffix("\n").split("\n")
    assert said.endswith(
        r"said \x1b[2J\r12:00:00 error   forged\n12:00:00 error   forged\x00\x9b31m \u202e \u2028 \ud800"
    )
    assert failed.endswith("failed") and len(trace) > 2
    assert all(line.startswith("    ") for line in trace)
    assert all(line.isprintable() for line in (said, failed, *trace))


@pytest.mark.parametrize("format", ["text", "json"])
@given(text=st.text(st.characters()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_message_is_one_printable_line(captured: Captured, format: str, text: str) -> None:
    logs.set_up("info", format)
    logging.getLogger("isthmus.test").info("%s", text)
    line = captured.readouterr().err.removesuffix("\n")
    assert line.isprintable()
    if format == "json":
        assert json.loads(line)["message"] == json.loads(json.dumps(text))


@pytest.mark.parametrize("format, shown", [("text", "starting \\x1b\n"), ("json", None)])
def test_a_line_for_people_is_of_the_format_of_the_log(captured: Captured, format: str, shown: str | None) -> None:
    logs.set_up("error", format)
    logs.say("starting \x1b")
    line = captured.readouterr().err
    assert line == shown if shown is not None else json.loads(line)["message"] == "starting \x1b"


STRAY = f"""
import asyncio
from isthmus.app.base import logs
logs.set_up("info", "FORMAT")
def fail():
    raise ValueError({FORGED!r})
async def work():
    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)
asyncio.run(work())
fail()
"""


@pytest.mark.parametrize("format", ["text", "json"])
def test_errors_that_nobody_catches_are_log_lines_too(format: str) -> None:
    """The first is raised in a callback of the event loop, which logs it; the second ends the process."""
    script = [sys.executable, "-c", STRAY.replace("FORMAT", format)]
    ended = subprocess.run(script, capture_output=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1
    lines = ended.stderr.decode().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    if format == "json":
        failures = [json.loads(line) for line in lines]
        assert [one["level"] for one in failures] == ["error", "critical"]
        assert all("ValueError" in one["exception"] for one in failures)
    else:
        heads = [line for line in lines if not line.startswith("    ")]
        assert [line.split()[1] for line in heads] == ["error", "critical"]


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize(("term", "in_place"), [("xterm", True), ("dumb", False)])
def test_on_a_terminal_a_line_is_overwritten_in_place(
    term: str, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of the log come above it, and nothing of it is left at the end."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", term)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        logs.set_up("info", "text")
        assert logs.can_overwrite() is in_place
        logs.show("starting a")
        logging.getLogger("isthmus").handlers[0].flush()
        logs.say("a line")
        logging.getLogger("isthmus").handlers[0].flush()
        logs.show("starting b")
        logs.end_shown()
        logging.getLogger("isthmus").handlers[0].flush()
        logs.set_up("info", "json")
        assert not logs.can_overwrite()
    written = ""
    with contextlib.suppress(OSError):  # all was read, and nobody can write
        while True:
            written += os.read(ours, 1000).decode()
    os.close(ours)
    written = written.replace("\r\n", "\n")
    if not in_place:
        assert written == "starting a\na line\nstarting b\n"
        return
    assert written.startswith("starting a\r\x1b[Ka line\nstarting a")
    assert written.endswith("\r\x1b[K")
    assert re.sub(r"[^\n]*\r\x1b\[K", "", written) == "a line\n"
