"""Regular expressions that are compiled on first use: they match as eager ones do, and each can be compiled."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import isthmus.core.engine
import pytest
from isthmus.core.base.lazy_regex import Pattern

CORE = Path(isthmus.core.engine.__file__).parent


def test_a_pattern_is_compiled_once_and_not_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile = re.compile

    def note(source: str, flags: int) -> re.Pattern[str]:
        compiled.append(source)
        return compile(source, flags)

    monkeypatch.setattr("isthmus.core.base.lazy_regex.re.compile", note)
    pattern = Pattern(r"(b+)", re.IGNORECASE)
    assert compiled == []
    for _ in range(2):
        assert pattern.search("aBb")[1] == "Bb"  # type: ignore[index]
        assert pattern.match("aBb", 1).span() == (1, 3)  # type: ignore[union-attr]
        assert pattern.fullmatch("aBb", 1, 2) is not None and pattern.fullmatch("aBb") is None
        assert [found.start() for found in pattern.finditer("abab")] == [1, 3]
        assert pattern.sub("-", "abBa") == "a-a"
    assert compiled == ["(b+)"]


def test_each_lazy_pattern_of_the_core_can_be_compiled() -> None:
    """A mistake in a pattern would otherwise show only on first use."""
    found = 0
    for path in sorted(CORE.rglob("*.py")):
        name = ".".join(["isthmus.core", *path.relative_to(CORE).with_suffix("").parts]).removesuffix(".__init__")
        for value in vars(importlib.import_module(name)).values():
            for pattern in value.values() if isinstance(value, dict) else [value]:
                if isinstance(pattern, Pattern):
                    assert pattern.search("") is None or pattern.match("") is not None
                    found += 1
    assert found > 40
