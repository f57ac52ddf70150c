"""Names that cannot be guessed, and the form by which they are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.ids import NAME_BYTES, is_minted, mint

NAME = "0123456789abcdef" * 2


@given(drawn=st.binary(min_size=NAME_BYTES, max_size=NAME_BYTES))
def test_what_was_minted_is_known_and_says_all_that_was_drawn(drawn: bytes) -> None:
    name = mint(lambda count: drawn[:count])
    assert is_minted(name)
    assert bytes.fromhex(name) == drawn


@pytest.mark.parametrize(
    "other", ["", NAME[1:], NAME + "0", NAME.upper(), *(NAME[1:] + c for c in "ABCDEFGQgz/.\\٣ \0")]
)
def test_nothing_else_is_a_name(other: str) -> None:
    """Such as what would lead out of a folder."""
    assert not is_minted(other)
