"""Timestamps are written in one form, and read in all forms of ISO 8601."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.timestamps import format_time, parse_time

LAST = 253402300799


@pytest.mark.parametrize(
    ("at_unix", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (0.001, "1970-01-01T00:00:00.001Z"),
        (1.9996, "1970-01-01T00:00:02.000Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250Z"),
        (LAST, "9999-12-31T23:59:59.000Z"),
        (LAST - 1, "9999-12-31T23:59:58.000Z"),
        (LAST + 1, "9999-12-31T23:59:59.000Z"),
        (float("inf"), "9999-12-31T23:59:59.000Z"),
        (-0.5, "1970-01-01T00:00:00.000Z"),
        (-1e30, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_a_moment_is_written_to_the_millisecond_within_its_bounds(at_unix: float, text: str) -> None:
    assert format_time(at_unix) == text


@given(at_ms=st.integers(0, LAST * 1000))
def test_a_written_moment_is_read_back(at_ms: int) -> None:
    assert parse_time(format_time(at_ms / 1000)) == pytest.approx(at_ms / 1000, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "at_unix"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01t00:00:01.5z", 1.5),
        ("1970-01-01T00:00:01", 1.0),
        ("1970-01-01T01:00:01+01:00", 1.0),
        ("1969-12-31T23:00:01-01:00", 1.0),
        ("1969-12-31T23:59:59Z", -1.0),
        ("1970-01-02", 86_400.0),
        ("0001-01-01T00:00:00+23:59", -62135683140.0),
        ("yesterday", None),
        ("1970-13-01", None),
        ("", None),
        ("5", None),
    ],
)
def test_a_text_is_read_as_the_moment_it_names(text: str, at_unix: float | None) -> None:
    """A text without an offset is in UTC, whatever the zone of this machine; any other text is no moment."""
    assert parse_time(text) == at_unix
