"""Tests of the lines that faults of a configuration are told with."""

from __future__ import annotations

import json

from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.config.line_numbers import line_numbers, line_of

NAMES = st.text(alphabet='ab."\\é/*', min_size=1, max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(document=st.dictionaries(NAMES, VALUES, max_size=4), indent=st.sampled_from([None, 1]))
def test_json_read_as_json_and_as_yaml_has_the_same_lines(document: dict[str, object], indent: int | None) -> None:
    """The two readers were written apart, and a JSON document is one of YAML."""
    text = json.dumps(document, indent=indent)
    lines = line_numbers(text, "json")
    assert lines == line_numbers(text, "yaml")
    assert {key for key in lines if "." not in key and "[" not in key} >= {key for key in document if "." not in key}


COMMENTED = '{ // "c": 1\n"a": [ /* {\n */ 1,\n {"b": 2,}, ],\n}'


def test_comments_and_commas_at_ends_count_lines_only() -> None:
    assert line_numbers(COMMENTED, "json") == {"a": 2, "a[0]": 3, "a[1]": 4, "a[1].b": 4}


@each_row(
    "key, line", [("a", 2), ("a[1].b", 4), ("a[1].b.c[0]", 4), ("a[1].c", 4), ("a[7].c", 2), ("b", None), ("", None)]
)
def test_a_key_that_is_missing_has_the_line_of_the_nearest_above(key: str, line: int | None) -> None:
    assert line_of(key, line_numbers(COMMENTED, "json")) == line


def test_a_document_that_holds_itself_has_lines() -> None:
    assert line_numbers("a: &x\n  b: 1\n  c: *x\n", "yaml") == {"a": 1, "a.b": 2, "a.c": 3}


TOML = '''
top = 1
text = """
not = "a key"
"""
[mcp_servers."a.b"]  # a table
env = { K = "v" }
args = [
  "x",
]
[mcp_servers.c.env]
"K L" = 1
[[list]]
one = 1
[[list]]
one.two = 1
'''


def test_tables_and_keys_of_toml_have_lines() -> None:
    assert line_numbers(TOML, "toml") == {
        "top": 2,
        "text": 3,
        "mcp_servers.a.b": 6,
        "mcp_servers.a.b.env": 7,
        "mcp_servers.a.b.args": 8,
        "mcp_servers.c.env": 11,
        "mcp_servers.c.env.K L": 12,
        "list": 13,
        "list[0]": 13,
        "list[0].one": 14,
        "list[1]": 15,
        "list[1].one.two": 16,
    }
