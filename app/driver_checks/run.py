"""Plays checks, one after the other."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .checks import CHECKS, TIMEOUT_S, Check
from .clients import CheckFailed
from .scene import CheckSkipped
from .target import Start


class Verdict(enum.Enum):
    """The result of a check."""

    KEPT = "kept"
    BROKEN = "broken"
    SKIPPED = "skipped"


class Outcome(NamedTuple):
    """The result of a check, with the reason why it is broken or skipped."""

    check: Check
    verdict: Verdict
    detail: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict.value:8} {self.check.name}" + (f": {self.detail}" if self.detail else "")
        return f"{line}\n{'':9}{self.check.says}" if self.verdict is Verdict.BROKEN else line


def run(start: Start, checks: Iterable[Check] = CHECKS, *, timeout_s: float = TIMEOUT_S) -> Iterator[Outcome]:
    """Plays checks against gateways that `start` starts. Yields each result as it comes."""
    for check in checks:
        try:
            check(start, timeout_s=timeout_s)
        except CheckSkipped as reason:
            yield Outcome(check, Verdict.SKIPPED, str(reason))
        except CheckFailed as problem:
            yield Outcome(check, Verdict.BROKEN, str(problem))
        else:
            yield Outcome(check, Verdict.KEPT)
