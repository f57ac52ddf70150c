"""Members of objects as most are written are found at once, where they are, and all others are left to be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.rewrite import compact_members, members

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
def test_an_object_without_anything_between_its_members_is_read_at_once(
    data: bytes, values: dict[str, bytes] | None
) -> None:
    found = compact_members(data)
    assert (None if found is None else {key: data[place] for key, place in found.items()}) == values


@given(value=st.dictionaries(NAMES, VALUES, max_size=4), is_ascii=st.booleans(), space=st.sampled_from(["", " "]))
def test_what_is_found_at_once_is_what_is_there(value: dict[str, object], is_ascii: bool, space: str) -> None:
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
