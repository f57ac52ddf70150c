"""Reads JSON with comments and trailing commas, as editors write it.

A text that is JSON is read as JSON. Only where it is not, comments and trailing commas are blanked out, so lines and
columns of errors are those of the file.
"""

from __future__ import annotations

import json
import re
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


def read_json(text: str) -> object:
    """Parses `text` into plain mappings, lists and scalars.

    Raises:
        ValueError: `text` is no JSON even without comments and trailing commas, or a key appears twice in one object.
    """
    try:
        return _loads(text)
    except json.JSONDecodeError:
        return _loads(_blank(text))


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
            raise ValueError(f"key {key!r} appears twice in one object")
        mapping[key] = value
    return mapping


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
