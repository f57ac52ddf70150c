"""The parsers of the commands that try a server: `tools`, `call`, `read`, `prompt`."""

from __future__ import annotations

import argparse
from typing import Final

from .option_groups import ENV_HELP, HEADER_HELP, Add, as_help

VERBS: Final = {
    "tools": "[NAME]",
    "call": "TOOL [ARGUMENT=VALUE …]",
    "read": "[URI]",
    "prompt": "[NAME [ARGUMENT=VALUE …]]",
}
"""The commands, each with what follows the server."""


def add_trying(add: Add, parents: list[argparse.ArgumentParser]) -> None:
    server = argparse.ArgumentParser(add_help=False)
    server.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help=ENV_HELP)
    server.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help=HEADER_HELP)
    server.add_argument(
        "--files", action="store_true", help="transfer files to and from the server, as isthmus wrap --files"
    )
    server.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="maximum time, including the start of the server"
    )
    server.add_argument("--json", action="store_true", help="print the response of the server as JSON")
    saving = argparse.ArgumentParser(add_help=False)
    saving.add_argument(
        "--save",
        metavar="DIR",
        default="",
        help="save images, audio and files of the result in DIR; no file is replaced",
    )

    about = "List the tools of servers; with a NAME, describe one tool."
    _add(
        add,
        [*parents, server],
        "tools",
        about,
        "Examples: isthmus tools; isthmus tools time; isthmus tools -- npx -y @modelcontextprotocol/server-everything",
    )
    about = "Call a tool, and print its result."
    call = _add(
        add,
        [*parents, server, saving],
        "call",
        f"{about} VALUE is converted to the type in the tool's schema. ARGUMENT:=JSON is JSON. ARGUMENT=@FILE uploads "
        "the file, or sends its text if the server takes no files. Exit code 1: the tool failed.",
        "Example: isthmus call time get_current_time timezone=Europe/Berlin",
    )
    call.add_argument(
        "--arguments",
        metavar="JSON|FILE|-",
        help="all arguments as a JSON object, a file or stdin (-); not checked against the schema",
    )
    about = "Print a resource; without a URI, list resources."
    _add(add, [*parents, server, saving], "read", about, "Example: isthmus read notes note://today > today.md")
    about = "Print the messages of a prompt; without a NAME, list prompts."
    _add(add, [*parents, server, saving], "prompt", about, "Example: isthmus prompt git summary branch=main")


def _add(
    add: Add, parents: list[argparse.ArgumentParser], verb: str, about: str, epilog: str
) -> argparse.ArgumentParser:
    rest = VERBS[verb]
    parser = add(
        verb,
        parents=parents,
        help=as_help(about.partition(".")[0]),
        usage=f"isthmus {verb} [options] [CONFIG] {'[ID [NAME]]' if verb == 'tools' else f'ID {rest}'}\n"
        f"       isthmus {verb} [options] URL {rest}\n"
        f"       isthmus {verb} [options] {rest} -- COMMAND [ARG …]",
        description=about,
        epilog=epilog,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[CONFIG] ID | URL",
        help="a server or profile of a configuration, or the URL of a server, then the arguments in the usage; CONFIG "
        "ends in .yaml, .yml, .toml or .json; default: as isthmus serve",
    )
    return parser


def take_words(options: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Adds words that stand behind options, which argparse leaves over, to those before. Returns the others."""
    if options.command not in VERBS or any(word.startswith("-") for word in unknown):
        return unknown
    options.words += unknown
    return []
