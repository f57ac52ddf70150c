"""Tools, resources and prompts as people read them: tables, and one tool with its arguments."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ..base.output import plain
from .schemas import Argument, Json, arguments_of, choices_of, items_of, text_of, type_of

NAME_MAX_COLUMNS: Final = 30
"""Columns of names in a table. A longer name has a line of its own."""
LINES_MAX: Final = 2
"""Lines of a first sentence in a table."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?。])\s|\n\s*\n")
_SAMPLES: Final[Mapping[str, object]] = {"integer": 1, "number": 1, "boolean": True, "null": None}
SAMPLE_DEPTH_MAX: Final = 3


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
    known = [*_known(argument.schemas), *([] if argument.default is None else [argument.default])]
    first = next((one for one in argument.schemas if type_of(one) != "null"), {})
    return text_of(known[0] if known else _made(first, SAMPLE_DEPTH_MAX))


def _known(schemas: Sequence[Json]) -> Iterator[object]:
    """Yields the values that schemas give as examples or as choices."""
    for schema in schemas:
        examples = schema.get("examples")
        yield from (one for one in examples if one is not None) if isinstance(examples, list) else ()
        yield from (one for one in choices_of(schema) or () if one is not None)


def _made(schema: Json, depth: int) -> object:
    """Returns a value of the type of a schema. A list has an item, and an object what it requires."""
    match type_of(schema):
        case "array":
            return [_sample((items_of(schema)[0],), depth)] if depth else []
        case "object":
            members = arguments_of(schema).known.values() if depth else ()
            return {one.name: _sample(one.schemas, depth) for one in members if one.is_required}
        case kind:
            return _SAMPLES.get(kind, "TEXT")


def _sample(schemas: Sequence[Json], depth: int) -> object:
    known = next(_known(schemas), None)
    return _made(schemas[0], depth - 1) if known is None else known
