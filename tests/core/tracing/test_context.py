"""Tests of trace contexts as text: what is read, what is refused, and that reading undoes writing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.tracing.baggage import BAGGAGE_MAX_CHARS, parse_baggage
from isthmus.core.tracing.context import (
    STATE_MAX_CHARS,
    STATE_MAX_MEMBERS,
    TraceContext,
    format_parent,
    parse_context,
    parse_state,
)

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def ids(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


contexts = st.builds(TraceContext, ids(32), ids(16), st.integers(0, 255), st.just(""))


@given(contexts)
def test_what_is_written_is_read(context: TraceContext) -> None:
    assert parse_context(format_parent(context)) == context


@given(st.text(alphabet="0123456789abcdefABCDEF-xg \n", min_size=50, max_size=60) | st.text())
def test_what_is_read_is_of_the_form(text: str) -> None:
    context = parse_context(text)
    if context is not None:
        assert re.fullmatch(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", text)
        assert text[3:52] == format_parent(context)[3:52]


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID[:-1]}-{SPAN_ID}-01",
        f"00-{TRACE_ID}0-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-1",
        f"00-{TRACE_ID}-{SPAN_ID}",
        f"00-{TRACE_ID}-{SPAN_ID}-01-more",
        f"01-{TRACE_ID}-{SPAN_ID}-01more",
        f"{PARENT}\n",
        f" {PARENT}",
        f"{PARENT},{PARENT}",
        f"00_{TRACE_ID}_{SPAN_ID}_01",
        f"00-{TRACE_ID}-{SPAN_ID}-0١",
    ],
)
def test_another_form_is_refused(text: str) -> None:
    assert parse_context(text, "a=1") is None


def test_the_beginning_of_a_later_version_is_read() -> None:
    for more in ("", "-what-comes"):
        assert parse_context(f"cc-{TRACE_ID}-{SPAN_ID}-01{more}") == TraceContext(TRACE_ID, SPAN_ID, 1)


KEYS = st.from_regex(r"[a-z0-9][a-z0-9_\-*/@]{0,20}", fullmatch=True)
VALUES = st.from_regex(r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,10}[\x21-\x2b\x2d-\x3c\x3e-\x7e]", fullmatch=True)


@given(st.dictionaries(KEYS, VALUES, max_size=10))
def test_a_valid_state_is_passed_on(members: dict[str, str]) -> None:
    spaced = " , ".join(f"{key}={value}" for key, value in members.items())
    expected = ",".join(f"{key}={value}" for key, value in members.items())
    if len(spaced) <= STATE_MAX_CHARS:
        assert parse_state(spaced) == expected
        assert parse_state(expected) == expected


@pytest.mark.parametrize(
    "state",
    ["a", "=1", "A=1", "a=1,a=2", "a=1=2", "a=", "a=é", "a=1\r\nx: y", "a=\x00", " a b=1", f"{'k' * 257}=1"],
)
def test_an_invalid_state_is_dropped_and_the_parent_kept(state: str) -> None:
    assert parse_state(state) == ""
    assert parse_context(PARENT, state) == TraceContext(TRACE_ID, SPAN_ID, 1)


def test_a_state_that_is_too_long_is_dropped() -> None:
    members = [f"k{number}=1" for number in range(STATE_MAX_MEMBERS)]
    assert parse_state(",".join(members)) == ",".join(members)
    assert parse_state(",".join([*members, "more=1"])) == ""
    full = f"a={'1' * 200},b={'2' * 200},c={'3' * (STATE_MAX_CHARS - 408)}"
    assert len(full) == STATE_MAX_CHARS
    assert parse_state(full) == full
    assert parse_state(f"{full}2") == ""


TOKENS = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,8}", fullmatch=True)
OCTETS = st.from_regex(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]{0,8}", fullmatch=True)


@given(st.lists(st.tuples(TOKENS, OCTETS, st.sampled_from(["", ";p", "; p = q ", ";a=1;b"])), min_size=1, max_size=5))
def test_valid_baggage_is_passed_on(members: list[tuple[str, str, str]]) -> None:
    text = ",".join(f"{key} = {value}{more}".strip(" ") for key, value, more in members)
    assert parse_baggage(text) == text
    assert parse_baggage(text.replace(",", " ,\t")) == text


@pytest.mark.parametrize("text", ["a", "a=1,", "a=1\r\nx: y", "a=é", 'a="1"', "a b=1", "a=1;", "=1", "a=\\"])
def test_invalid_baggage_is_dropped(text: str) -> None:
    assert parse_baggage(text) == ""


def test_baggage_that_is_too_long_is_dropped() -> None:
    text = f"a={'1' * (BAGGAGE_MAX_CHARS - 2)}"
    assert parse_baggage(text) == text
    assert parse_baggage(f"{text}1") == ""


@given(st.text())
def test_nothing_that_is_passed_on_can_break_out_of_a_header(text: str) -> None:
    for passed in (parse_state(text), parse_baggage(text)):
        assert re.fullmatch(r"[\x20-\x7e\t]*", passed)
