"""Arguments of a call as words of a command: `city=Berlin`, `days:=3`, `file=@report.pdf`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...core.base.nearest import hint
from .schemas import Argument, Arguments, Json, arguments_of
from .values import Misfit, decoded, value_of

_WORD: Final = re.compile(r"([^=]*?)(:?=)(.*)", re.DOTALL)


class Word(NamedTuple):
    """One argument as it was written.

    Attributes:
        is_json: it was written with `:=`.
        file: the path after `@`; "" if there is none.
    """

    name: str
    text: str
    is_json: bool = False
    file: str = ""


class Problems(Exception):
    """Arguments that a tool does not take. `lines` has a line for each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


def read_words(texts: Sequence[str], arguments: Arguments) -> list[Word]:
    """Splits the words of a command.

    Raises:
        Problems: a word has no `=`, or no name before it.
    """
    words, problems = [], []
    for text in texts:
        matched = _WORD.fullmatch(text)
        if matched is None or not matched[1]:
            first = next(iter(arguments.known), "")
            such = f", such as {first}={text}" if matched is None and first and not re.search(r"\s", text) else ""
            problems.append(f"got {text[:60]!r}, expected ARGUMENT=VALUE{such}")
            continue
        name, sign, value = matched.groups()
        file = value[1:] if value.startswith("@") else ""
        words.append(Word(name, value, sign == ":=", file))
    if problems:
        raise Problems(problems)
    return words


def build(words: Sequence[Word], schema: object, content: Callable[[Word], str] | None, given: Json | None) -> Json:
    """Returns the arguments of a call as a JSON object.

    Args:
        schema: the tool's input schema.
        content: returns the text that stands for a file; None: files are not read, and their arguments are null.
        given: arguments that are known already, which are taken as they are: then none is missed.

    Raises:
        Problems: an argument is unknown, of another type, given twice, or missing.
    """
    arguments = arguments_of(schema)
    built: Json = {**(given or {})}
    problems: list[str] = []
    listed: set[tuple[str, ...]] = set()
    for word in words:
        found = _place(word.name, arguments)
        if found is None:
            known = list(arguments.known)
            takes = "" if known else ": it takes none"
            problems.append(f"unknown argument {word.name}{takes}{hint(word.name, known)}")
            continue
        path, argument = found
        try:
            value = _value(word, argument, content)
        except Misfit as misfit:
            problems.append(f"{word.name}: {misfit}")
            value = None
        if not _put(built, path, value, is_more=path in listed):
            problems.append(f"{word.name} is given twice")
        if argument.has("array") and isinstance(value, list):
            listed.add(path)
    if given is None:
        problems += [f"{name} is missing" for name in arguments.required if name not in built]
    if problems:
        raise Problems(problems)
    return built


def _place(name: str, arguments: Arguments) -> tuple[tuple[str, ...], Argument] | None:
    """Returns the path of an argument, of several steps for a member of an object, and what is known of it; None if
    there is no such argument."""
    if name in arguments.known:
        return (name,), arguments.known[name]
    head, dot, rest = name.partition(".")
    if dot and rest and head in arguments.known and arguments.known[head].has("object"):
        for schema in arguments.known[head].schemas:
            inner = _place(rest, arguments_of(schema))
            if inner is not None:
                return (head, *inner[0]), inner[1]
    return ((name,), Argument(name, ({},))) if arguments.is_open else None


def _value(word: Word, argument: Argument, content: Callable[[Word], str] | None) -> object:
    if word.file and content is None:
        return [] if argument.has("array") else None
    text = content(word) if word.file and content is not None else word.text
    if not word.is_json:
        return value_of(text, argument.schemas)
    found = decoded(text)
    if not found:
        raise Misfit(f"got {text[:40]!r} after :=, expected JSON; a text stands after = alone")
    return found[0]


def _put(built: Json, path: tuple[str, ...], value: object, *, is_more: bool) -> bool:
    """Sets a member; adds to it if it is a list that an earlier word began. False if it is there already."""
    for step in path[:-1]:
        inner = built.setdefault(step, {})
        if not isinstance(inner, dict):
            return False
        built = inner
    before = built.get(path[-1])
    if is_more and isinstance(before, list) and isinstance(value, list):
        built[path[-1]] = [*before, *value]
        return True
    if path[-1] in built:
        return False
    built[path[-1]] = value
    return True
