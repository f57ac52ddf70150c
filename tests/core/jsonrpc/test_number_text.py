"""Numbers read by their digits have the value that exact arithmetic gives."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.jsonrpc.number_text import SAFE_INTEGER_MAX, is_integral, normal_form, safe_integer

DIGITS = st.text("0123456789", min_size=1, max_size=20)
WHOLE = st.one_of(
    st.just("0"), st.builds(str.__add__, st.sampled_from("123456789"), st.text("0123456789", max_size=20))
)
FRACTION = st.one_of(st.just(""), DIGITS.map(lambda digits: "." + digits))
EXPONENT = st.one_of(
    st.just(""), st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 40))
)
NUMBERS = st.builds("{}{}{}{}".format, st.sampled_from(["", "-"]), WHOLE, FRACTION, EXPONENT)
SMALL = st.builds(
    "{}{}{}".format,
    st.integers(-30, 30),
    st.sampled_from(["", ".0", ".5", "0"]),
    st.sampled_from(["", "e0", "e1", "E-1"]),
)
NUMERALS = st.one_of(NUMBERS, SMALL)


@given(one=NUMERALS, other=NUMERALS)
def test_equal_forms_are_equal_values(one: str, other: str) -> None:
    """1, 1.0, 1e0 and 10E-1 are one number, and numbers that differ in one digit are two."""
    assert (normal_form(one) == normal_form(other)) == (Fraction(one) == Fraction(other))


@given(text=NUMERALS)
def test_integers_are_recognized_however_written(text: str) -> None:
    value = Fraction(text)
    assert is_integral(text) == (value.denominator == 1)
    is_safe = value.denominator == 1 and abs(value) <= SAFE_INTEGER_MAX
    assert safe_integer(text) == (value if is_safe else None)


@pytest.mark.parametrize(("text", "value"), [("9007199254740991", 2**53 - 1), ("-9007199254740991.0", 1 - 2**53)])
def test_the_last_safe_integers_are_safe(text: str, value: int) -> None:
    assert safe_integer(text) == value


@pytest.mark.parametrize("text", ["9007199254740992", "-9007199254740992", "1e16", "1e400", "1e-1", "0.5"])
def test_other_integers_are_not_safe(text: str) -> None:
    assert safe_integer(text) is None


@pytest.mark.parametrize("text", ["1e999999999999999999999", "1E-999999999", "9" * 100_000, "0." + "0" * 100_000 + "1"])
def test_a_number_of_any_size_is_compared_by_digits(text: str) -> None:
    """No number is computed, so none is too large."""
    assert normal_form(text) == normal_form(text.replace("E", "e"))
    assert safe_integer(text) is None
