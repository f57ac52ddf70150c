"""Tests of crashes: a process that ends at any step of storing files loses no promised file, and leaves nothing to
the next."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1].joinpath("crashing.py")
TIMEOUT_S = 300

# The kinds of calls before which each run ends at some point, so that none is skipped silently.
FOLDERS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "fsync"}
STATEMENTS = {"sql begin", "sql delete", "sql commit"}
KINDS = {
    "a_session": {*FOLDERS, *STATEMENTS, "sql insert", "write", "pwrite", "os.truncate"},
    "a_restart": {*FOLDERS, *STATEMENTS},
}


@pytest.mark.parametrize("scenario", KINDS)
def test_a_crash_at_any_point_loses_and_leaves_nothing(scenario: str) -> None:
    command = [sys.executable, str(PROGRAM), scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = re.fullmatch(rf"{scenario}: 0 wrong of [0-9]+ points \((.*)\)\n", done.stdout)
    assert summary is not None, done.stdout
    kinds = {kind.rpartition(" ")[0] for kind in summary[1].split(", ")}
    assert kinds >= KINDS[scenario]
