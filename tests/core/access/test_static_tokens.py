"""Tests of static tokens."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.access.identity import Identity
from isthmus.core.access.static_tokens import StaticToken, StaticTokens, digest_of, is_damaged, new_token

RANDOM = bytes(range(32))
TEXT = new_token(lambda size: RANDOM[:size])
CI = StaticToken("ci", digest_of(TEXT), frozenset({"read"}), frozenset({"robots"}), expires_at=100.0)


def test_a_token_holds_256_random_bits_and_can_be_checked() -> None:
    assert len(TEXT) == 53
    assert TEXT.startswith("ist_")
    assert TEXT.isascii() and TEXT[4:].isalnum()
    assert not is_damaged(TEXT)
    assert digest_of(TEXT) == hashlib.sha256(TEXT.encode()).digest()


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_different_random_bits_give_different_tokens(one: bytes, other: bytes) -> None:
    assert (new_token(lambda size: one) == new_token(lambda size: other)) is (one == other)


@given(st.integers(min_value=0, max_value=52), st.sampled_from("abcXYZ019"))
def test_a_changed_character_is_found(at: int, char: str) -> None:
    changed = TEXT[:at] + char + TEXT[at + 1 :]
    assert changed == TEXT or is_damaged(changed) or at < 4


@pytest.mark.parametrize("size", [0, 4, 20, 52])
def test_a_token_that_is_cut_off_is_found(size: int) -> None:
    assert is_damaged(TEXT[:size])


def test_a_token_names_its_caller_until_it_expires() -> None:
    tokens = StaticTokens([CI])
    grants, digest = (frozenset({"read"}), frozenset({"robots"})), digest_of(TEXT).hex()
    identity = Identity("token:ci", *grants, 100.0, "token", token_id=digest)
    assert tokens.find(TEXT, 99.0) == identity
    assert tokens.find(TEXT, 140.0) == "it expired 40 s ago"


def test_why_a_token_is_refused() -> None:
    tokens = StaticTokens([CI])
    other = new_token(lambda size: bytes(size))
    assert tokens.find(other, 0.0) == "nobody has this token here (any more)"
    assert tokens.find(TEXT[:-1], 0.0) == "it is cut off or mistyped"
    assert tokens.find("eyJ.x.y", 0.0) is None, "another way of identifying callers may know it"


@given(st.text())
def test_no_other_text_is_a_token(text: str) -> None:
    found = StaticTokens([CI]).find(text, 0.0)
    assert isinstance(found, Identity) is (text == TEXT)
