"""Reads a file of environment variables, one NAME=VALUE a line."""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*
        (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>.*?))(?:\s+\#.*|\s*)""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(text: str) -> dict[str, str]:
    """Returns the variables. Lines that are empty or begin with # say nothing; a value may stand in quotes.

    Raises:
        ValueError: a line is none of these. The message has its number, and not its text.
    """
    variables: dict[str, str] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"line {number} is not NAME=VALUE")
        if found["double"] is not None:
            value = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), found["double"])
        else:
            value = found["single"] if found["single"] is not None else found["bare"]
        variables[found["name"]] = value
    return variables
