"""Groups of options, help texts and types of values that the parsers of several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, TypeVar

from ..config.ui_settings import DEFAULT_UI_LISTEN
from .listen_options import DEFAULT_LISTEN

TOKEN_VARIABLE: Final = "ISTHMUS_TOKEN"
ENV_FORM: Final = "NAME[=VALUE]"
ENV_HELP: Final = (
    "environment variable of the command; without VALUE: the value from this shell; ${NAME} in VALUE is replaced as in "
    "a configuration"
)
HEADER_HELP: Final = "header sent to the URL; ${NAME} is replaced as in a configuration"
AS_JSON: Final = "print JSON instead of a table"
CONFIG_NAMES: Final = (
    *("isthmus.yaml", "isthmus.yml", "isthmus.toml", "isthmus.json"),
    *(".mcp.json", "mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"),
)
"""Files that are looked for in the current folder: ours, then those of MCP clients."""
CONFIG_HELP: Final = (
    "configuration file of Isthmus or of an MCP client, as YAML, TOML or JSON; default: the first of "
    f"{', '.join(CONFIG_NAMES)} in this folder"
)
RUNNING_HELP: Final = (
    f"address of the running isthmus, http(s)://HOST:PORT or unix:PATH; default http://{DEFAULT_LISTEN}"
)
PAGE_HELP: Final = (
    "address of the live page of the running isthmus (isthmus serve --ui), http(s)://HOST:PORT; default "
    f"http://{DEFAULT_UI_LISTEN}"
)
T = TypeVar("T")
Add = Callable[..., argparse.ArgumentParser]
"""Adds the parser of a command to `isthmus`, as `add_parser` does."""


def add_running(
    to: argparse.ArgumentParser, default: str = f"http://{DEFAULT_LISTEN}", url_help: str = RUNNING_HELP
) -> None:
    to.add_argument("--url", default=default, metavar="URL", help=url_help)
    to.add_argument(
        "--token",
        default=argparse.SUPPRESS if default == argparse.SUPPRESS else None,
        metavar="TOKEN",
        help=f"core.management.token, or the token of an admin; default: the value of {TOKEN_VARIABLE}, else the local "
        "token of an isthmus that this user runs on this machine",
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
