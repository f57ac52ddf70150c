"""The Range header: each byte is sent once, in the order of the ranges, and an unreadable header is ignored."""

from __future__ import annotations

import pytest
from isthmus.core.wire.http.ranges import HEADER_MAX_BYTES, PARTS_MAX, parse_ranges


@pytest.mark.parametrize(
    ("value", "ranges"),
    [
        (b"bytes=0-0", [range(1)]),
        (b"bytes=8-9", [range(8, 10)]),
        (b"bytes=8-10", [range(8, 10)]),
        (b"bytes=9-", [range(9, 10)]),
        (b"bytes=10-", []),
        (b"bytes=-1", [range(9, 10)]),
        (b"bytes=-10", [range(10)]),
        (b"bytes=-11", [range(10)]),
        (b"bytes=-0", []),
        (b"bytes=3-3", [range(3, 4)]),
        (b"bytes=3-2", None),
        (b"bytes=-", None),
        (b"bytes=", None),
        (b"bytes=,", None),
        (b"bytes=1", None),
        (b"lines=0-1", None),
        # What touches becomes one, whichever came first, and stands where the first of them stood.
        (b"bytes=0-1,2-3", [range(4)]),
        (b"bytes=2-3,0-1", [range(4)]),
        (b"bytes=0-1,3-4", [range(2), range(3, 5)]),
        (b"bytes=3-4,0-1", [range(3, 5), range(2)]),
        (b"bytes=0-1,8-9,4-5,2-3", [range(6), range(8, 10)]),
        (b"bytes=8-9,0-1,4-5,2-3", [range(8, 10), range(6)]),
        (b"bytes= 0-1 ,\t, -1 ", [range(2), range(9, 10)]),
    ],
)
def test_ranges_of_ten_bytes(value: bytes, ranges: list[range] | None) -> None:
    assert parse_ranges(value, 10) == ranges


def test_too_many_ranges_are_ignored() -> None:
    most = b"bytes=" + b",".join(b"%d-%d" % (at, at) for at in range(0, 2 * PARTS_MAX, 2))
    assert len(parse_ranges(most, 1000) or []) == PARTS_MAX
    assert parse_ranges(most + b",999-999", 1000) is None
    longest = b"bytes=0-1".ljust(HEADER_MAX_BYTES)
    assert parse_ranges(longest, 10) == [range(2)]
    assert parse_ranges(longest + b" ", 10) is None
