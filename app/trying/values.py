"""Reads a text as the JSON value that a schema asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ...core.base.nearest import hint
from .schemas import TYPES, Json, choices_of, items_of, label, text_of, type_of

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SHOWN_MAX_CHARS: Final = 40


class Misfit(Exception):
    """A text that is no such value. The message says what was seen and what is right."""


def value_of(text: str, schemas: Sequence[Json]) -> object:
    """Returns the value that the text means: the first that one of the alternatives allows.

    Where they allow a string and something else, such as a number, a text that can be the latter is that. A text for
    a list is JSON if it begins with `[`, else the only item. A schema without a type takes the text as a string.

    Raises:
        Misfit: none allows what the text means.
    """
    choices = [choice for one in schemas for choice in choices_of(one) or ()]
    for choice in choices:
        if text_of(choice) == text:
            return choice
    free = [one for one in schemas if choices_of(one) is None]
    for kind in (*TYPES, ""):
        for schema in free:
            if type_of(schema) == kind:
                found = _read(kind, text, schema)
                if found:
                    return found[0]
    seen = repr(text if len(text) <= _SHOWN_MAX_CHARS else text[: _SHOWN_MAX_CHARS - 1] + "…")
    raise Misfit(f"got {seen}, expected {label(tuple(schemas))}{hint(text, map(text_of, choices))}")


def _read(kind: str, text: str, schema: Json) -> tuple[object, ...]:
    """Returns the value of this type in a tuple; an empty tuple if the text is none."""
    match kind:
        case "null":
            return (None,) if text == "null" else ()
        case "boolean":
            return (text.lower() == "true",) if text.lower() in ("true", "false") else ()
        case "integer":
            return (int(text),) if _INTEGER.fullmatch(text) else ()
        case "number":
            return _number(text)
        case "array":
            return _list(text, schema)
        case "object":
            return tuple(one for one in decoded(text) if isinstance(one, dict))
        case _:
            return (text,)


def _number(text: str) -> tuple[object, ...]:
    if _INTEGER.fullmatch(text):
        return (int(text),)
    if not _NUMBER.fullmatch(text):
        return ()
    number = float(text)
    return (number,) if math.isfinite(number) else ()


def _list(text: str, schema: Json) -> tuple[object, ...]:
    if text.startswith("["):
        return tuple(one for one in decoded(text) if isinstance(one, list))
    try:
        return ([value_of(text, [one for one in items_of(schema) if type_of(one) != "array"])],)
    except Misfit:
        return ()


def decoded(text: str) -> tuple[object, ...]:
    """Returns the JSON value of a text in a tuple; an empty tuple if it is no JSON."""
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()
