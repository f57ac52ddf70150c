"""`isthmus completion`: prints the completion of a shell, made by `docs/release.py` from the argument parser."""

from __future__ import annotations

import argparse
import sys
from itertools import takewhile
from pathlib import Path
from typing import Final

from ..base import output
from .option_groups import Add, as_help

SHELLS: Final = ("bash", "zsh", "fish")
FOLDER: Final = Path(__file__).parent / "completions"


def add_completion(add: Add, shared: argparse.ArgumentParser) -> None:
    about = "Print the completion script of a shell, with instructions to install it."
    completion = add(
        "completion",
        parents=[shared],
        help=as_help(about),
        description=about,
        epilog="Example: isthmus completion fish > ~/.config/fish/completions/isthmus.fish",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")


def print_completion(shell: str) -> None:
    """Prints the completion. On a terminal, where its head is out of sight, how to install it follows on stderr."""
    text = (FOLDER / f"isthmus.{shell}").read_text(encoding="utf-8")
    output.say(text.rstrip("\n"))
    if sys.stdout.isatty():
        _, _, rest = text.partition("# To install")
        how = takewhile(lambda line: line.startswith("#"), f"# To install{rest}".splitlines())
        output.complain("\n".join(line.removeprefix("# ") for line in how))
