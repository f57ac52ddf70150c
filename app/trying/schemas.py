"""The JSON Schema of an object as a list of its members, for people and for values that are given as text.

Nothing is validated here: the server does that. A schema comes from a peer, so any shape of it is read, and what cannot
be read allows everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

Json = dict[str, Any]
"""A JSON object of any shape."""

STEPS_MAX: Final = 200
"""Schemas that are visited for one member, references included. At it: the rest is taken as absent."""
CHOICES_SHOWN: Final = 8
ONE_OF: Final = "one of "
TYPES: Final = ("null", "boolean", "integer", "number", "array", "object", "string")
"""The types of JSON Schema, in the order in which a text is read as one of them."""


class Argument(NamedTuple):
    """A member that a schema of an object names.

    Attributes:
        schemas: its alternatives: each has at most one type, and no reference. There is at least one.
    """

    name: str
    schemas: tuple[Json, ...]
    is_required: bool = False
    about: str = ""

    @property
    def default(self) -> object:
        """The default; None if there is none, or if it is null."""
        return next((one["default"] for one in self.schemas if one.get("default") is not None), None)

    @property
    def label(self) -> str:
        """The values that it takes, in a few words: `integer`, `list of string`, `one of a, b`."""
        return label(self.schemas)

    def has(self, *types: str) -> bool:
        """True if a value of one of these types is allowed; "" stands for a schema without a type."""
        return any(type_of(one) in types for one in self.schemas)


class Arguments(NamedTuple):
    """The members of an object.

    Attributes:
        is_open: others than `known` may be given.
    """

    known: dict[str, Argument]
    is_open: bool

    @property
    def required(self) -> list[str]:
        return [name for name, one in self.known.items() if one.is_required]


def arguments_of(schema: object, root: Json | None = None) -> Arguments:
    """Returns the members that a schema of an object names, the required ones first.

    An object is taken as closed if its schema names members and does not say that there are others: JSON Schema allows
    them, and servers that leave that open practically always mean the named ones.

    Args:
        root: the schema that references are resolved in; None: `schema` itself.
    """
    whole = root if root is not None else schema if isinstance(schema, dict) else {}
    parts = [one for one in alternatives(schema, whole) if type_of(one) in ("object", "")]
    known: dict[str, Argument] = {}
    is_open = not parts
    for part in parts:
        properties, required = part.get("properties"), part.get("required")
        needed = frozenset(one for one in required if isinstance(one, str)) if isinstance(required, list) else ()
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            found = tuple(alternatives(inner, whole)) or ({},)
            about = next((one["description"] for one in (inner, *found) if _describes(one)), "")
            known.setdefault(name, Argument(name, found, len(parts) == 1 and name in needed, about))
        more = part.get("additionalProperties", not isinstance(properties, dict))
        is_open = is_open or more not in (False, None) or "patternProperties" in part
    return Arguments(dict(sorted(known.items(), key=lambda item: not item[1].is_required)), is_open)


def _describes(schema: object) -> bool:
    return isinstance(schema, dict) and isinstance(schema.get("description"), str)


def alternatives(schema: object, root: Mapping[str, object]) -> list[Json]:
    """Returns what a schema allows as schemas with at most one type, without `$ref`, `anyOf`, `oneOf` and `allOf`. What
    stands beside these goes into each; a member of the inner schema has precedence."""
    found: list[Json] = []
    steps_left = STEPS_MAX

    def visit(one: object, depth: int) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left < 0 or depth > 20:
            return
        if not isinstance(one, dict):
            found.append({})
            return
        ref = one.get("$ref")
        if isinstance(ref, str):
            visit({**_resolved(ref, root), **_without(one, "$ref")}, depth + 1)
            return
        parts = one.get("allOf")
        if isinstance(parts, list):
            visit(_merged(_without(one, "allOf"), parts, root), depth + 1)
            return
        for keyword in ("anyOf", "oneOf"):
            inner = one.get(keyword)
            if isinstance(inner, list) and inner:
                for each in inner[:STEPS_MAX]:
                    visit({**_without(one, keyword), **each} if isinstance(each, dict) else {}, depth + 1)
                return
        types = one.get("type")
        if isinstance(types, list):
            for each in types:
                visit({**one, "type": each}, depth + 1)
            return
        items = one.get("items")
        if isinstance(items, dict) and isinstance(items.get("$ref"), str):
            one = {**one, "items": {**_resolved(items["$ref"], root), **_without(items, "$ref")}}
        found.append(one)

    visit(schema, 0)
    return found


def _merged(outer: Json, parts: list[object], root: Mapping[str, object]) -> Json:
    """Returns the schemas of an `allOf` as one: their properties together."""
    merged = dict(outer)
    for part in parts[:STEPS_MAX]:
        if not isinstance(part, dict):
            continue
        ref = part.get("$ref")
        found = {**_resolved(ref, root), **_without(part, "$ref")} if isinstance(ref, str) else part
        for key, value in found.items():
            before = merged.get(key)
            if key == "properties" and isinstance(before, dict) and isinstance(value, dict):
                value = {**before, **value}
            elif key == "required" and isinstance(before, list) and isinstance(value, list):
                value = [*before, *value]
            merged[key] = value
    return merged


def _without(schema: Json, key: str) -> Json:
    return {name: value for name, value in schema.items() if name != key}


def _resolved(ref: str, root: Mapping[str, object]) -> Json:
    """Returns the schema that a reference within `root` leads to; an empty one if it leads elsewhere."""
    found: object = root
    for step in ref.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) and ref.startswith("#") and found is not root else {}


def type_of(schema: Json) -> str:
    """Returns the type of an alternative, one of `TYPES`; "" if it allows any."""
    named = schema.get("type")
    if isinstance(named, str) and named in TYPES:
        return named
    if isinstance(schema.get("properties"), dict):
        return "object"
    return "array" if isinstance(schema.get("items"), dict) else ""


def choices_of(schema: Json) -> list[object] | None:
    """Returns the only values that an alternative allows; None if it does not list them."""
    listed = schema.get("enum")
    if isinstance(listed, list) and listed:
        return listed
    return [schema["const"]] if "const" in schema else None


def items_of(schema: Json) -> tuple[Json, ...]:
    """Returns the alternatives of the items of a list. References in it are not followed."""
    return tuple(alternatives(schema.get("items"), {})) or ({},)


def label(schemas: tuple[Json, ...]) -> str:
    """Returns in a few words which values the alternatives allow."""
    choices = [_with_title(choice, one) for one in schemas for choice in choices_of(one) or ()]
    labels = [f"{ONE_OF}{_shown(choices)}"] if choices else []
    labels += [_label(one) for one in schemas if choices_of(one) is None]
    return " or ".join(dict.fromkeys(labels))


def _label(schema: Json) -> str:
    kind = type_of(schema)
    if kind == "array":
        inner = label(tuple({} if type_of(one) == "array" else one for one in items_of(schema)))
        if inner.startswith(ONE_OF):
            return f"some of {inner.removeprefix(ONE_OF)}"
        return f"list of {inner}" if inner != "any value" else "list"
    properties = schema.get("properties")
    if kind == "object" and isinstance(properties, dict) and properties:
        return f"object with {_shown(list(properties))}"
    form = schema.get("format")
    if isinstance(form, str) and kind == "string":
        return f"string ({form[:20]})"
    return kind or "any value"


def _with_title(choice: object, schema: Json) -> str:
    """Returns a choice, with its title if it has one of its own."""
    title = schema.get("title")
    has_title = "const" in schema and isinstance(title, str)
    return f"{text_of(choice)} ({title})" if has_title else text_of(choice)


def _shown(choices: list[str]) -> str:
    shown = ", ".join(choices[:CHOICES_SHOWN])
    return f"{shown}, …" if len(choices) > CHOICES_SHOWN else shown


def text_of(value: object) -> str:
    """Returns a JSON value as a person writes it: a string as it is, else JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
