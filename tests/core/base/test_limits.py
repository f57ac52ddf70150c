"""The documented limits are the defaults, and no set of limits contradicts itself."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from isthmus.core.base.limits import Limits

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
UNITS = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "": 1}
DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Limits)}


def documented() -> dict[str, float]:
    """The default of each limit on the page, by name."""
    part = PAGE.read_text(encoding="utf-8").partition("<!-- begin limits -->")[2].partition("<!-- end limits -->")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d,._]+) ?(\w*) \|", part, re.MULTILINE)
    return {name: float(re.sub("[,_]", "", number)) * UNITS[unit] for name, number, unit in rows}


def test_every_default_is_the_documented_one() -> None:
    """Users rely on the page, so another default is a change that has to be documented."""
    assert documented() == DEFAULTS


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("value", [0, -1])
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
