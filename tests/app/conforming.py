"""Runs `isthmus conform` and `isthmus replay` in this process, with options that make them quick."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from faulty_http import Faulty
from isthmus.app.cli import cli

FAULTY = str(Path(__file__).parent / "faulty.py")
KNOWN = ("--revision", "2025-06-18", "--log-level", "error")
QUICK = ("--examples", "5", *KNOWN)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Runs a command in this process, which it names first: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("isthmus")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            cli.main([*arguments])
        captured = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return exited.value.code, captured.out, captured.err

    yield call
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


@pytest.fixture
def conform(command: Run) -> Run:
    return partial(command, "conform")


@pytest.fixture
def replay(command: Run) -> Run:
    return partial(command, "replay")


def on_stdio(fault: str = "") -> tuple[str, ...]:
    return ("--", sys.executable, "-S", FAULTY, *([fault] if fault else []))


@contextlib.contextmanager
def over_http(fault: str = "") -> Iterator[str]:
    with Faulty(fault) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()
