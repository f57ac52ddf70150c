"""Tests of the completions in real shells: what bash, zsh and fish offer for a line that is begun."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from isthmus.app.cli.completion import FOLDER

pytestmark = pytest.mark.real

TIMEOUT_S: Final = 60
LINES: Final = {
    "isthmus aut": {"auth"},
    "isthmus auth ": {"ls", "export", "import", "revoke"},
    "isthmus --log-level debug completion ": {"bash", "zsh", "fish"},
    "isthmus wrap --li": {"--listen", "--links"},
    "isthmus serve --log-format ": {"text", "json"},
    "isthmus check conf": {"configuration.yaml"},
}
"""A line up to the cursor → all that may stand there."""

BASH: Final = """
source "$1"
for line in "${@:2}"; do
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
  _shtab_isthmus isthmus "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
  echo "${COMPREPLY[@]}"
done
"""
"""Calls the function as bash does. Its commands that change the way in which bash shows the words fail there."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "configuration.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout


def test_bash_completes_the_command(folder: Path) -> None:
    offered = run("bash", "--norc", "-c", BASH, "bash", FOLDER / "isthmus.bash", *LINES).splitlines()
    assert [set(line.split()) for line in offered] == list(LINES.values())


def test_fish_completes_the_command(folder: Path) -> None:
    for line, expected in LINES.items():
        offered = run("fish", "--no-config", "-c", f"source {FOLDER / 'isthmus.fish'}; complete -C '{line}'")
        assert {each.partition("\t")[0] for each in offered.splitlines()} == expected, line


def test_zsh_completes_the_command(folder: Path) -> None:
    """The line is typed on a terminal: zsh has no other way to complete."""
    (folder / "_isthmus").write_text((FOLDER / "isthmus.zsh").read_text(encoding="utf-8"))
    (folder / ".zshrc").write_text("fpath=(~ $fpath); autoload -Uz compinit && compinit -u; PS1='ready> '\n")
    for line, expected in LINES.items():
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("zsh", ["zsh", "-i"], {"HOME": str(folder), "PATH": os.environ["PATH"], "TERM": "dumb"})
        try:
            read_until(terminal, "ready> ")
            os.write(terminal, f"{line}\t".encode())
            read_until(terminal, *(rf"(?<!\S){re.escape(word)}(?!\S)" for word in expected))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)


def read_until(terminal: int, *patterns: str) -> None:
    """Reads what the terminal shows until each pattern is in it."""
    text, until = "", time.monotonic() + TIMEOUT_S
    while missing := [pattern for pattern in patterns if not re.search(pattern, text)]:
        assert select.select([terminal], [], [], max(0, until - time.monotonic()))[0], f"{missing} not in {text!r}"
        text += os.read(terminal, 65536).decode(errors="replace")
