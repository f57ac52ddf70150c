"""Bytes that are gathered in pieces equal one string of bytes that grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.wire import chunks
from isthmus.core.wire.chunks import SMALL_SIZE_BYTES, Chunks


@given(parts=st.lists(st.binary(max_size=6), max_size=8), count=st.integers(0, 12), prefix=st.binary(max_size=2))
def test_pieces_are_what_they_would_be_joined(parts: list[bytes], count: int, prefix: bytes) -> None:
    """Pieces of any size are joined in order, and again after some were taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "SMALL_SIZE_BYTES", 3)
        gathered, whole = Chunks(), b"".join(parts)

        def take_pieces() -> bytes:
            taken = gathered.take_pieces(count)
            assert not taken or len(taken[0]) >= min(count, len(whole))
            return b"".join(taken)

        for take in (take_pieces, gathered.take, gathered.take):
            for part in parts:
                gathered.append(bytearray(part))
            assert gathered.size_bytes == len(whole)
            assert gathered.copy_beginning(count) == whole[:count]
            assert not parts or gathered.startswith(prefix) == parts[0].startswith(prefix)
            assert take() == whole
            assert (gathered.size_bytes, gathered.copy_beginning(count), gathered.startswith(b"")) == (0, b"", False)


def test_the_beginning_of_the_first_piece_can_be_left_out() -> None:
    gathered = Chunks()
    for part in (b"abc", b"de"):
        gathered.append(part)
    assert gathered.take(2) == b"cde"


def test_small_pieces_are_put_together_and_large_ones_are_not_copied() -> None:
    gathered = Chunks()
    small, large = b"s" * (SMALL_SIZE_BYTES - 1), b"l" * SMALL_SIZE_BYTES
    for part in (b"first", small, b"x", large, b"y", b"z", large):
        gathered.append(part)
    taken = gathered.take_pieces()
    assert taken == (b"first", small + b"x", large, b"yz", large)
    assert taken[2] is large and taken[4] is large
