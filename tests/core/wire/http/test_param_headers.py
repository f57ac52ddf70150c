"""Arguments that are mirrored into headers, and tools that annotate them wrongly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import PARSE_ERROR, RemoteProtocolError
from isthmus.core.wire.http.param_headers import Mirror, mirrors_of, read_tools

GOOD = {"type": "string", "x-mcp-header": "Region"}


def schema(**properties: Any) -> bytes:
    return json.dumps({"type": "object", "properties": properties}).encode()


def problem_of(raw: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        mirrors_of(raw)
    return caught.value.message


def test_annotations_are_found_at_any_depth_in_order() -> None:
    """Every step of the chain is `properties`, so that every reader finds the same argument."""
    raw = schema(
        b={"type": "integer", "x-mcp-header": "Count"},
        a={
            "type": "object",
            "properties": {"x": {"properties": {"y": {"type": "boolean", "x-mcp-header": "dry-Run"}}}},
        },
        c=GOOD,
        d={"type": "string"},
    )
    assert mirrors_of(raw) == (
        Mirror("Count", ("b",), "integer"),
        Mirror("dry-Run", ("a", "x", "y"), "boolean"),
        Mirror("Region", ("c",), "string"),
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"true",
        b"[]",
        b'{"type":"object"}',
        schema(a={"type": "string", "description": "x-mcp-header"}),
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(a={"type": "object", "default": {"x-mcp-header": 1}, "enum": [{"x-mcp-header": 1}], "x-more": GOOD}),
        schema(a=True, b=[GOOD], c=None),
        b'{"properties":[{"x-mcp-header":"A"}]}',
    ],
    ids=["empty", "true", "array", "plain", "in-text", "as-a-name", "in-values", "no-schemas", "no-properties"],
)
def test_other_values_are_no_annotations(raw: bytes) -> None:
    """Names of properties, texts, defaults and other values do not count."""
    assert mirrors_of(raw) == ()


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a:b", "a\r\nb", "é", "a\0", "(a)", 7, None, ["A"], {"a": 1}], ids=ascii
)
def test_a_name_is_a_token(name: Any) -> None:
    """The name "MUST match HTTP field-name token syntax", and is checked before it is put into any header."""
    assert "token" in problem_of(schema(a={"type": "string", "x-mcp-header": name}))


@pytest.mark.parametrize("kind", ["number", "object", "array", "null", "String", None, ["string"], 1, {}], ids=ascii)
def test_only_primitive_arguments_are_mirrored(kind: Any) -> None:
    assert "primitive" in problem_of(schema(a={"type": kind, "x-mcp-header": "A"}))


def test_a_type_must_be_there() -> None:
    assert "primitive" in problem_of(schema(a={"x-mcp-header": "A"}))


@pytest.mark.parametrize("second", ["Region", "REGION", "region"])
def test_names_are_unique_whatever_their_case(second: str) -> None:
    message = problem_of(schema(a=GOOD, b={"properties": {"c": {"type": "string", "x-mcp-header": second}}}))
    assert "'a'" in message
    assert "'b.c'" in message


ONE = ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems"]
ONE += ["unevaluatedProperties", "contentSchema", "additionalItems"]
MANY = ["allOf", "anyOf", "oneOf", "prefixItems", "items"]
NAMED = ["$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies"]


@each_row(
    "part",
    [{key: GOOD} for key in ONE] + [{key: [True, GOOD]} for key in MANY] + [{key: {"k": GOOD}} for key in NAMED],
)
@each_row("depth", [0, 1])
def test_an_annotation_anywhere_else_is_wrong(part: dict[str, Any], depth: int) -> None:
    """The argument is ambiguous behind a list, a choice, a condition or a reference."""
    within = {"type": "object", "properties": {"a": part}} if depth else part
    assert "off the properties" in problem_of(json.dumps(within).encode())
    (key, held), *_ = part.items()
    deeper = {key: json.loads(json.dumps(held).replace(json.dumps(GOOD), json.dumps({"properties": {"p": GOOD}})))}
    assert "off the properties" in problem_of(json.dumps(deeper).encode())


def test_an_annotation_on_the_root_is_wrong() -> None:
    assert "off the properties" in problem_of(b'{"type":"string","x-mcp-header":"A"}')


@pytest.mark.parametrize(
    "raw",
    [
        b'{"properties":{"a":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}}}',
        b'{"properties":{"a":{"type":"string","type":"object","x-mcp-header":"A"}}}',
        b'{"properties":{"a":{"type":"string","x-mcp-header":"A"},"a":{}}}',
        b'{"properties":{"a":{"type":"string","x-mcp-header":"A"}},"properties":{}}',
        b'{"properties":{"b":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}},"b":{}}}',
    ],
    ids=["annotation", "type", "property", "properties", "above"],
)
def test_a_member_above_an_annotation_occurs_once(raw: bytes) -> None:
    """Readers differ in which of two they take, and would mirror different arguments."""
    assert "twice" in problem_of(raw)


def test_other_doubles_do_no_harm() -> None:
    raw = b'{"properties":{"a":{"type":"string","x-mcp-header":"A","title":"x","title":"y"},"b":{},"b":{}}}'
    assert mirrors_of(raw) == (Mirror("A", ("a",), "string"),)


def test_escapes_do_not_hide_an_annotation() -> None:
    raw = b'{"properties":{"\\u0061":{"type":"string","x\\u002dmcp-header":"A"}}}'
    assert mirrors_of(raw) == (Mirror("A", ("a",), "string"),)


@pytest.mark.parametrize("raw", [b'{"x-mcp-header"', b'["x-mcp-header"]' * 2, b'{"x-mcp-header":' + b"[" * 100_000])
def test_a_malformed_schema_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        mirrors_of(raw)
    assert caught.value.rpc_code == PARSE_ERROR


# --- Lists of tools -------------------------------------------------------------------------------------------------


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": json.loads(schema(**properties))}


BAD = tool("bad", a={"type": "number", "x-mcp-header": "A"})
FINE = tool("fine", a={"type": "integer", "x-mcp-header": "A"})
PLAIN = tool("plain", a={"type": "number"})
TOOLS = st.lists(st.sampled_from([BAD, FINE, PLAIN]), max_size=5)


@given(tools=TOOLS, indent=st.sampled_from([None, 1]))
def test_only_wrong_tools_are_left_out(tools: list[dict[str, Any]], indent: int | None) -> None:
    """Every other tool stays as it was, in its place; without wrong ones no byte changes."""
    result = json.dumps({"a": 1, "tools": tools, "nextCursor": "x"}, indent=indent).encode()
    after, mirrors, dropped = read_tools(result)
    kept = [one for one in tools if one is not BAD]
    assert json.loads(after) == {"a": 1, "tools": kept, "nextCursor": "x"}
    assert mirrors == ({"fine": (Mirror("A", ("a",), "integer"),)} if FINE in tools else {})
    assert len(dropped) == tools.count(BAD)
    assert all("'bad'" in one and "primitive" in one for one in dropped)
    if BAD not in tools:
        assert after is result


@pytest.mark.parametrize(
    "result",
    [b"{}", b'{"tools":{"x-mcp-header":"A"}}', b'{"tools":["x-mcp-header",{"x-mcp-header":"A"},null]}', b"[]"],
    ids=["none", "object", "no-tools", "array"],
)
def test_a_malformed_list_of_tools_is_left_alone(result: bytes) -> None:
    assert read_tools(result) == (result, {}, [])


def test_tools_keep_their_bytes() -> None:
    """Spacing, escapes, digits and doubles stay in tools without annotations."""
    plain = b'{ "name":"\\u0061", "a":1.0, "a":1e400, "inputSchema":{ } }'
    bad = b'{"name":"b","inputSchema":{"x-mcp-header":"B"}}'
    after, _, dropped = read_tools(b'{"tools": [%b , %b]}' % (bad, plain))
    assert after == b'{"tools": [%b]}' % plain
    assert len(dropped) == 1


def test_a_tool_with_two_schemas_is_left_out() -> None:
    good = schema(a=GOOD)
    result = b'{"tools":[{"name":"t","inputSchema":%b,"inputSchema":{}}]}' % good
    after, mirrors, dropped = read_tools(result)
    assert (after, mirrors) == (b'{"tools":[]}', {})
    assert "twice" in dropped[0]
