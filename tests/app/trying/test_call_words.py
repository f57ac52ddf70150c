"""Tests of arguments of a call that are given as words of a command."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.trying.call_words import Problems, Word, build, read_words
from isthmus.app.trying.schemas import arguments_of, text_of

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: "=" not in name and not name.endswith(":"))
SCALARS = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=8)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "object", "properties": {"lat": {"type": "number"}, "note.text": {"type": "string"}}},
    },
    "required": ["city"],
}


def built(*texts: str, schema: object = SCHEMA, given: dict[str, Any] | None = None) -> dict[str, Any]:
    words = read_words(texts, arguments_of(schema))
    return build(words, schema, lambda word: f"<{word.file}>", given)


@given(arguments=st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=4))
def test_whatever_is_written_as_json_is_sent_as_it_is(arguments: dict[str, Any]) -> None:
    words = [f"{name}:={json.dumps(value)}" for name, value in arguments.items()]
    assert built(*words, schema={"type": "object"}) == arguments


@given(arguments=st.dictionaries(NAMES, st.text(max_size=8).filter(lambda text: not text.startswith("@")), max_size=4))
def test_a_text_is_sent_as_it_is_where_nothing_is_said_of_it(arguments: dict[str, str]) -> None:
    words = [f"{name}={text_of(value)}" for name, value in arguments.items()]
    assert built(*words, schema={}) == arguments
    assert [word.text for word in read_words(words, arguments_of({}))] == list(arguments.values())


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["city=Rome", "days=3"], {"city": "Rome", "days": 3}),
        (["city=a=b", "tags=x"], {"city": "a=b", "tags": ["x"]}),
        (["city=", "tags=x", "tags=y", 'tags=["z"]'], {"city": "", "tags": ["x", "y", "z"]}),
        (["city:=null", "at.lat=1.5", "at.note.text=hm"], {"city": None, "at": {"lat": 1.5, "note.text": "hm"}}),
        (["city=@a.txt", "tags=@b", "tags=@c"], {"city": "<a.txt>", "tags": ["<b>", "<c>"]}),
        (['city:="@a.txt"'], {"city": "@a.txt"}),
    ],
)
def test_words_become_arguments_by_the_schema(words: list[str], arguments: dict[str, Any]) -> None:
    assert built(*words) == arguments


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], ["city is missing"]),
        (["ctiy=Rome"], ["unknown argument ctiy; the nearest is city", "city is missing"]),
        (["city=Rome", "days=few"], ["days: got 'few', expected integer"]),
        (["city=Rome", "city=Oslo"], ["city is given twice"]),
        (["city=Rome", "at.lat=1", "at.lon=2"], ["unknown argument at.lon"]),
        (["city:=Rome"], ["city: got 'Rome' after :=, expected JSON; a text stands after = alone"]),
        (["Rome"], ["got 'Rome', expected ARGUMENT=VALUE, such as city=Rome"]),
        (["=Rome"], ["got '=Rome', expected ARGUMENT=VALUE"]),
    ],
)
def test_each_wrong_word_is_named_with_what_is_right(words: list[str], lines: list[str]) -> None:
    with pytest.raises(Problems) as problems:
        built(*words)
    assert list(problems.value.lines) == lines


def test_arguments_that_are_given_as_an_object_are_not_checked() -> None:
    assert built(given={"other": 1}) == {"other": 1}
    assert built("days=2", given={"other": 1}) == {"other": 1, "days": 2}
    with pytest.raises(Problems):
        built("days=2", given={"days": 1})


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "properties": {}}, False),
        ({"properties": {"a": {}}, "additionalProperties": True}, True),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, True),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, True),
        ({"type": "object", "additionalProperties": False}, False),
        (True, True),
    ],
)
def test_an_object_is_closed_where_its_schema_names_members(schema: object, is_open: bool) -> None:
    assert arguments_of(schema).is_open == is_open


def test_members_of_parts_are_known_and_those_of_one_choice_are_not_required() -> None:
    part = {"properties": {"b": {}}, "required": ["b"]}
    both = arguments_of({"allOf": [{"$ref": "#/$defs/a"}, part], "$defs": {"a": {"properties": {"a": {}}}}})
    assert (list(both.known), both.required) == (["b", "a"], ["b"])
    one = arguments_of({"anyOf": [part, {"properties": {"c": {}}, "required": ["c"]}]})
    assert (sorted(one.known), one.required) == (["b", "c"], [])


def test_a_word_knows_its_file() -> None:
    assert read_words(["a=@x y", "b:=@z.json"], arguments_of({})) == [
        Word("a", "@x y", False, "x y"),
        Word("b", "@z.json", True, "z.json"),
    ]
