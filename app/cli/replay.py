"""`isthmus replay`: plays a trace of isthmus, or a record of `isthmus conform`, again. The file tells which it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from ...core.trace import replay as replay_trace
from ..base import output
from ..base.errors import ConfigError, Failed
from .arguments import parser

FIRST_LINE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes read of the first line: a trace begins with the plan and all that was stored, a record with a conversation."""
DIFFERENCES_MAX: Final = 20
"""Differences shown: later ones mostly follow from the first."""
SHOWN_MAX_CHARS: Final = 300
"""Characters shown of each side of a difference."""


class _First(msgspec.Struct):
    """The members that tell files apart: a line of a trace has an `input`, a line of a record a `rule`."""

    input: str | None = None
    rule: str | None = None


_decoder: Final = msgspec.json.Decoder(_First)


def replay(options: argparse.Namespace, command: list[str]) -> bool:
    """True if the trace plays without a difference, or if no rule of the record is broken again.

    Raises:
        ConfigError: the file cannot be read or is neither, or a server is given for a trace, or none for a record.
        Failed: the trace breaks off in the middle, or the server cannot be tested.
    """
    has_target = bool(command) or options.target is not None
    if not _is_trace(options.file, has_target):
        from ..conform.command import conform  # late: a trace is played without it

        return conform(_as_conform(options), command)
    if has_target:
        raise ConfigError(f"got a server with {options.file}, a trace of isthmus, which is played without one")
    return _replay_trace(options.file)


def _is_trace(path: str, has_target: bool) -> bool:
    try:
        with Path(path).open("rb") as file:
            line = file.readline(FIRST_LINE_MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        # An empty file is a record without broken rules.
        first = _decoder.decode(line) if line or not has_target else _First(rule="")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        first = _First()
    if first.input is None and first.rule is None:
        raise ConfigError(f"{path} is neither a trace of isthmus nor a record of `isthmus conform`")
    return first.input is not None


def _as_conform(options: argparse.Namespace) -> argparse.Namespace:
    """Returns the options of `isthmus conform --replay`, with defaults for those that `replay` lacks."""
    defaults = parser().parse_args(["conform", "--replay", options.file])
    return argparse.Namespace(**{**vars(defaults), **vars(options)})


def _replay_trace(path: str) -> bool:
    count = 0
    try:
        with Path(path).open("rb") as lines:
            for difference in replay_trace(lines):
                count += 1
                if count <= DIFFERENCES_MAX:
                    output.say(_formatted(difference))
    except ValueError as error:
        raise Failed(f"{path}: {error}") from None
    if count > DIFFERENCES_MAX:
        output.say(f"… and {count - DIFFERENCES_MAX} more")
    output.say(f"{count} lines differ" if count != 1 else "1 line differs")
    return count == 0


def _formatted(difference: tuple[int, bytes, bytes]) -> str:
    number, *sides = difference
    recorded, replayed = (_cut(side.decode(errors="replace")) for side in sides)
    return f"line {number}: {recorded}\n  became {replayed}"


def _cut(text: str) -> str:
    return output.plain(text if len(text) <= SHOWN_MAX_CHARS else f"{text[:SHOWN_MAX_CHARS]}…")
