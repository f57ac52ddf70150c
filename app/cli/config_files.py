"""Finds the configuration file of a command, and asks for the inputs that it needs."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import sys
from typing import TYPE_CHECKING, Final

from ..base import logs
from ..base.errors import ConfigError
from ..base.output import plain
from .arguments import config_path

if TYPE_CHECKING:
    from ..config.dialects.surroundings import Input
    from ..config.load import Source

_SILENT: Final = frozenset({"check", "call", "read", "prompt"})
"""Commands that do not say which file they found: they name it anyway, or are used many times a day."""


def open_given(options: argparse.Namespace) -> Source:
    """Opens the file that `options` name, or the first one that there is. That one is said.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    from ..config.load import open_source  # late: `wrap` reads no file

    path = config_path(options.config)
    if options.config is None and options.command not in _SILENT:
        logs.say(f"no configuration given: {path} is taken")
    return open_source(path, _given_inputs(options.input), _ask if has_terminal() else None)


def open_again(path: str, options: argparse.Namespace) -> Source:
    """Opens a file that was opened before. Nobody is asked for inputs.

    Raises:
        ConfigError: it cannot be read.
    """
    from ..config.load import open_source  # late, as in `open_given`

    return open_source(path, _given_inputs(options.input))


def _given_inputs(pairs: list[str]) -> dict[str, str]:
    """Splits `ID=VALUE`. Errors never repeat it: it may be a secret."""
    given: dict[str, str] = {}
    for pair in pairs:
        id, equals, value = pair.partition("=")
        if not equals or not id:
            raise ConfigError("got --input without a = or without an id, expected --input ID=VALUE")
        given[id] = value
    return given


def has_terminal() -> bool:
    """True if a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _ask(asked: Input) -> str | None:
    """Asks on the terminal. Returns None if nothing is entered and there is no default."""
    offered = f" ({', '.join(asked.options)})" if asked.options else ""
    default = f" [{asked.default}]" if asked.default and not asked.is_secret else ""
    prompt = plain(f"{asked.description or asked.id}{offered}{default}: ")
    entered = ""
    with contextlib.suppress(EOFError):
        if asked.is_secret:
            entered = getpass.getpass(prompt, sys.stderr)
        else:
            sys.stderr.write(prompt)  # stdout may be a file
            sys.stderr.flush()
            entered = sys.stdin.readline().rstrip("\n")
    return entered or asked.default
