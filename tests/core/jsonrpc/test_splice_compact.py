"""The short way of splicing: compact objects are read at once, and all others are left to the full reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.jsonrpc.splice import (
    compact_members,
    extend_array,
    insert_members,
    members,
    remove_member,
    remove_members,
    set_member,
)

NAMES = st.text("abcé€😀 :,{}[]_", max_size=6)
VALUES = st.recursive(
    st.none() | st.integers() | st.text('a"\\é ', max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"{}", {}),
        (b'{"a":1}', {"a": b"1"}),
        (b'{"":"x"}', {"": b'"x"'}),
        (b'{"a":[1, 2],"bc":{"d" : 1},"e":null}', {"a": b"[1, 2]", "bc": b'{"d" : 1}', "e": b"null"}),
        (b'{"a":12345678901234567890,"b":1e5}', {"a": b"12345678901234567890", "b": b"1e5"}),
        (b"{ }", None),
        (b' {"a":1}', None),
        (b'{"a":1} ', None),
        (b'{"a": 1}', None),
        (b'{"a" :1}', None),
        (b'{"a":1, "b":2}', None),
        (b'{"a":1,"a":1}', None),
        (b'{"\\u0061":1}', None),
        (b'{"a\\/":1}', None),
        (b"[]", None),
        (b"1", None),
        (b"", None),
        (b'{"a":1', None),
        (b'{"a":' + b"[" * 100_000, None),
    ],
)
def test_a_compact_object_is_read_at_once(data: bytes, values: dict[str, bytes] | None) -> None:
    found = compact_members(data)
    assert (None if found is None else {key: data[place] for key, place in found.items()}) == values


@given(value=st.dictionaries(NAMES, VALUES, max_size=4), is_ascii=st.booleans(), space=st.sampled_from(["", " "]))
def test_the_short_way_finds_the_members_that_are_there(value: dict[str, object], is_ascii: bool, space: str) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii, separators=("," + space, ":" + space)).encode()
    spans = members(data)
    assert {key: json.loads(data[span.start : span.stop]) for key, span in spans.items()} == value
    found = compact_members(data)
    if found is not None:
        assert {key: (place.start, place.stop) for key, place in found.items()} == {
            key: (span.start, span.stop) for key, span in spans.items()
        }
    if not value or (not space and all(key.isascii() for key in value)):
        assert found is not None


@pytest.mark.parametrize(
    ("data", "added", "made"),
    [
        (b"{}", {"a": b"1"}, b'{"a":1}'),
        (b" { } ", {"a": b"1", "b": b"[]"}, b' {"a":1,"b":[] } '),
        (b'{"x":{"y":1}}', {"a": b"1"}, b'{"x":{"y":1},"a":1}'),
        (b' {"x": 1 } ', {"a": b"1"}, b' {"x": 1,"a":1 } '),
        (b' {"x": 1 } ', {}, b' {"x": 1 } '),
    ],
)
def test_members_are_inserted_at_the_end_and_removed_again(data: bytes, added: dict[str, bytes], made: bytes) -> None:
    assert insert_members(data, added) == made
    assert remove_members(made, added.keys()) == data


@pytest.mark.parametrize(
    ("data", "behind", "before"),
    [
        (b"[]", b"[1,2]", b"[1,2]"),
        (b" [ ] ", b" [ 1,2] ", b" [1,2 ] "),
        (b"[ 0 ]", b"[ 0 ,1,2]", b"[1,2, 0 ]"),
        (b"[[]]", b"[[],1,2]", b"[1,2,[]]"),
    ],
)
def test_an_array_is_extended_at_either_end(data: bytes, behind: bytes, before: bytes) -> None:
    """The default is its own end."""
    assert extend_array(data, [b"1", b"2"]) == extend_array(data, [b"1", b"2"], at_front=False) == behind
    assert extend_array(data, [b"1", b"2"], at_front=True) == before
    assert extend_array(data, []) == extend_array(data, [], at_front=True) == data


@pytest.mark.parametrize(
    ("data", "name", "made", "without"),
    [
        (b"{}", "a", b'{"a":9}', b"{}"),
        (b'{"a":1}', "a", b'{"a":9}', b"{}"),
        (b'{"a":1, "b":2}', "a", b'{"a":9, "b":2}', b'{"b":2}'),
        (b'{"b":2 , "a":1 }', "a", b'{"b":2 , "a":9 }', b'{"b":2 }'),
        (b'{"b":2, "a":1, "c":3}', "a", b'{"b":2, "a":9, "c":3}', b'{"b":2, "c":3}'),
        (b'{"b":{"a":1}}', "a", b'{"b":{"a":1},"a":9}', b'{"b":{"a":1}}'),
    ],
)
def test_one_member_is_set_or_removed_and_the_others_keep_their_bytes(
    data: bytes, name: str, made: bytes, without: bytes
) -> None:
    assert set_member(data, name, b"9") == made
    assert remove_member(data, name) == without
