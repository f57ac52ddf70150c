"""`isthmus conform` in this process, and options by which it is quick."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from isthmus.app import cli

KNOWN = ("--revision", "2025-06-18", "--log-level", "error")
QUICK = ("--examples", "5", *KNOWN)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def conform(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Runs the command in this process: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("isthmus")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            cli.main(["conform", *arguments])
        said = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return exited.value.code, said.out, said.err

    yield call
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)
