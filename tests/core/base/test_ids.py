"""Names that cannot be guessed, and the form that identifies them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.ids import NAME_BYTES, is_minted, mint

NAME = "0123456789abcdef" * 2


@given(drawn=st.binary(min_size=NAME_BYTES, max_size=NAME_BYTES))
def test_a_minted_name_is_recognized_and_holds_all_random_bits(drawn: bytes) -> None:
    name = mint(lambda count: drawn[:count])
    assert is_minted(name)
    assert bytes.fromhex(name) == drawn


@pytest.mark.parametrize(
    "other", ["", NAME[1:], NAME + "0", NAME.upper(), *(NAME[1:] + c for c in "ABCDEFGQgz/.\\٣ \0")]
)
def test_any_other_text_is_no_minted_name(other: str) -> None:
    """A path that leads out of a folder is refused, among others."""
    assert not is_minted(other)
