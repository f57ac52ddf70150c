"""Values of command-line options that hold a name and a text: headers and environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from ...core.base.nearest import nearest
from ..base.errors import ConfigError
from .documents import expand

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SURELY_NAME: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


def headers_of(texts: Sequence[str]) -> dict[str, str]:
    """Returns the headers in the values of `--header`."""
    return dict(_pair(text, ":", "--header", "NAME: VALUE") for text in texts)


def environment_of(texts: Sequence[str]) -> dict[str, str]:
    """Returns the variables in the values of `--env`: NAME=VALUE, or the name of a variable that is set here."""
    return dict(_variable(text) for text in texts)


def expanded(text: str, what: str) -> str:
    """Replaces `${NAME}` as in a configuration file: clients that run this command often expand nothing. A `$$` outside
    of that stays, as a shell passes it on. Errors never repeat `text`, which may be a secret."""
    if "${" not in text:
        return text
    try:
        return expand(text, os.environ)
    except ValueError as error:
        raise ConfigError(f"got {what} with a ${{…}}, expected {error}") from None


def _variable(text: str) -> tuple[str, str]:
    """Errors repeat a text without `=` only where it can be no secret that lacks its name."""
    if "=" in text:
        return _pair(text, "=", "--env", "NAME=VALUE")
    name = text.strip()
    value = os.environ.get(name)
    if value is not None:
        return name, value
    near = nearest(name, os.environ) if _NAME.fullmatch(name) else None
    shown = f" {name}" if near or _SURELY_NAME.fullmatch(name) else ""
    found = f"; the nearest that is set is {near}" if near else ""
    raise ConfigError(
        f"got --env{shown} without a =, and no variable of that name is set here, expected NAME=VALUE, or the NAME of "
        f"one that is{found}"
    )


def _pair(text: str, separator: str, option: str, form: str) -> tuple[str, str]:
    """Splits `text` into name and value. Errors never repeat `text`, which may be a secret."""
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        lacks = "a name" if found else f"a {separator}"
        raise ConfigError(f"got {option} without {lacks}, expected {form}")
    return name.strip(), expanded(value.strip(), f"{option} {name.strip()}")
