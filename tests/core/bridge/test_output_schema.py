"""Structured output of any type, wrapped for clients that accept objects only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.bridge.output_schema import (
    DEPTH_MAX,
    needs_wrap,
    wrap_schema,
    wrap_value,
)
from isthmus.core.jsonrpc.equality import is_same
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator

VALIDATORS = {
    None: Draft202012Validator,
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema#": Draft201909Validator,
    "http://json-schema.org/draft-07/schema#": Draft7Validator,
}


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def is_valid(schema: Any, value: Any) -> bool:
    return bool(VALIDATORS[schema.get("$schema")](schema).is_valid(value))


# --- Schemas that refer to themselves -------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "default", "const", "$ref", "enum", "$id"])  # names, not keywords, where names stand
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -3, 1.5, "", "x", {"$ref": "#"}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.just("result"), inner, max_size=3),
    max_leaves=6,
)
TARGETS = ["#", "#/$defs/a", "#/$defs/default", "#/properties/default", "#/definitions/a", "#named"]
OWN_BASE = {
    "$id": "https://example.com/own",
    "$defs": {"a": {"type": "string"}},
    "items": {"$ref": "#/$defs/a"},
}
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [{}, {"type": "string"}, {"type": ["object", "null"]}, {"type": "array"}, {"minimum": 1}, {"not": {}}, OWN_BASE]
    ),
    VALUES.map(lambda value: {"const": value}),
    st.lists(VALUES, min_size=1, max_size=2).map(lambda values: {"enum": values}),
    VALUES.map(lambda value: {"default": value, "examples": [value]}),
)
REFS: st.SearchStrategy[Any] = st.sampled_from(TARGETS).map(lambda target: {"$ref": target})


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """References stand only where a validator has to go one level down in the value, so that none goes in circles."""
    below = inner | REFS
    return st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"anyOf": parts}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"allOf": parts}),
        below.map(lambda part: {"items": part}),
        st.dictionaries(NAMES, below, max_size=3).map(lambda parts: {"properties": parts}),
        below.map(lambda part: {"additionalProperties": part}),
        below.map(lambda part: {"patternProperties": {"^a": part}}),
    )


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A schema whose root is of any kind, and in which each of `TARGETS` is there to be referred to."""
    whole = st.recursive(LEAVES, compound, max_leaves=5)
    root = {**draw(whole)}
    part = draw(LEAVES)
    root["$defs"] = {"a": part, "default": draw(LEAVES), "named": {"$anchor": "named", "type": "integer"}}
    root["definitions"] = {"a": part}
    root["properties"] = {"default": part, **root.get("properties", {})}
    dialect = draw(st.sampled_from([None, "https://json-schema.org/draft/2020-12/schema"]))
    return root if dialect is None else {"$schema": dialect, **root}


# --- Properties -----------------------------------------------------------------------------------------------------


@given(schema=schemas(), value=VALUES)
def test_a_value_fits_its_schema_exactly_when_it_did_before(schema: dict[str, Any], value: Any) -> None:
    """validate(S, v) iff validate(wrap(S), wrap(v))."""
    wrapped = json.loads(wrap_schema(dumped(schema)))
    assert wrapped["type"] == "object"
    assert is_valid(wrapped, json.loads(wrap_value(dumped(value)))) == is_valid(schema, value)


@given(value=VALUES)
def test_a_wrapped_value_is_a_member_of_an_object(value: Any) -> None:
    assert wrap_value(dumped(value)) == b'{"result":%b}' % dumped(value)


RECURSIVE_2019 = {
    "$schema": "https://json-schema.org/draft/2019-09/schema#",
    "type": ["array", "integer"],
    "items": {"$recursiveRef": "#"},
}
BOTH_2019 = {
    **RECURSIVE_2019,
    "$defs": {"short": {"maxItems": 1}},
    "items": {"$recursiveRef": "#", "$ref": "#/$defs/short", "allOf": [{"not": {"const": 7}}]},
}
NAMED_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "array",
    "definitions": {"n": {"$id": "#n", "items": {"$ref": "#/definitions/i"}}, "i": {"type": "integer"}},
    "items": {"$ref": "#/definitions/n"},
}
OF_OTHER_DIALECTS = [
    pytest.param(schema, value, id=f"{name}-{json.dumps(value)}")
    for name, schema in (("recursive", RECURSIVE_2019), ("both", BOTH_2019), ("named", NAMED_7))
    for value in ([[]], [["x"]], [[1]], [[1, 2]], [7], ["x"], 3, {})
]


@pytest.mark.parametrize(("schema", "value"), OF_OTHER_DIALECTS)
def test_older_dialects_keep_their_meaning(schema: dict[str, Any], value: Any) -> None:
    """`$recursiveRef` of 2019-09 and names by `$id` of draft 7 still mean what they did."""
    wrapped = json.loads(wrap_schema(dumped(schema)))
    assert wrapped["$schema"] == schema["$schema"]
    assert is_valid(wrapped, {"result": value}) == is_valid(schema, value)


def in_wrapper(inner: str, schema: str = "") -> bytes:
    return (f'{{{schema}"type":"object","properties":{{"result":{inner}}},"required":["result"]}}').encode()


WRAPS = {
    "array": ('{"type":"array"}', in_wrapper('{"type":"array"}')),
    "spaces and numbers stay": (
        '{ "type": "array", "maxItems":1.0 }',
        in_wrapper('{ "type": "array", "maxItems":1.0 }'),
    ),
    "dialect": ('{"$schema":"urn:x","anyOf":[]}', in_wrapper('{"$schema":"urn:x","anyOf":[]}', '"$schema":"urn:x",')),
    "dialect of no text": ('{"$schema":5}', in_wrapper('{"$schema":5}')),
    "root": ('{"items":{"$ref":"#"}}', in_wrapper('{"items":{"$ref":"#/properties/result"}}')),
    "dynamic": ('{"items":{"$dynamicRef":"#/a"}}', in_wrapper('{"items":{"$dynamicRef":"#/properties/result/a"}}')),
    "name": ('{"items":{"$ref":"#a"}}', in_wrapper('{"items":{"$ref":"#a"}}')),
    "elsewhere": ('{"items":{"$ref":"other.json#/a"}}', in_wrapper('{"items":{"$ref":"other.json#/a"}}')),
    "own base": ('{"$id":"urn:x","items":{"$ref":"#"}}', in_wrapper('{"$id":"urn:x","items":{"$ref":"#"}}')),
    "odd base": ('{"$id":null,"items":{"$ref":"#"}}', in_wrapper('{"$id":null,"items":{"$ref":"#"}}')),
    "name as id": ('{"$id":"#x","not":{"$ref":"#"}}', in_wrapper('{"$id":"#x","not":{"$ref":"#/properties/result"}}')),
    "data": ('{"const":{"$ref":"#"}}', in_wrapper('{"const":{"$ref":"#"}}')),
    "property const": (
        '{"properties":{"const":{"$ref":"#"}}}',
        in_wrapper('{"properties":{"const":{"$ref":"#/properties/result"}}}'),
    ),
    "property of a ref": (
        '{"properties":{"$ref":{"type":"null"}}}',
        in_wrapper('{"properties":{"$ref":{"type":"null"}}}'),
    ),
    "recursion in 2020-12": ('{"items":{"$recursiveRef":"#"}}', in_wrapper('{"items":{"$recursiveRef":"#"}}')),
    "dependencies": (
        '{"dependencies":{"a":["b"],"c":{"$ref":"#"}}}',
        in_wrapper('{"dependencies":{"a":["b"],"c":{"$ref":"#/properties/result"}}}'),
    ),
}


@pytest.mark.parametrize("name", WRAPS)
def test_the_form_of_the_wrapper(name: str) -> None:
    """The wrapper is that of the official TypeScript SDK, so that both sides of a conversation agree."""
    schema, expected = WRAPS[name]
    assert wrap_schema(schema.encode()) == expected


def test_a_recursive_reference_of_2019_is_not_moved() -> None:
    """A `$recursiveRef` under an anchored root keeps its text, since it is resolved anew where it is used."""
    schema = dumped({**RECURSIVE_2019, "$recursiveAnchor": True})
    assert b'"$recursiveRef": "#"' in wrap_schema(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (b'{"type":"object"}', False),
        (b'{"type":"\\u006fbject"}', False),
        (b'{"type":["object"]}', True),
        (b'{"anyOf":[{"type":"object"}]}', True),
        (b"{}", True),
        (b"true", False),  # no schema that any revision allows there
    ],
    ids=["object", "object in escapes", "list of types", "no type", "empty", "boolean"],
)
def test_the_schemas_that_need_wrapping(schema: bytes, expected: bool) -> None:
    assert needs_wrap(schema) is expected


def test_bounds() -> None:
    """A schema too deep to be rewritten, or with a member twice, is the server's fault."""
    deep = b'{"not":' * (DEPTH_MAX + 1) + b"{}" + b"}" * (DEPTH_MAX + 1)
    with pytest.raises(RemoteProtocolError, match="levels"):
        wrap_schema(deep)
    assert wrap_schema(deep[7:-1])
    with pytest.raises(RemoteProtocolError, match="twice"):
        wrap_schema(b'{"items":{"$ref":"#","$ref":"#/a"}}')


# --- Equality -------------------------------------------------------------------------------------------------------


@given(one=VALUES, other=VALUES)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    """The order of members and the spelling do not count; true is not 1."""
    assert is_same(dumped(one), json.dumps(one, indent=1, sort_keys=True).encode())
    assert is_same(dumped(one), dumped(other)) == (dumped_sorted(one) == dumped_sorted(other))


def dumped_sorted(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (b"1", b"1.0", True),
        (b"1", b"true", False),
        (b"[1]", b"[true]", False),
        (b"[null]", b"[0]", False),
        (b"[1e400]", b"[1e401]", False),
        (b'["1e400"]', b"[1e400]", False),
        (b"[" + b"9" * 5000 + b"]", b"[ " + b"9" * 5000 + b"]", False),  # cannot be read, so nothing is claimed
        (b"{", b"{", True),
        (b"{ ", b"{", False),
    ],
    ids=["1.0", "true", "in a list", "null", "beyond floats", "text", "too long", "broken", "broken otherwise"],
)
def test_equality_of_odd_values(one: bytes, other: bytes, expected: bool) -> None:
    assert is_same(one, other) is expected
    assert is_same(other, one) is expected
