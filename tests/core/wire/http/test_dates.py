"""Dates in headers: they are written as the standard library writes them, and all other texts are refused."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from isthmus.core.wire.http.dates import format_date, parse_date

DAY_S = 86_400
LAST_UNIX = 253_402_300_799


def test_every_day_of_a_year_is_as_the_standard_library_has_it() -> None:
    for at_unix in range(1_709_164_799, 1_709_164_799 + 366 * DAY_S, DAY_S - 7):
        text = formatdate(at_unix, usegmt=True)
        assert format_date(at_unix) == format_date(at_unix + 0.9) == text
        assert parse_date(text) == at_unix


def test_a_time_outside_of_the_calendar_is_its_nearest_date() -> None:
    assert format_date(-1.0) == format_date(0.0) == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert format_date(1e12) == format_date(LAST_UNIX) == "Fri, 31 Dec 9999 23:59:59 GMT"
    assert parse_date("Fri, 31 Dec 9999 23:59:59 GMT") == LAST_UNIX


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Thu, 32 Jan 1970 00:00:00 GMT",
        "Thu, 29 Feb 2023 00:00:00 GMT",
        "Thu, 01 Jax 1970 00:00:00 GMT",
        "Thu, 01 Jan 1970 24:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00 UTC",
        "Thu, 01 Jan 1970 00:00:00 GMT ",
        "Thursday, 01-Jan-70 00:00:00 GMT",
    ],
)
def test_a_text_that_is_no_date(text: str) -> None:
    assert parse_date(text) is None
