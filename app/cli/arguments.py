"""The argument parser of all commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..base import logs
from ..base.errors import ConfigError
from ..config.value_checks import check_token
from .completion import add_completion
from .login_arguments import add_logins, add_pin, add_token
from .option_groups import CONFIG_NAMES, TOKEN_VARIABLE, add_running, as_help
from .running_arguments import add_connect_info, add_files, add_looking_after, add_tasks
from .serving_arguments import add_check_and_convert, add_serve, add_wrap
from .suggestions import SuggestingParser
from .testing_arguments import add_check_driver, add_conform, add_replay, add_vendor
from .trying_arguments import add_trying
from .version import ShowVersion
from .watching_arguments import add_watching
from .wrong_targets import how_to_wrap


def token_of(given: str | None) -> str | None:
    """Returns the management token to present: `given`, or that of the environment; None if neither is set.

    Raises:
        ConfigError: the token cannot stand in a header.
    """
    token = given or os.environ.get(TOKEN_VARIABLE) or None
    for problem in check_token(TOKEN_VARIABLE if given is None else "--token", token):
        raise ConfigError(f"{problem.key}: {problem.seen}, expected {problem.expected}")
    return token


def config_path(given: str | None) -> Path:
    """Returns the path of the configuration: `given`, or that of this folder.

    Raises:
        ConfigError: there is none.
    """
    if given is not None:
        return Path(given)
    for name in CONFIG_NAMES:
        if os.path.exists(name):
            return Path(name)
    raise ConfigError(f"no configuration given, and none of {', '.join(CONFIG_NAMES)} is in this folder")


def parser() -> argparse.ArgumentParser:
    """Builds the argument parser of all commands."""
    # These options are accepted before and after the command, hence without defaults: a default of the second place
    # would overwrite a value given in the first.
    shared = SuggestingParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--log-level", choices=logs.LEVELS, help="lowest level that is logged to stderr")
    shared.add_argument("--log-format", choices=("text", "json"), help="format of log lines; default text")
    isthmus = SuggestingParser(
        prog="isthmus",
        parents=[shared],
        description="A proxy for the Model Context Protocol: connects transports and protocol revisions, and "
        "transfers files.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage or configuration.",
    )
    isthmus.add_argument("--version", action=ShowVersion, help="show the version and the installed extras, and exit")
    commands = isthmus.add_subparsers(dest="command", required=True, metavar="COMMAND")
    trace = argparse.ArgumentParser(add_help=False)
    trace.add_argument(
        "--trace", metavar="FILE", help="write all messages and events to FILE as JSON Lines, including secrets"
    )

    quiet = argparse.ArgumentParser(add_help=False)
    quiet.add_argument(
        "--quiet-start",
        action="store_true",
        help="start or contact a server when the first client needs it; default: at the start, to list its tools",
    )

    open_access = argparse.ArgumentParser(add_help=False)
    open_access.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="accept unauthenticated callers, also from other machines",
    )

    inputs = argparse.ArgumentParser(add_help=False)
    inputs.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="ID=VALUE",
        help="value of an input in the file of a client; default: the environment variable of that name, "
        "or what is entered on the terminal",
    )
    add_serve(commands.add_parser, [shared, trace, quiet, open_access, inputs])
    add_wrap(commands.add_parser, [shared, trace, quiet, open_access])
    add_check_and_convert(commands.add_parser, [shared, inputs])
    add_trying(commands.add_parser, [shared, inputs])
    running = argparse.ArgumentParser(add_help=False)
    add_running(running)
    add_looking_after(commands.add_parser, shared, running)
    add_watching(commands.add_parser, shared)
    add_connect_info(commands.add_parser, shared, running)
    verbs = add_tasks(commands.add_parser, shared, running) + add_files(commands.add_parser, shared, running)

    add_logins(commands.add_parser, shared, running)
    verbs += add_token(commands.add_parser, shared)
    add_pin(commands.add_parser, [shared, inputs])
    add_conform(commands.add_parser, shared)
    add_replay(commands.add_parser, shared)
    add_vendor(commands.add_parser, shared)
    add_check_driver(commands.add_parser, shared)
    add_completion(commands.add_parser, shared)

    for name, about in (
        ("demo", "Show a file transfer step by step, with a demo server."),
        ("schema", "Print the JSON Schema of the configuration file."),
    ):
        commands.add_parser(name, parents=[shared], help=as_help(about), description=about)
    for each in (*commands.choices.values(), *verbs):
        each.set_defaults(parser=each)  # so that errors show the command's own usage
    return isthmus


def why_unknown(options: argparse.Namespace, unknown: list[str], arguments: list[str]) -> str:
    """Describes arguments that no parser took. They may hold secrets, so only names of options are repeated."""
    first, target = unknown[0], getattr(options, "target", None)
    is_option = first.startswith("-")
    if target is not None and "://" not in target:
        if not is_option or arguments.index(target) < arguments.index(first):
            return how_to_wrap(target, has_more=True)
    option = first.partition("=")[0]
    return f"unknown option {option}{options.parser.option_hint(option)}" if is_option else "too many arguments"
