"""The command line: reads arguments, sets up the log, and runs a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..base import logs, output
from ..base.errors import ConfigError, Failed, StartError
from ..runtime.signals import Stop
from . import config_files, serving
from .arguments import parser, why_unknown
from .checking import check
from .completion import print_completion
from .run import DONE, FAILED, USAGE, complain, no_command, run
from .trying_arguments import VERBS, take_words
from .watching_arguments import take_filter


def main(argv: Sequence[str] | None = None) -> NoReturn:
    output.set_up()
    try:
        sys.exit(_run_command(argv))
    finally:
        output.finish()  # also after `--help`, which leaves by SystemExit


def _run_command(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    command: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    before = argparse.Namespace(log_level=None, log_format="text")
    options, unknown = parser().parse_known_args(arguments, before)
    if unknown := take_filter(options, take_words(options, unknown)):
        options.parser.error(why_unknown(options, unknown, arguments))
    logs.set_up(options.log_level or "warning", options.log_format)
    try:
        return _COMMANDS[options.command](options, command)
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except (StartError, output.OutputClosed, Failed) as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return FAILED


def _convert(options: argparse.Namespace, command: list[str]) -> int:
    from .convert import convert  # late: only this command writes YAML

    no_command(command, "convert")
    convert(options)
    return DONE


def _demo(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands.demo import demonstrate  # late: its imports would slow every other command

    no_command(command, "demo")
    return run(demonstrate, if_stopped=FAILED)


def _conform(options: argparse.Namespace, command: list[str]) -> int:
    from ..conform.command import conform  # late: its imports would slow every other command

    return DONE if conform(options, command) else FAILED


def _replay(options: argparse.Namespace, command: list[str]) -> int:
    from .replay import replay  # late: its imports would slow every other command

    return DONE if replay(options, command) else FAILED


def _try(options: argparse.Namespace, command: list[str]) -> int:
    from .trying import try_server  # late: its imports would slow every other command

    return try_server(options, command)


def _vendor(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands.vendor import vendor, verify  # late: no other command needs them

    no_command(command, "vendor")
    if not options.verify:
        vendor(options.folder, without=options.without)
        return DONE
    if options.without is not None:
        raise ConfigError("got --without with --verify, expected it when a copy is made")
    return DONE if verify(options.folder) else FAILED


def _check_driver(options: argparse.Namespace, command: list[str]) -> int:
    from ..driver_checks.command import check_driver  # late: no other command needs it

    no_command(command, "check-driver")
    return DONE if check_driver(options) else FAILED


def _token(options: argparse.Namespace, command: list[str]) -> int:
    no_command(command, "token")
    if options.verb == "show":
        from .remote import show_token  # late, as in `_ask_running`

        show_token(options)
        return DONE
    from ..commands import tokens  # late: no other command needs it

    tokens.new(options)
    return DONE


def _pin(options: argparse.Namespace, command: list[str]) -> int:
    from ..commands.pins import pin  # late: no other command needs it

    no_command(command, "pin")
    settings = config_files.open_given(options).settings()

    async def work(stop: Stop) -> int:
        return DONE if await pin(settings, shows_diff=options.diff, approved=options.approve) else FAILED

    return run(work, if_stopped=FAILED)


def _schema(options: argparse.Namespace, command: list[str]) -> int:
    no_command(command, "schema")
    from ..config.load import schema  # late: `wrap` reads no file

    output.say_json(schema())
    return DONE


def _completion(options: argparse.Namespace, command: list[str]) -> int:
    no_command(command, "completion")
    print_completion(options.shell)
    return DONE


def _ask_running(options: argparse.Namespace, command: list[str]) -> int:
    from .remote import answer  # late: a proxy needs no HTTP client of the standard library

    no_command(command, options.command)
    return DONE if answer(options) else FAILED


def _tail(options: argparse.Namespace, command: list[str]) -> int:
    from .watching import follow  # late, as in `_ask_running`

    return follow(options, command)


def _top(options: argparse.Namespace, command: list[str]) -> int:
    from .watching import look  # late, as in `_ask_running`

    no_command(command, "top")
    return look(options)


def _connect_info(options: argparse.Namespace, command: list[str]) -> int:
    from .connect_info import connect_info  # late: a proxy needs no HTTP client of the standard library

    no_command(command, "connect-info")
    connect_info(options)
    return DONE


def _login(options: argparse.Namespace, command: list[str]) -> int:
    from . import login  # late: no other command needs it

    no_command(command, "login")
    return run(login.log_in(options), if_stopped=FAILED)


def _logout(options: argparse.Namespace, command: list[str]) -> int:
    from . import login  # late: no other command needs it

    no_command(command, "logout")
    return run(login.log_out(options), if_stopped=FAILED)


def _auth(options: argparse.Namespace, command: list[str]) -> int:
    from . import login  # late: no other command needs it

    no_command(command, "auth")
    if options.verb == "revoke":
        return _ask_running(options, command)
    return run(login.look_after_logins(options), if_stopped=FAILED)


_COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "serve": serving.serve,
    "wrap": serving.serve_wrapped,
    "check": check,
    "convert": _convert,
    "ps": _ask_running,
    "start": _ask_running,
    "stop": _ask_running,
    "restart": _ask_running,
    "tail": _tail,
    "top": _top,
    "connect-info": _connect_info,
    "tasks": _ask_running,
    "files": _ask_running,
    "conform": _conform,
    "replay": _replay,
    "token": _token,
    "pin": _pin,
    "vendor": _vendor,
    "check-driver": _check_driver,
    "demo": _demo,
    "schema": _schema,
    "completion": _completion,
    "login": _login,
    "logout": _logout,
    "auth": _auth,
    **dict.fromkeys(VERBS, _try),
}


if __name__ == "__main__":
    main()
