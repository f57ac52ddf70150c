"""How deeply JSON may be nested that is read here: what passes can be read again, and what does not is refused."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.jsonrpc.splice import DEPTH_SAFE, DEPTH_SPARE, check_depth, look, members

DEEP = 200_000


@pytest.mark.parametrize(
    ("opening", "inner", "closing"),
    [
        (b"[", b"1", b"]"),
        (b'{"a":', b"1", b"}"),
        (b'[{"a":', b"1", b"}]"),
        (b'{"a":[', b"1", b"]}"),
        (b'{"b":"\\\\ud800","a":', b"1", b"}"),
        (b'{"a":', b'"\\\\ud800"', b"}"),
    ],
    ids=["arrays", "objects", "objects in arrays", "arrays in objects", "beside half a pair", "round half a pair"],
)
def test_what_is_nested_too_deeply_is_refused(opening: bytes, inner: bytes, closing: bytes) -> None:
    """Whatever it is made of; with few levels it passes."""
    for levels in (1, 10, DEPTH_SAFE - DEPTH_SPARE):
        check_depth(opening * levels + inner + closing * levels)
    with pytest.raises(RemoteProtocolError, match="deep"):
        check_depth(opening * DEEP + inner + closing * DEEP)


@pytest.mark.parametrize("levels", [DEPTH_SAFE - 1, DEPTH_SAFE, DEPTH_SAFE + 1])
def test_as_many_levels_as_real_messages_never_have_are_read_anywhere(levels: int) -> None:
    check_depth(b"[" * levels + b"]" * levels)
    check_depth(b'{"a":' * levels + b"1" + b"}" * levels)
    assert levels > 8 * 30


def test_many_brackets_are_not_deep() -> None:
    """Side by side, or in text, or in what is no JSON."""
    for data in (b"[" + b"[]," * DEEP + b"1]", b'"' + b"[" * DEEP + b'"', b"{" * 300, b"}{" * DEEP, b""):
        check_depth(data)


@pytest.mark.parametrize("size", [10, 16 * 1024, 16 * 1024 + 1])
def test_what_is_looked_into_twice_has_the_same_members(size: int) -> None:
    """However large: what is remembered is what there is."""
    data = b'{"a":1,"b":"%b"}' % (b"x" * (size - 14))
    assert dict(look(data)) == dict(look(data)) == members(data)
    spans = members(data)
    assert [data[span.start : span.stop] for span in spans.values()] == [b"1", data[11:-1]]
