"""Reads JSON with comments and trailing commas, as editors write it.

A text that is JSON is read as JSON. Only where it is not, comments and trailing commas are blanked out, so lines and
columns of errors are those of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

_PARTS: Final = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<comment>//[^\n\r]*|/\*(?:[^*]|\*(?!/))*\*/)
      | (?P<open>/\*)
      | (?P<space>[ \t\r\n]+)
      | (?P<mark>[][{},:])
      | (?P<other>[^][{},:"/\s]+|.)""",
    re.VERBOSE | re.DOTALL,
)


_WORDS: Final = {
    "Expecting value": "expected a value: text in double quotes, a number, true, false, null, [ or {",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Illegal trailing comma before end of object": "expected a key in double quotes",
    "Illegal trailing comma before end of array": "expected a value",
    "Expecting ',' delimiter": "expected a comma, or the closing bracket",
    "Expecting ':' delimiter": "expected a colon after the key",
    "Extra data": "expected the end of the file, for its brackets are all closed",
}
"""The right text where the parser of the standard library stopped, by its message."""


class MalformedJson(ValueError):
    """A text that is no JSON. The message says what was seen, what is right, and what mends it.

    Attributes:
        line: the line, counted from 1.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_json(text: str) -> object:
    """Parses `text` into plain mappings, lists and scalars.

    Raises:
        MalformedJson: `text` is no JSON even without comments and trailing commas.
        ValueError: a key appears twice in one object, or a number is none of JSON.
    """
    try:
        return _loads(text)
    except json.JSONDecodeError:
        pass
    try:
        return _loads(_blank(text))
    except json.JSONDecodeError as error:
        raise MalformedJson(_explain(error, text), error.lineno) from error


def tokens(text: str) -> Iterator[re.Match[str]]:
    """Yields the marks, texts and words of a document that `read_json` takes, without space, comments and commas that
    end a list."""
    return (part for part in _PARTS.finditer(_blank(text)) if part.lastgroup != "space")


def _explain(error: json.JSONDecodeError, text: str) -> str:
    """Returns what is wrong where the parser stopped. No more than one character is shown: a text may be a secret."""
    found = text[error.pos : error.pos + 1]
    if error.msg.startswith("Invalid \\"):
        escape = "\\" + text[error.pos + 1 : error.pos + 2] if found == "\\" else "\\u"
        return f"got {escape}, which is no escape; write a backslash twice, as in C:\\\\Users, or / for it"
    if error.msg.startswith("Invalid control character"):
        return "got a line end or a tab within a text, expected its closing quote before; write \\n or \\t for them"
    if error.msg.startswith("Unterminated string"):
        return "got a text without its closing quote; write a double quote after it"
    seen = "the end of the file" if not found else "the end of the line" if found == "\n" else repr(found)
    return f"got {seen} (column {error.colno}), {_WORDS.get(error.msg, error.msg)}"


def _loads(text: str) -> object:
    return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)


def _blank(text: str) -> str:
    """Replaces comments, and commas that only a closing bracket follows, by spaces. Line ends stay."""
    made: list[str] = []
    comma = -1  # the place in `made` of a comma that follows a value, and that nothing but space has followed
    has_value = False
    for part in _PARTS.finditer(text):
        kind, word = part.lastgroup, part[0]
        if kind == "open":
            raise json.JSONDecodeError("the comment is not closed by */", text, part.start())
        if kind == "comment":
            word = re.sub(r"[^\r\n]", " ", word)
        elif kind == "mark" and word == "," and has_value:
            comma, has_value = len(made), False
        elif kind != "space":
            if comma >= 0 and word in ("}", "]"):
                made[comma] = " "
            comma = -1
            has_value = kind != "mark" or word in ("}", "]")
        made.append(word)
    return "".join(made)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"key {key!r} appears twice; remove one of them")
        mapping[key] = value
    return mapping


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
