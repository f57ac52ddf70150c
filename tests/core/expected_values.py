"""Expected JSON values, with placeholders for what a test does not name."""

from __future__ import annotations

from typing import Any, Final

UNSET: Final = object()


class Minted:
    """A value that the engine chose. All places of one `Minted` hold the same value."""

    def __init__(self) -> None:
        self.value: Any = UNSET

    def __repr__(self) -> str:
        return "Minted()" if self.value is UNSET else repr(self.value)

    def matches(self, found: Any) -> bool:
        if self.value is UNSET:
            self.value = found
        return matches(self.value, found)


class Containing:
    """A text that contains `part`, or an object that has at least the members of `part`."""

    def __init__(self, part: str | dict[str, Any]) -> None:
        self.part = part

    def __repr__(self) -> str:
        return f"Containing({self.part!r})"

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
