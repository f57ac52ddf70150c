"""Writes the page of the command line from the parser of its arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from typing import Final

from isthmus.app.cli import arguments

EVERYWHERE: Final = ("-h", "--log-level", "--log-format")
"""Options of every command. They stand above the first one."""
Table = Callable[[list[str], list[list[str]]], str]


def command_line(table: Table) -> str:
    """Returns a list of all commands, and a section for each."""
    parser = arguments.parser()
    told = _about(parser)
    listed = [
        [f"[`{name}`](#{command.prog.replace(' ', '-')})", _escaped(told[name])]
        for name, command in _commands(parser).items()
    ]
    heads = ["Command", "What it does"]
    everywhere = [_row(parser, action) for action in parser._actions if {*action.option_strings} & {*EVERYWHERE}]
    everywhere.append(["`--version`", "print the version and exit, without a command"])
    intro = [table(heads, listed), "Options of every command:\n", table(["Option", "What it does"], everywhere)]
    return "\n".join([*intro, *_sections(parser, table)])


def _sections(parser: argparse.ArgumentParser, table: Table) -> Iterator[str]:
    for command in _commands(parser).values():
        yield f"{'#' * (1 + len(command.prog.split()))} {command.prog}\n"
        yield f"```text\n{_usage(command)}\n```\n"
        if command.description:
            yield f"{_escaped(command.description)}\n"
        rows = [
            _row(command, action)
            for action in command._actions
            if not {*action.option_strings} & {*EVERYWHERE} and not isinstance(action, argparse._SubParsersAction)
        ]
        if rows:
            yield table(["Argument", "What it does"], rows)
        if command.epilog:
            yield f"{_escaped(command.epilog)}\n"
        yield from _sections(command, table)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _about(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The line of each command in the help of all."""
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return {one.dest: one.help or "" for one in commands._choices_actions}


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage of the parser itself, or a short one: how argparse writes a long one depends on its version."""
    if parser.usage:
        return re.sub(r"^ +", "", parser.usage, flags=re.MULTILINE)
    words = [_word(action) for action in parser._actions if not action.option_strings]
    return " ".join([parser.prog, "[options]", *words])


def _word(action: argparse.Action) -> str:
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …", "...": f"[{name} …]"}.get(str(action.nargs), name)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    name = ", ".join(action.option_strings)
    if not name:
        name = _word(action)
    elif action.nargs != 0:
        value = "|".join(map(str, action.choices)) if action.choices else action.metavar or action.dest.upper()
        name += f" [{value}]" if action.nargs == "?" else f" {value}"
    return [f"`{name}`", _escaped(parser._get_formatter()._expand_help(action) if action.help else "")]


def _escaped(text: str) -> str:
    """The text, so that Markdown shows it as it is. Words between backticks stay."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\\])", r"\\\1", part) for part in parts)
