"""The findings of a conversion: faults, what is ignored, and what a person should know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...base.problem import Problem

_SHOWN_MAX: Final = 12


@dataclass
class Findings:
    """The findings of one conversion.

    Attributes:
        problems: the faults, with the keys of the file.
        ignored: keys that are the client's own.
        warnings: lines about what works differently here.
        notes: lines about what was decided, for those who ask.
    """

    problems: list[Problem] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, key: str, expected: str, seen: str, fix: str = "") -> None:
        self.problems.append(Problem(key, expected, seen, fix))

    def refuse_type(self, key: str, expected: str, value: object, fix: str = "") -> None:
        """Refuses a value for its type. The value itself is not shown: it may be a secret."""
        self.refuse(key, expected, f"got {_kind(value)}", fix)

    def all_warnings(self) -> list[str]:
        """Returns the warnings. Ignored keys are one of them, however many there are."""
        if not self.ignored:
            return self.warnings
        shown, more = self.ignored[:_SHOWN_MAX], len(self.ignored) - _SHOWN_MAX
        rest = f" and {more} more" if more > 0 else ""
        return [f"for the client, and ignored here: {', '.join(shown)}{rest}", *self.warnings]


def _kind(value: object) -> str:
    if value is None:
        return "no value (null)"
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "text" if isinstance(value, str) else "a number"
