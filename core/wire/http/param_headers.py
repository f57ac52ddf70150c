"""Reads the `x-mcp-header` annotations of input schemas, which name the arguments to mirror in `Mcp-Param-*` headers.

An annotation is valid only where every implementation finds the same argument by it: on a property of a primitive type
that is reached from the root through `properties` alone. A tool with an invalid annotation is left out of the list of
tools, so that one bad definition does not affect the others.

Source: 2026-07-28 basic/transports/streamable-http, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ...base.errors import INVALID_PARAMS, PARSE_ERROR, RemoteProtocolError
from ...jsonrpc.envelope import member_of
from ...jsonrpc.splice import Edit, elements, members, splice

ANNOTATION: Final = "x-mcp-header"
TYPES: Final = frozenset({"string", "integer", "boolean"})
""" "Parameters with type `number` are not permitted." """

# The keywords of JSON Schema 2020-12 and its drafts, besides `properties`, whose values are schemas. The value of any
# other keyword is plain data, in which the annotation's key means nothing.
_SCHEMAS: Final = frozenset(
    {"items", "additionalItems", "prefixItems", "contains", "unevaluatedItems"}
    | {"additionalProperties", "propertyNames", "unevaluatedProperties", "contentSchema"}
    | {"not", "if", "then", "else", "allOf", "anyOf", "oneOf"}
)
_SCHEMA_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CLAUSE: Final = "2026-07-28 basic/transports/streamable-http, Schema Extension"


class Mirror(NamedTuple):
    """One mirrored argument.

    Attributes:
        name: the part of the header name after `Mcp-Param-`, as the schema spells it.
        path: the members that lead from `arguments` to the value.
        type: "string", "integer" or "boolean".
    """

    name: str
    path: tuple[str, ...]
    type: str


class _Object(list[tuple[str, Any]]):
    """A JSON object as pairs, with duplicate members kept."""


class _Place(NamedTuple):
    """A schema within a schema.

    `path` is None if the schema is not reached through `properties` alone; `is_doubled` if a member on the path occurs
    twice.
    """

    schema: Any
    path: tuple[str, ...] | None
    is_doubled: bool


def mirrors_of(input_schema: bytes) -> tuple[Mirror, ...]:
    """Returns the mirrored arguments of an input schema, in document order.

    Raises:
        RemoteProtocolError: an annotation breaks a rule; the message says where and which. Or the schema is not JSON.
    """
    return _mirrors(_parse(input_schema)) if may_be_annotated(input_schema) else ()


def read_tools(result: bytes) -> tuple[bytes, dict[str, tuple[Mirror, ...]], list[str]]:
    """Reads the annotations in a `tools/list` result.

    Returns:
        The result without the tools whose annotations are invalid (the same bytes if there are none); the mirrors of
        each tool that has any, by tool name; and for each tool that was left out, its name and the reason.

    Raises:
        RemoteProtocolError: a member of the result occurs twice.
    """
    tools = member_of(result, "tools")
    if tools is None or not tools.startswith(b"[") or not may_be_annotated(tools):
        return result, {}, []
    kept: list[bytes] = []
    mirrored: dict[str, tuple[Mirror, ...]] = {}
    dropped: list[str] = []
    for span in elements(tools):
        tool = tools[span.start : span.stop]
        name = None
        try:
            read = _parse(tool) if may_be_annotated(tool) else None
            if isinstance(read, _Object):
                name = next((value for key, value in read if key == "name" and isinstance(value, str)), None)
                mirrors = _mirrors_of_tool(read)
                if mirrors and name is not None:
                    mirrored[name] = mirrors
        except RemoteProtocolError as error:
            dropped.append(f"{'a tool' if name is None else f'tool {name[:60]!r}'}: {error.message}")
        else:
            kept.append(tool)
    if dropped:
        whole = members(result)["tools"]
        result = splice(result, [Edit(whole.start, whole.stop, b"[" + b",".join(kept) + b"]")])
    return result, mirrored, dropped


def may_be_annotated(data: bytes) -> bool:
    """False if there certainly is no annotation: neither its key occurs nor an escape that could hide it. Spares the
    parsing of nearly every schema."""
    return b"x-mcp-header" in data or b"\\u" in data


def _parse(data: bytes) -> Any:
    """Parses JSON with duplicate members kept. Numbers become None: none is needed, and Python refuses to
    convert very long ones."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_Object, parse_int=_no_number, parse_float=_no_number)
    except (ValueError, RecursionError):
        text = "got a schema that cannot be read, expected JSON of a few hundred levels"
        raise RemoteProtocolError(text, rpc_code=PARSE_ERROR) from None


def _no_number(text: str) -> None:
    return None


def _mirrors_of_tool(tool: _Object) -> tuple[Mirror, ...]:
    schemas = [value for key, value in tool if key == "inputSchema"]
    found = [_mirrors(schema) for schema in schemas]
    if any(found) and (len(found) > 1 or [key for key, _ in tool].count("name") > 1):
        raise RemoteProtocolError("got a name or a schema with annotations twice, expected one", clause=_CLAUSE)
    return found[0] if found else ()


def _mirrors(root: Any) -> tuple[Mirror, ...]:
    mirrors: dict[str, Mirror] = {}
    for place in _places(root):
        for annotation in [value for key, value in place.schema if key == ANNOTATION]:
            mirror = _mirror(annotation, place)
            other = mirrors.setdefault(mirror.name.lower(), mirror)
            if other is not mirror:
                raise _refusal(place, f"the name {mirror.name!r}, which {'.'.join(other.path)!r} has, expected another")
    return tuple(mirrors.values())


def _places(root: Any) -> Iterator[_Place]:
    """Yields every schema in `root`, in document order. References are not followed: their targets are visited in
    place."""
    pending = [_Place(root, (), False)]
    while pending:
        place = pending.pop()
        if not isinstance(place.schema, _Object):
            continue
        yield place
        times = Counter(key for key, _ in place.schema)
        inner: list[_Place] = []
        for key, value in place.schema:
            if key == "properties" and isinstance(value, _Object):
                doubled = Counter(name for name, _ in value)
                for name, schema in value:
                    path = None if place.path is None else (*place.path, name)
                    inner.append(_Place(schema, path, place.is_doubled or times[key] > 1 or doubled[name] > 1))
            elif key in _SCHEMAS:
                listed = value if isinstance(value, list) and not isinstance(value, _Object) else [value]
                inner += [_Place(schema, None, False) for schema in listed]
            elif key in _SCHEMA_MAPS and isinstance(value, _Object):
                inner += [_Place(schema, None, False) for _, schema in value]
        pending += reversed(inner)


def _mirror(annotation: Any, place: _Place) -> Mirror:
    if not place.path:
        raise _refusal(place, "one off the properties that lead from the root, expected it on such a property")
    if place.is_doubled or max(Counter(key for key, _ in place.schema if key in (ANNOTATION, "type")).values()) > 1:
        raise _refusal(place, "a member twice on the way to it, expected each once")
    if not isinstance(annotation, str) or _TOKEN.fullmatch(annotation) is None:
        raise _refusal(place, "a name that is no HTTP token, expected letters, digits and hyphens")
    kind = dict(place.schema).get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise _refusal(place, "it on a value that is not primitive, expected type string, integer or boolean")
    return Mirror(annotation, place.path, kind)


def _refusal(place: _Place, what: str) -> RemoteProtocolError:
    where = f" at {'.'.join(place.path)!r}" if place.path else ""
    return RemoteProtocolError(f"{ANNOTATION}{where}: got {what}", rpc_code=INVALID_PARAMS, clause=_CLAUSE)
