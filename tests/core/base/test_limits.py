"""No set of limits contradicts itself."""

from __future__ import annotations

import msgspec
import pytest
from each_row import each_row
from isthmus.core.base.limits import Limits

DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Limits)}


@each_row("name", DEFAULTS)
@each_row("value", [0, -1])
def test_a_limit_is_positive(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"limit {name} is {value}, expected a positive number"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("lower", "upper"), [("task_ttl_s", "task_ttl_max_s"), ("outbox_low_bytes", "outbox_high_bytes")]
)
def test_a_limit_below_another_may_equal_it_and_no_more(lower: str, upper: str) -> None:
    assert getattr(Limits(**{lower: 7, upper: 7}), lower) == 7
    with pytest.raises(ValueError, match=f"{lower} is above {upper}"):
        Limits(**{lower: 8, upper: 7})


def test_an_unknown_limit_is_refused() -> None:
    """A misspelt limit would not hold."""
    with pytest.raises(TypeError):
        Limits(sessions=1)  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"sessions": 1}, Limits)
