"""Tools, resources and prompts as people read them: tables, and one tool with its arguments."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..base.output import plain
from .schemas import Argument, Json, arguments_of, choices_of, text_of, type_of

NAME_MAX_COLUMNS: Final = 30
"""Columns of names in a table. A longer name has a line of its own."""
LINES_MAX: Final = 2
"""Lines of a first sentence in a table."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。])\s|\n\s*\n")
_SAMPLES: Final = {"integer": "1", "number": "1", "boolean": "true", "object": "{}", "array": "[]", "null": "null"}


class Target(NamedTuple):
    """The words of a command that name a server: before what is asked of it, and after all."""

    before: str = ""
    after: str = ""

    def command(self, verb: str, words: Sequence[str] = ()) -> str:
        """Returns the command that asks something of this server."""
        return " ".join(filter(None, ["isthmus", verb, self.before, *map(_quoted, words), self.after]))


def _quoted(word: str) -> str:
    """Quotes a word for a shell, where it needs that. What cannot be printed is escaped."""
    return plain(word) if re.fullmatch(r"[\w@%+=:,./{}…-]+", word) else shlex.quote(plain(word))


def first_sentence(text: object) -> str:
    """Returns the first sentence of a description on one line; "" if there is none."""
    if not isinstance(text, str):
        return ""
    return plain(" ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split()))


def table(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Formats names and what they are as lines of at most `width` columns, unless a name is longer."""
    column = min(max((len(name) for name, _ in rows), default=0), NAME_MAX_COLUMNS)
    lines = []
    for name, about in rows:
        is_long = len(name) > column
        indent = " " * (6 if is_long else column + 4)
        room = max(width - len(indent), 20)
        wrapped = textwrap.wrap(about, room, max_lines=LINES_MAX, placeholder=" …")
        first = "" if is_long or not wrapped else wrapped.pop(0)
        lines.append(f"  {name.ljust(column)}  {first}".rstrip())
        lines += [indent + line for line in wrapped]
    return lines


def tool_table(tools: Sequence[Json], width: int) -> list[str]:
    return table(
        [(plain(one["name"]), first_sentence(one.get("description") or one.get("title"))) for one in tools], width
    )


def tool_lines(tool: Json, target: Target, width: int, *, verb: str = "call", takes: Sequence[str] = ()) -> list[str]:
    """Returns all about a tool: its description, its arguments, and how to call it.

    Args:
        takes: the arguments that take files.
    """
    lines = [plain(tool["name"]), *_paragraphs(tool.get("description") or tool.get("title"), width)]
    schema = tool.get("inputSchema")
    arguments = argument_lines(schema, width)
    return [*lines, "", *(arguments or ["  no arguments"]), "", f"  try: {example(tool, target, verb, takes)}"]


def argument_lines(schema: object, width: int) -> list[str]:
    """Returns what is known of each argument: name, type, whether it is required, default, meaning."""
    lines = []
    for name, argument in arguments_of(schema).known.items():
        lines += textwrap.wrap(
            f"{plain(name)}  {_kind(argument)}", width, initial_indent="  ", subsequent_indent="      "
        )
        about = plain(" ".join(argument.about.split()))
        lines += textwrap.wrap(about, width, initial_indent="      ", subsequent_indent="      ")
    return lines


def _kind(argument: Argument) -> str:
    parts = [plain(argument.label)]
    if argument.is_required:
        parts.append("required")
    elif argument.default is not None:
        parts.append(f"default {plain(text_of(argument.default))}")
    return ", ".join(parts)


def _paragraphs(text: object, width: int) -> list[str]:
    """Wraps each line of a text. An indent stays."""
    lines: list[str] = []
    for line in text.strip().splitlines() if isinstance(text, str) else ():
        bare = line.lstrip()
        indent = "  " + " " * min(len(line) - len(bare), 20)
        lines += textwrap.wrap(plain(bare), width, initial_indent=indent, subsequent_indent=indent) or [""]
    return lines


def example(tool: Json, target: Target, verb: str = "call", takes: Sequence[str] = ()) -> str:
    """Returns the command that calls a tool with its required arguments, or with the first one if none is required."""
    arguments = arguments_of(tool.get("inputSchema"))
    shown = arguments.required or list(arguments.known)[:1]
    words = [f"{name}={'@FILE' if name in takes else sample(arguments.known[name])}" for name in shown]
    return target.command(verb, [tool["name"], *words])


def sample(argument: Argument) -> str:
    """Returns a text that the argument could have: its example, its default or its first choice, else one of its
    type."""
    for schema in argument.schemas:
        examples = schema.get("examples")
        known = [*(examples if isinstance(examples, list) else []), *(choices_of(schema) or ())]
        if known and known[0] is not None:
            return text_of(known[0])
    if argument.default is not None:
        return text_of(argument.default)
    kind = next((type_of(one) for one in argument.schemas if type_of(one) != "null"), "")
    return _SAMPLES.get(kind, "…" if kind == "" else "TEXT")
