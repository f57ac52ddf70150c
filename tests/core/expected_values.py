"""Expected JSON values, with placeholders for what a test does not name."""

from __future__ import annotations

import json
from typing import Any, Final

UNSET: Final = object()


class Minted:
    """A value that the engine chose. All places of one `Minted` hold the same value."""

    def __init__(self) -> None:
        self.value: Any = UNSET

    def matches(self, found: Any) -> bool:
        if self.value is UNSET:
            self.value = found
        return matches(self.value, found)


class Containing:
    """A text that contains `part`, or an object that has at least the members of `part`."""

    def __init__(self, part: str | dict[str, Any]) -> None:
        self.part = part

    def matches(self, found: Any) -> bool:
        if isinstance(self.part, str):
            return isinstance(found, str) and self.part in found
        return isinstance(found, dict) and all(
            key in found and matches(value, found[key]) for key, value in self.part.items()
        )


def matches(expected: Any, found: Any) -> bool:
    """True if `found` is the expected value: `...` stands for any, and types count, so 1 is neither 1.0 nor True."""
    if expected is ...:
        return True
    if isinstance(expected, Minted | Containing):
        return expected.matches(found)
    if type(expected) is not type(found):
        return False
    if isinstance(expected, dict):
        return expected.keys() == found.keys() and all(matches(expected[key], found[key]) for key in expected)
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(matches, expected, found))
    return bool(expected == found)


def shown(value: Any) -> str:
    """Returns an expected value for people: JSON, in which … stands for anything."""
    if value is ... or isinstance(value, Minted):
        return "…"
    if isinstance(value, Containing):
        part = shown(value.part)
        return f'"…{part[1:-1]}…"' if isinstance(value.part, str) else f"{{… {part[1:-1]} …}}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {shown(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
