"""Writes what follows the argument parser and the version: the completions of bash, zsh and fish, the manual page, and
the version in the examples of the pages.

`make docs` runs it, and `tests/test_release.py` compares what is checked in with what this makes.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import shtab
from argparse_manpage.manpage import Manpage
from isthmus.app.base.version import VERSION
from isthmus.app.cli.arguments import parser
from isthmus.app.cli.completion import FOLDER, SHELLS

MANUAL_PAGE: Final = Path(__file__).parent / "isthmus.1"
PAGES: Final = (Path(__file__).parents[1] / "README.md", *sorted(Path(__file__).parent.glob("*.md")))
_SHOWN: Final = re.compile(r"isthmus \d+\.\d+\.\d+")

COMPLETED: Final[dict[str, Any]] = {
    "FILE": shtab.FILE,
    "CONFIG": shtab.FILE,
    "[CONFIG] ID | URL": shtab.FILE,
    "PATH": shtab.FILE,
    "DIR": shtab.DIRECTORY,
}
"""Metavar → what a shell offers for the value."""

INSTALLING: Final = {
    "bash": """
# To install it:
#   mkdir -p ~/.local/share/bash-completion/completions
#   isthmus completion bash > ~/.local/share/bash-completion/completions/isthmus
# Where the package bash-completion is not installed, add this line to ~/.bashrc:
#   source ~/.local/share/bash-completion/completions/isthmus
""",
    "zsh": """
# To install it:
#   mkdir -p ~/.local/share/zsh/site-functions
#   isthmus completion zsh > ~/.local/share/zsh/site-functions/_isthmus
# Add these lines to ~/.zshrc, before any other line with compinit:
#   fpath=(~/.local/share/zsh/site-functions $fpath)
#   autoload -Uz compinit && compinit
""",
    "fish": """
# To install it:
#   mkdir -p ~/.config/fish/completions
#   isthmus completion fish > ~/.config/fish/completions/isthmus.fish
""",
}
_USAGE: Final = re.compile(r"^# Usage:\n(?:# .*\n)+", re.MULTILINE)
"""The words of shtab on installing, which know nothing of `isthmus completion`."""


def files() -> dict[Path, str]:
    """Returns the text of each file."""
    return {
        **{FOLDER / f"isthmus.{shell}": _completion(shell) for shell in SHELLS},
        MANUAL_PAGE: _manual_page(),
        **{page: _SHOWN.sub(f"isthmus {VERSION}", page.read_text(encoding="utf-8")) for page in PAGES},
    }


def _completion(shell: str) -> str:
    isthmus = parser()
    for each in _parsers(isthmus):
        each.description = None  # shtab then takes the help of a command, which is shorter
        for action in each._actions:
            if action.metavar in COMPLETED:
                action.complete = COMPLETED[action.metavar]  # type: ignore[attr-defined]
    text, count = _USAGE.subn(lambda _: INSTALLING[shell].lstrip(), shtab.complete(isthmus, shell))
    assert count == 1, "shtab says where to install it in another form"
    return text


def _manual_page() -> str:
    isthmus: Any = parser()
    isthmus.man_short_description = "proxy for the Model Context Protocol"
    with patch.dict(os.environ, COLUMNS="1000"):  # each Python breaks long lines elsewhere
        page = Manpage(isthmus)
    page.date, page.manual = "", "Isthmus"
    return re.sub(r" +$", "", f"{page}\n", flags=re.MULTILINE)


def _parsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _parsers(each)


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
