"""Makes up arguments that fit a JSON Schema."""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

from .steps import Json

T = TypeVar("T")
TEXTS: Final = ("a", "", "ü ✓ \U0001f600", "line\nline", '"\\{}', "0")
DEPTH_MAX: Final = 4
"""Levels of nesting that are made up; deeper values are null."""


class Source(Protocol):
    """Picks one of several values, the first of which is the simplest."""

    def __call__(self, values: tuple[T, ...]) -> T: ...


def simplest(values: tuple[T, ...]) -> T:
    return values[0]


def arguments_of(schema: Json, pick: Source, depth: int = 0) -> Json:
    """Makes up a value for each required property of an object schema."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: _value_of(properties.get(name), pick, depth) for name in required if isinstance(name, str)}


def _value_of(schema: object, pick: Source, depth: int) -> Any:
    if not isinstance(schema, dict) or depth >= DEPTH_MAX:
        return None
    if "const" in schema:
        return schema["const"]
    for name in ("enum", "examples"):
        if isinstance(schema.get(name), list) and schema[name]:
            return pick(tuple(schema[name]))
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return _value_of(schema[name][0], pick, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "string":
        return pick(TEXTS)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "boolean":
        return pick((False, True))
    if kind == "array":
        return [_value_of(schema.get("items"), pick, depth + 1)] if schema.get("minItems") else []
    return arguments_of(schema, pick, depth + 1) if kind == "object" else None
