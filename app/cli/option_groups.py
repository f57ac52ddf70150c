"""Groups of options, help texts and types of values that the parsers of several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, TypeVar

from .listen_options import DEFAULT_LISTEN

TOKEN_VARIABLE: Final = "ISTHMUS_TOKEN"
ENV_FORM: Final = "NAME[=VALUE]"
ENV_HELP: Final = (
    "environment variable of the command; without VALUE, with the one that it has here; ${NAME} in VALUE is replaced "
    "as in a configuration"
)
HEADER_HELP: Final = "header sent to the URL; ${NAME} is replaced as in a configuration"
AS_JSON: Final = "print what it tells as JSON, instead of a table"
CONFIG_NAMES: Final = (
    *("isthmus.yaml", "isthmus.yml", "isthmus.toml", "isthmus.json"),
    *(".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"),
)
"""Files that are looked for in the current folder: ours, then those of MCP clients."""
CONFIG_HELP: Final = (
    "YAML, TOML or JSON, in our form or in that of an MCP client; default: the first of "
    f"{', '.join(CONFIG_NAMES)} in this folder"
)
T = TypeVar("T")
Add = Callable[..., argparse.ArgumentParser]
"""Adds the parser of a command to `isthmus`, as `add_parser` does."""


def add_running(to: argparse.ArgumentParser, default: str = f"http://{DEFAULT_LISTEN}") -> None:
    to.add_argument(
        "--url",
        default=default,
        metavar="URL",
        help=f"where isthmus listens, http(s)://HOST:PORT or unix:PATH; default http://{DEFAULT_LISTEN}",
    )
    to.add_argument(
        "--token",
        default=argparse.SUPPRESS if default == argparse.SUPPRESS else None,
        metavar="TOKEN",
        help=f"its core.management.token; default: what {TOKEN_VARIABLE} is set to",
    )


def typed_option(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Wraps `parse` for argparse, which then reports its `ValueError` with the name of the option."""

    def typed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


def as_help(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:].removesuffix(".")
