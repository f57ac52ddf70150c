"""Runs the command in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from isthmus.app.cli import cli

Inside = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Inside]:
    """Runs the command in this process, in a folder of its own: exit code, stdout, stderr. Only for commands that
    start nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    logger = logging.getLogger("isthmus")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            cli.main(arguments)
        assert isinstance(exited.value.code, int)
        captured = capsys.readouterr()
        return exited.value.code, captured.out.rstrip(), captured.err.strip()

    yield call
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)
