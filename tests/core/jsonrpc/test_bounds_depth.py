"""The depth of nesting: JSON that passes the check can be read again, and all else is refused."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.jsonrpc.bounds import DEPTH_SAFE, DEPTH_SPARE, check_depth
from isthmus.core.jsonrpc.splice import look, members

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
def test_too_deep_nesting_is_refused(opening: bytes, inner: bytes, closing: bytes) -> None:
    """Nesting of arrays, objects or a mixture is refused above the bound and passes below it."""
    for levels in (1, 10, DEPTH_SAFE - DEPTH_SPARE):
        check_depth(opening * levels + inner + closing * levels)
    with pytest.raises(RemoteProtocolError, match="deep"):
        check_depth(opening * DEEP + inner + closing * DEEP)


@pytest.mark.parametrize("levels", [DEPTH_SAFE - 1, DEPTH_SAFE, DEPTH_SAFE + 1])
def test_more_levels_than_real_messages_have_are_read_on_any_stack(levels: int) -> None:
    check_depth(b"[" * levels + b"]" * levels)
    check_depth(b'{"a":' * levels + b"1" + b"}" * levels)
    assert levels > 8 * 30


def test_many_brackets_are_not_deep() -> None:
    """Brackets may stand side by side, in text, or in text that is no JSON."""
    for data in (b"[" + b"[]," * DEEP + b"1]", b'"' + b"[" * DEEP + b'"', b"{" * 300, b"}{" * DEEP, b""):
        check_depth(data)


@pytest.mark.parametrize("size", [10, 16 * 1024, 16 * 1024 + 1])
def test_a_second_reading_finds_the_same_members(size: int) -> None:
    """The memory of an earlier reading gives the same members, at any size."""
    data = b'{"a":1,"b":"%b"}' % (b"x" * (size - 14))
    assert dict(look(data)) == dict(look(data)) == members(data)
    spans = members(data)
    assert [data[span.start : span.stop] for span in spans.values()] == [b"1", data[11:-1]]
