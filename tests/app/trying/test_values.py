"""Tests of values that are given as text, against any value and any schema."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.trying.descriptions import Target, argument_lines, example, sample, tool_lines, tool_table
from isthmus.app.trying.schemas import alternatives, arguments_of, choices_of, label, text_of
from isthmus.app.trying.values import Misfit, value_of

TEXTS = st.text(max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
TYPES: list[tuple[str, type | tuple[type, ...]]] = [
    ("null", type(None)),
    ("boolean", bool),
    ("integer", int),
    ("number", (int, float)),
    ("array", list),
    ("object", dict),
    ("string", str),
]
KEYWORDS = ("type", "anyOf", "oneOf", "allOf", "$ref", "items", "properties", "required", "enum", "const", "title")
WORDS = st.sampled_from(["string", "integer", "array", "object", "null", "#", "#/properties/a", "#/items", "a", "b"])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    SCALARS | WORDS | st.lists(WORDS, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(KEYWORDS) | WORDS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=25,
)


def type_name(value: object) -> str:
    return next(name for name, kind in TYPES if isinstance(value, kind))


@given(value=VALUES)
def test_a_value_that_is_written_for_its_type_is_read_as_itself(value: object) -> None:
    """A list is written as JSON; without the bracket a text is its only item."""
    read = value_of(text_of(value), [{"type": type_name(value)}])
    assert (read, type(read)) == (value, type(value))


@given(text=TEXTS | VALUES.map(json.dumps), names=st.lists(st.sampled_from([name for name, _ in TYPES]), min_size=1))
def test_what_is_read_has_one_of_the_types_that_are_asked_for(text: str, names: list[str]) -> None:
    try:
        read = value_of(text, [{"type": name} for name in names])
    except Misfit:
        assert "string" not in names
        return
    kinds = tuple(kind for name, kind in TYPES if name in names)
    assert any(
        isinstance(read, kind) and (kind in (bool, (int, float)) or not isinstance(read, bool)) for kind in kinds
    )
    assert not isinstance(read, float) or math.isfinite(read)


@given(text=st.text())
def test_a_text_for_a_string_is_never_changed(text: str) -> None:
    assert value_of(text, [{"type": "string"}]) == text
    assert value_of(text, [{}]) == text


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": ["integer", "string"]}, 5),
        ("007", {"type": ["integer", "string"]}, "007"),
        ("a", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "a"),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("True", {"type": "boolean"}, True),
        ("2", {"enum": ["1", 2]}, 2),
        ("x", {"type": "array", "items": {"type": "string"}}, ["x"]),
        ("3", {"type": "array", "items": {"type": "integer"}}, [3]),
        ('["a", 1]', {"type": "array"}, ["a", 1]),
        ('{"a": 1}', {"properties": {"a": {}}}, {"a": 1}),
        ("red", {"$ref": "#/$defs/Colour", "$defs": {"Colour": {"enum": ["red"]}}}, "red"),
    ],
)
def test_a_text_is_read_by_its_schema(text: str, schema: dict[str, Any], value: object) -> None:
    read = value_of(text, alternatives(schema, schema))
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("x", {"type": "integer"}, "got 'x', expected integer"),
        ("1.5", {"type": "integer"}, "got '1.5', expected integer"),
        ("1e999", {"type": "number"}, "got '1e999', expected number"),
        ("yes", {"type": "boolean"}, "got 'yes', expected boolean"),
        ("rd", {"enum": ["red", "green"]}, "got 'rd', expected one of red, green; the nearest is red"),
        ("[1", {"type": "array", "items": {"type": "integer"}}, "got '[1', expected list of integer"),
        ("x", {"type": "array", "items": {"enum": [1, 2]}}, "got 'x', expected some of 1, 2"),
        ("[]", {"type": "object"}, "got '[]', expected object"),
    ],
)
def test_a_text_that_is_no_value_says_what_is_right(text: str, schema: dict[str, Any], said: str) -> None:
    with pytest.raises(Misfit) as misfit:
        value_of(text, alternatives(schema, schema))
    assert str(misfit.value) == said


@given(schema=SCHEMAS, text=TEXTS)
def test_any_schema_of_a_server_is_shown_and_read_by(schema: object, text: str) -> None:
    """A tool is listed, described and called by whatever a server calls its schema, and lines stay on the screen."""
    tool = {"name": "t", "description": text, "inputSchema": schema}
    lines = [*tool_table([tool], 80), *tool_lines(tool, Target("id"), 80)]
    lines = lines[:-1]  # the example may be longer: it is there to be copied
    assert all(len(line) <= 80 and line.isprintable() for line in lines), lines
    assert example(tool, Target("id")).startswith("isthmus call id t")
    for argument in arguments_of(schema).known.values():
        assert label(argument.schemas)
        with contextlib.suppress(Misfit):
            json.dumps(value_of(text, argument.schemas))
        is_impossible = all(choices_of(one) == [None] for one in argument.schemas)
        assert is_impossible or json.dumps(value_of(sample(argument), argument.schemas))


def test_a_schema_without_an_end_has_one_here() -> None:
    loop = {"anyOf": [{"$ref": "#"}] * 50}
    assert len(alternatives(loop, loop)) <= 200
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    assert argument_lines({"properties": {"a": deep}}, 80) == ["  a  list"]
