"""Rules for the strings of a JSON value that may change without its validity under a JSON Schema changing.

Validity is a function of what each assertion of the schema says of its part of the value. Changing a string changes no
type, key or length of anything else. So if every assertion that could apply to the string, also below `allOf`, `oneOf`,
`not` or `if`, says the same of the new string as of the old, the whole has the validity it had; the schema need not be
evaluated. An assertion that cannot be judged here counts as changed: a reference out of the schema, an unknown format,
a pattern that could be slow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard
from urllib.parse import unquote

from ...base.lazy_regex import Pattern

Path = tuple[str | int, ...]
"""Keys and indices, from the root."""

STEPS_MAX: Final = 100_000
"""Subschemas that are looked at for one value. Those of real tools have tens, and values hundreds of strings. At it: a
string counts as one that no schema describes."""

WORK_MAX: Final = 1 << 31
"""Steps of comparing the strings of one value with patterns, formats and enumerations: about a second. A string of 60
characters with a pattern of 30 takes under 400,000. Strings beyond it stay as they are."""

_COMPILE_WORK: Final = 2000  # a character of a pattern, measured
_FORMAT_WORK: Final = 200  # a character of a string with a format
_ENTRY_WORK: Final = 64  # an entry of an enumeration

_BELOW: Final = ("allOf", "anyOf", "oneOf")
_BESIDE: Final = ("not", "if", "then", "else")
_OF_ITEMS: Final = ("items", "additionalItems", "contains", "unevaluatedItems")
_BY_KEY: Final = ("patternProperties", "propertyNames", "dependentSchemas", "dependentRequired", "dependencies")
_OPAQUE: Final = ("$dynamicRef", "$recursiveRef", "extends", "disallow")

_URI: Final = r"[A-Za-z][A-Za-z0-9+.-]*:"
_REFERENCE: Final = r"(?:[\w.~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*(?:#(?:[\w.~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?"
_FORMATS: Final = {
    "uri": Pattern(_URI + _REFERENCE, re.ASCII),
    "url": Pattern(_URI + _REFERENCE, re.ASCII),
    "iri": Pattern(_URI + _REFERENCE),
    "uri-reference": Pattern(_REFERENCE, re.ASCII),
    "iri-reference": Pattern(_REFERENCE),
    "path": Pattern(r".*", re.DOTALL),  # written by libraries for a path: it constrains nothing
    "file-path": Pattern(r".*", re.DOTALL),
}

# Parts of patterns that mean the same in every dialect; groups and alternatives are left out.
_ATOM: Final = Pattern(
    r"(?:[^\\^$.|?*+(){}\[\]]|\\[dwsDWS.\\/^$|?*+(){}\[\]-]|\.|\[\^?(?:[^\[\]\\]|\\[dwsDWS.\\/^$\[\]-])+\])"
    r"(?P<many>[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})?"
)
_PATTERN_MAX_CHARS: Final = 256
_MATCHED_MAX_CHARS: Final = 1024


class _At(NamedTuple):
    """The subschemas that apply to one place of the value."""

    schemas: tuple[Mapping[str, object], ...]
    is_fixed: bool
    """True if nothing at or below the place may change."""
    is_compared: bool
    """True if nothing below the place may change: it is compared as a whole."""
    is_unique: bool
    """True if its items must differ."""


class StringRules:
    """Tells which strings of one value may change.

    Args:
        schema: the JSON of a schema; None: everything may change. One that cannot be read lets nothing change.
        value: the value that the schema is for, as `json.loads` gives it.
        renew: returns what a string would become.
    """

    def __init__(self, schema: bytes | None, value: object, renew: Callable[[str], str]) -> None:
        self._value = value
        self._renew = renew
        self._is_free = schema is None
        self._steps = 0
        self._work = WORK_MAX
        self._compared: dict[int, bool] = {}
        self._origins: dict[Path, dict[str, set[str]]] = {}
        self._root: object = None
        try:
            self._root = None if schema is None else json.loads(schema)
        except (ValueError, RecursionError):
            pass
        self._places: dict[Path, _At] = {(): self._at([self._root], False)}

    def allow(self, path: Path, old: str) -> bool:
        """True if the string `old` at `path` may become what `renew` makes of it."""
        if self._is_free:
            return True
        at = self._places[()]
        value = self._value
        for depth, step in enumerate(path):
            is_last = depth == len(path) - 1
            if at.is_compared:
                return False
            if at.is_unique and isinstance(value, list):
                if not is_last or not self._stays_unique(path[:depth], value, old):
                    return False
            at = self._below(path[: depth + 1], at, step)
            if at.is_fixed or self._steps > STEPS_MAX:
                return False
            value = _step(value, step)
        new = self._renew(old)
        return not at.is_fixed and all(self._judges_alike(schema, old, new) for schema in at.schemas)

    def allow_key(self, path: Path, new: str) -> bool:
        """True if the key at the end of `path` may become `new`, whatever is below it."""
        if self._is_free:
            return True
        at = self._places[()]
        for depth in range(len(path)):
            if at.is_fixed or at.is_compared or at.is_unique or self._steps > STEPS_MAX:
                return False
            if depth == len(path) - 1:
                return not any(_names_keys(schema, {str(path[-1]), new}) for schema in at.schemas)
            at = self._below(path[: depth + 1], at, path[depth])
        return False

    def _below(self, path: Path, at: _At, step: str | int) -> _At:
        known = self._places.get(path)
        if known is None:
            schemas = [below for schema in at.schemas for below in _applied(schema, step)]
            known = self._places[path] = self._at(schemas, at.is_fixed)
        return known

    def _at(self, schemas: Sequence[object], is_fixed: bool) -> _At:
        expanded, is_fixed = self._expanded(schemas, is_fixed)
        return _At(
            expanded,
            is_fixed,
            any(self._is_compared(schema) for schema in expanded),
            any(schema.get("uniqueItems", False) is not False for schema in expanded),
        )

    def _is_compared(self, schema: Mapping[str, object]) -> bool:
        known = self._compared.get(id(schema))  # a schema lives as long as the root
        if known is None:
            known = self._compared[id(schema)] = _holds_container(schema)
        return known

    def _expanded(self, schemas: Sequence[object], is_fixed: bool) -> tuple[tuple[Mapping[str, object], ...], bool]:
        """Returns the schemas with all that apply to the same place, and whether the place is fixed."""
        found: dict[int, Mapping[str, object]] = {}
        waiting = list(schemas)
        while waiting and self._steps <= STEPS_MAX:
            self._steps += 1
            schema = waiting.pop()
            if isinstance(schema, bool):
                continue
            if not isinstance(schema, dict):
                is_fixed = True
                continue
            if id(schema) in found:
                continue
            found[id(schema)] = schema
            if any(key in schema for key in _OPAQUE) or (schema is not self._root and _is_resource(schema)):
                is_fixed = True
            if "$ref" in schema:
                target = _resolved(self._root, schema["$ref"])
                waiting.append(target)
            for key in _BELOW:
                waiting.extend(_listed(schema.get(key, [])))
            waiting.extend(schema[key] for key in _BESIDE if key in schema)
            for key in ("dependentSchemas", "dependencies"):
                waiting.extend(below for below in _mapped(schema.get(key, {})).values() if not isinstance(below, list))
        # Subschemas that are left over for want of steps could say anything.
        return tuple(found.values()), is_fixed or bool(waiting)

    def _judges_alike(self, schema: Mapping[str, object], old: str, new: str) -> bool:
        """True if the assertions of this one schema say the same of both strings, and there was time to see that."""
        self._work -= _work_of(schema, old) + _work_of(schema, new)
        return self._work > 0 and _judges_alike(schema, old, new)

    def _stays_unique(self, path: Path, items: list[object], old: str) -> bool:
        """True if no other item is, or may become, what this one becomes."""
        origins = self._origins.get(path)
        if origins is None:
            origins = self._origins[path] = {}
            for item in items:
                if isinstance(item, str):
                    for form in (item, self._renew(item)):
                        origins.setdefault(form, set()).add(item)
        return origins.get(self._renew(old), set()) <= {old}


def _names_keys(schema: Mapping[str, object], keys: set[str]) -> bool:
    """True if the schema may treat one of the keys as none other."""
    if any(key in schema for key in _BY_KEY) or not keys.isdisjoint(_mapped(schema.get("properties", {}))):
        return True
    return not keys.isdisjoint(str(name) for name in _listed(schema.get("required", [])))


def _step(value: object, step: str | int) -> object:
    if isinstance(value, dict):
        return value[step]
    assert isinstance(value, list)
    assert isinstance(step, int)
    return value[step]


def _applied(schema: Mapping[str, object], step: str | int) -> Iterator[object]:
    """Yields the subschemas that could apply to one member or item."""
    if isinstance(step, str):
        properties = _mapped(schema.get("properties", {}))
        if step in properties:
            yield properties[step]
        else:
            yield schema.get("additionalProperties", True)
        yield from _mapped(schema.get("patternProperties", {})).values()
        yield schema.get("unevaluatedProperties", True)
        return
    for key in _OF_ITEMS:
        below = schema.get(key, True)
        yield from below[step : step + 1] if isinstance(below, list) else [below]
    yield from _listed(schema.get("prefixItems", []))[step : step + 1]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [None]  # None is no schema, and is treated as such


def _mapped(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _is_resource(schema: Mapping[str, object]) -> bool:
    """True if references within the schema are resolved against it."""
    return isinstance(schema.get("$id"), str) or isinstance(schema.get("id"), str)


def _resolved(root: object, reference: object) -> object:
    """Returns what a reference within the schema points to; None, which is no schema, if that cannot be said."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = root
    for part in unquote(reference).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found and (found is root or not _is_resource(found)):
            found = found[key]
        elif isinstance(found, list) and re.fullmatch(r"[0-9]{1,6}", key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _holds_container(schema: Mapping[str, object]) -> bool:
    """True if the schema compares the whole value with an array or object, which may hold strings."""
    compared = [schema.get("const"), *_listed(schema.get("enum", []))]
    return any(isinstance(other, dict | list) for other in compared)


def _work_of(schema: Mapping[str, object], text: str) -> int:
    """Returns a bound for the steps of comparing `text` with one schema."""
    work = _ENTRY_WORK * len(_listed(schema.get("enum", [])))
    if "format" in schema:
        work += _FORMAT_WORK * len(text)
    if _may_match(schema.get("pattern"), text):
        # From each place of the text, a repetition may end at each later one, and the rest is tried from there.
        work += len(str(schema["pattern"])) * (_COMPILE_WORK + len(text) ** 2)
    return work


def _judges_alike(schema: Mapping[str, object], old: str, new: str) -> bool:
    """True if the assertions of this one schema say the same of both strings."""
    if "contentEncoding" in schema:
        return False
    if "const" in schema and (old == schema["const"]) != (new == schema["const"]):
        return False
    if "enum" in schema and (old in _listed(schema["enum"])) != (new in _listed(schema["enum"])):
        return False
    for key, sign in (("minLength", 1), ("maxLength", -1)):
        bound = schema.get(key, 0)
        if not isinstance(bound, int | float):
            return False
        if key in schema and (len(old) * sign >= bound * sign) != (len(new) * sign >= bound * sign):
            return False
    if "format" in schema:
        form = _FORMATS.get(str(schema["format"]))
        if form is None or bool(form.fullmatch(old)) != bool(form.fullmatch(new)):
            return False
    if "pattern" in schema:
        found = [_matches(schema["pattern"], text) for text in (old, new)]
        return None not in found and found[0] == found[1]
    return True


def _may_match(pattern: object, text: str) -> TypeGuard[str]:
    """True if both are short, and of characters that mean the same in every dialect."""
    return (
        isinstance(pattern, str)
        and len(pattern) <= _PATTERN_MAX_CHARS
        and len(text) <= _MATCHED_MAX_CHARS
        and pattern.isascii()
        and text.isascii()
        and not re.search(r"[\n\r]", text)
    )


def _matches(pattern: object, text: str) -> bool | None:
    """Returns whether a pattern is found in the text; None if that depends on the dialect or could take long."""
    if not _may_match(pattern, text):
        return None
    start, stop = int(pattern.startswith("^")), len(pattern)
    stop -= pattern.endswith("$") and not pattern.endswith("\\$")
    repeats = 0
    while start < stop:
        atom = _ATOM.match(pattern, start, stop)
        if atom is None:
            return None
        repeats += atom["many"] is not None
        start = atom.end()
    if repeats > (2 if pattern.startswith("^") else 1):  # each multiplies the work by the length
        return None
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error:
        return None
