"""Tests of tool hints: what lists of tools and error results reveal about files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.files.calls.tool_hints import NODES_MAX, read_hints, says_uri
from isthmus.core.state.tool_hints import Hints


def hints(properties: object = None, **more: object) -> Hints:
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": properties or {}}, **more}
    return read_hints(json.dumps({"tools": [tool]}).encode())["t"]


def string(**more: object) -> dict[str, object]:
    return {"type": "string", **more}


@each_row("odd", [[], {}, 7, None, [["uri"]]])
@each_row("name", ["format", "pattern", "description", "type", "items", "anyOf", "$ref", "properties"])
def test_invalid_values_of_keywords_are_ignored(name: str, odd: object) -> None:
    """An invalid value of a keyword gives no hint, and no error."""
    schema = {**string(), name: odd}
    assert not hints({"path": schema}).wants_uri("path", "path")


# --- Arguments that want a URI ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "wants"),
    [
        (string(), False),
        (string(format="uri"), True),
        (string(format="iri-reference"), True),
        (string(format="path"), False),
        (string(pattern="^(file:|https:)"), True),
        (string(description="A file:// URI"), True),
        (string(description="The URI of the document."), True),
        (string(description="Path or file:///… of the document"), True),
        (string(description="Path or URL of the document"), False),
        (string(description="Input file: what is to be read"), False),
        (string(description="purism, curly, our-url-ish"), False),
        ({"anyOf": [string(format="uri"), {"type": "null"}]}, True),
        ({"type": ["string", "null"], "description": "image URL"}, True),
        ({"type": "array", "items": string(format="uri")}, True),
        ({"type": "array", "description": "file: URIs", "items": string()}, True),
        ({"type": "array", "items": {"oneOf": [{"type": "integer"}, string(description="a URI")]}}, True),
        ({"type": "array", "description": "paths", "items": string(format="uri")}, True),
        ({"type": "array", "description": "file:// only", "items": string(description="path")}, True),
        ({"$ref": "#/$defs/Source"}, True),
        ({"$ref": "#/$defs/Loop"}, False),
        ({"$ref": "#/$defs/None"}, False),
        ({"$ref": 5}, False),
        (True, False),
        (5, False),
    ],
)
def test_the_schema_decides(schema: object, wants: bool) -> None:
    tool = {
        "name": "t",
        "inputSchema": {
            "properties": {"p": schema},
            "$defs": {"Source": string(format="uri"), "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]}},
        },
    }
    found = read_hints(json.dumps({"tools": [tool]}).encode())["t"]
    assert found.wants_uri("p", "p") is wants
    assert found.wants_uri("p[3]", "p") is wants


@pytest.mark.parametrize(
    ("key", "wants"),
    [
        ("uri", True), ("URL", True), ("uris", True), ("file_uri", True), ("image-urls", True), ("imageUrl", True),
        ("documentURIs", True), ("fileurl", True), ("data_uri", True), ("a.url", True),
        ("path", False), ("curl", False), ("hourly", False), ("security", False), ("uri_path", False),
        ("urls_file", False), ("", False), ("Puri", False),
    ],
)  # fmt: skip
def test_the_name_decides_if_the_schema_does_not(key: str, wants: bool) -> None:
    assert Hints().wants_uri(key, key) is wants
    assert hints({key: string()}).wants_uri(f"o.{key}[0]", key) is wants
    assert not hints({key: string(description="a local path")}).wants_uri(key, key)


def test_nested_arguments_are_known_by_their_labels() -> None:
    found = hints({"o": {"properties": {"files": {"items": {"properties": {"where": string(format="uri"), "x": {}}}}}}})
    assert found.wants_uri("o.files[0].where", "where")
    assert not found.wants_uri("o.files[0].x", "x")
    assert not found.wants_uri("where", "where")


@pytest.mark.parametrize(
    ("about", "properties", "wants"),
    [
        ("Convert a resource described by an http:, https:, file: or data: URI to markdown", {"p": string()}, True),
        ("Takes file:// links", {"p": string(), "n": {"type": "integer"}}, True),
        ("Takes file:// links", {"p": string(), "q": string()}, False),
        ("Takes file:// links", {"p": string(description="a path")}, False),
        ("Takes a file: any.", {"p": string()}, False),
        ("Takes URIs", {"p": string()}, False),
    ],
)
def test_the_tools_description_decides_for_its_only_argument(about: str, properties: object, wants: bool) -> None:
    assert hints(properties, description=about).wants_uri("p", "p") is wants


# --- Other hints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "is_harmless"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True, "destructiveHint": True}, True),
        ({"readOnlyHint": False}, False),
        ({"readOnlyHint": "true"}, False),
        ({}, False),
        (None, False),
        ([], False),
    ],
)
def test_a_tool_is_harmless_if_its_annotations_say_so(annotations: object, is_harmless: bool) -> None:
    assert hints(annotations=annotations).is_harmless is is_harmless
    assert not hints().is_harmless


def test_the_output_schema_is_kept_as_it_came() -> None:
    page = (
        b'{"tools":[{"name":"a","outputSchema":{"x":1.0, "y":"\\u00e9"}},{"name":"b","outputSchema":5},{"name":"c"}]}'
    )
    found = read_hints(page)
    assert [found[name].output_schema for name in "abc"] == [b'{"x":1.0, "y":"\\u00e9"}', None, None]


def test_tools_without_a_readable_name_are_left_out() -> None:
    page = b'{"tools":[{},5,{"name":5},{"name":"a","name":"a"},{"name":"b","inputSchema":[1]},{"name":"c\\ud800"}]}'
    assert list(read_hints(page)) == ["b", "c\ufffd"]


@pytest.mark.parametrize(
    "page", [b"", b"5", b"{}", b'{"tools":{}}', b'{"tools":[', b'{"tools":[],"tools":[]}', b"\xff"]
)
def test_pages_of_another_shape_give_no_hints(page: bytes) -> None:
    assert read_hints(page) == {}


def test_large_schemas_are_read_in_part() -> None:
    many = {f"p{n}": string(format="uri") for n in range(3 * NODES_MAX)}
    assert 0 < len(hints(many).verdicts) <= NODES_MAX
    deep: Any = string(format="uri")
    for _ in range(100):
        deep = {"properties": {"k" * 50: deep}}
    assert hints({"p": deep}).verdicts == {}
    deeper = b'{"tools":[{"name":"t","inputSchema":%b}]}' % (b'{"items":' * 5000 + b"{}" + b"}" * 5000)
    assert read_hints(deeper).get("t", Hints()).verdicts == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "a file: URI", "#/$defs/a", "\ud800"]),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "inputSchema", "properties", "items", "anyOf", "type", "format", "description", "$ref",
                         "$defs", "a", "uri", "pattern", "annotations", "outputSchema", "content", "text", "isError"]),
        below, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    tools=st.lists(st.fixed_dictionaries({"name": st.just("t"), "inputSchema": JSON}) | JSON, max_size=3), other=JSON
)
def test_pages_of_any_shape_can_be_read(tools: list[Any], other: Any) -> None:
    """Any message of a server gives an answer without an error."""
    page = json.dumps({"tools": tools}).encode()
    for found in read_hints(page).values():
        assert found.wants_uri("a", "a") in (True, False)
    assert (
        says_uri(json.dumps({"isError": True, "content": other}).encode(), ["/x"]) is False
        or "uri" in str(other).lower()
    )


# --- Refusals ---------------------------------------------------------------------------------------------------------


def refusal(text: str, *, is_error: bool = True) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], "isError": is_error}).encode()


MARKITDOWN = (
    "Error executing tool convert_to_markdown: Unsupported URI scheme: /w/in/t.csv. Supported schemes are: file:, "
    "data:, http:, https:"
)


@pytest.mark.parametrize(
    "text",
    [
        MARKITDOWN,
        "Error executing tool convert_to_markdown: Unsupported URI scheme: . Supported schemes are: file:, data:",
        "Only URLs with a scheme in: file and data are supported. Received '/w/in/t.csv'",
        "Invalid URL '/w/in/t.csv': No scheme supplied. Perhaps you meant https:///w/in/t.csv?",
        "1 validation error\nuri\n  Input should be a valid URL, relative URL without a base [input='/w/in/t.csv']",
        "unknown url type: '/w/in/t.csv'",
        "/w/in/t.csv must be a file:// path",
    ],
)
def test_an_error_about_a_path_as_uri_is_recognized(text: str) -> None:
    assert says_uri(refusal(text), ["/w/in/other", "/w/in/t.csv"])
    assert not says_uri(refusal(text), [])
    assert not says_uri(refusal(text, is_error=False), ["/w/in/t.csv"])


@pytest.mark.parametrize(
    "text",
    [
        "ENOENT: no such file or directory, open '/w/in/t.csv'",
        "Error: /w/in/t.csv\n    at file:///usr/lib/node_modules/server/index.js:12:3",
        "Access denied - path outside allowed directories: /w/in/t.csv not in /w/ws",
        "Unsupported file type: /w/in/t.csv",
        "Cannot resolve URI",
        "The path /w/in/file: not readable/scheme-x.csv",
        "",
    ],
)
def test_another_error_is_not_recognized(text: str) -> None:
    assert not says_uri(refusal(text), ["/w/in/t.csv"])


def test_only_errors_of_a_result_count() -> None:
    for result in (b"", b"5", b'{"isError":true}', b'{"isError":true,"content":[5,{},{"text":5}]}', b'{"isError":1}'):
        assert not says_uri(result, ["/x", ""])


# --- References -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "wants"),
    [
        ("#/$defs/a", True),
        ("#/definitions/b", True),
        ("#/$defs/b", False),
        ("#/definitions/a", False),
        ("#/other/a", False),
        ("/$defs/a", False),
        ("a", False),
    ],
)
def test_references_are_followed_within_the_schema(reference: str, wants: bool) -> None:
    """A reference is looked up only in the table that it names."""
    uri = string(format="uri")
    schema = {
        "properties": {"p": {"$ref": reference}},
        "$defs": {"a": uri},
        "definitions": {"b": uri},
        "other": {"a": uri},
    }
    page = json.dumps({"tools": [{"name": "t", "inputSchema": schema}]}).encode()
    assert read_hints(page)["t"].wants_uri("p", "p") is wants
