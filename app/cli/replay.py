"""`isthmus replay`: plays again what is recorded in a file. What the file holds says what that means."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from ...core.trace import replay as replay_trace
from ..base import output
from ..base.errors import Failed
from ..config.load import ConfigError
from .arguments import parser

FIRST_LINE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Of what is looked at: a trace begins with the plan and all that was stored, a record with a conversation."""
DIFFERENCES_MAX: Final = 20
"""That are shown: one is enough to begin with, and what comes after it follows from it."""
SHOWN_MAX_CHARS: Final = 300
"""Of either side of a difference."""


class _First(msgspec.Struct):
    """A line of a trace has an input, one of a record a rule."""

    input: str | None = None
    rule: str | None = None


_decoder: Final = msgspec.json.Decoder(_First)


def replay(options: argparse.Namespace, command: list[str]) -> bool:
    """Whether all is as it should be: no difference from a trace, or no rule of a record that is broken again.

    Raises:
        ConfigError: the file cannot be read or is neither, or a server is named for a trace, or none for a record.
        Failed: the trace breaks off in the middle, or the server cannot be tested.
    """
    has_target = bool(command) or options.target is not None
    if not _is_trace(options.file, has_target):
        from ..conform.command import conform  # what it needs no trace needs

        return conform(_as_conform(options), command)
    if has_target:
        raise ConfigError(f"got a server with {options.file}, a trace of isthmus, which is played without one")
    return _play_trace(options.file)


def _is_trace(path: str, has_target: bool) -> bool:
    try:
        with Path(path).open("rb") as file:
            line = file.readline(FIRST_LINE_MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        first = _decoder.decode(line) if line or not has_target else _First(rule="")  # a record of no broken rule
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        first = _First()
    if first.input is None and first.rule is None:
        raise ConfigError(f"{path} is neither a trace of isthmus nor a record of `isthmus conform`")
    return first.input is not None


def _as_conform(options: argparse.Namespace) -> argparse.Namespace:
    """The same as `isthmus conform --replay`, with the defaults of what cannot be said here."""
    defaults = parser().parse_args(["conform", "--replay", options.file])
    return argparse.Namespace(**{**vars(defaults), **vars(options)})


def _play_trace(path: str) -> bool:
    count = 0
    try:
        with Path(path).open("rb") as lines:
            for difference in replay_trace(lines):
                count += 1
                if count <= DIFFERENCES_MAX:
                    output.say(_told(difference))
    except ValueError as error:
        raise Failed(f"{path}: {error}") from None
    if count > DIFFERENCES_MAX:
        output.say(f"… and {count - DIFFERENCES_MAX} more")
    output.say(f"{count} lines differ" if count != 1 else "1 line differs")
    return count == 0


def _told(difference: tuple[int, bytes, bytes]) -> str:
    number, *sides = difference
    recorded, replayed = (_cut(side.decode(errors="replace")) for side in sides)
    return f"line {number}: {recorded}\n  became {replayed}"


def _cut(text: str) -> str:
    return output.plain(text if len(text) <= SHOWN_MAX_CHARS else f"{text[:SHOWN_MAX_CHARS]}…")
