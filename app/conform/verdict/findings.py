"""What a search or a replay has found."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from ....core.oracle import Violation
from ..script.survey import Played

C = TypeVar("C")
"""What is played again, as plain data: what a client says, or how a server behaves."""


class Finding(msgspec.Struct, Generic[C]):
    """A rule that was broken, with the smallest conversation that shows it.

    Attributes:
        played: what was seen in it.
        is_flaky: it was not broken each time that this conversation was played.
    """

    violation: Violation
    conversation: C
    played: Played
    is_flaky: bool = False


class Outcome(msgspec.Struct, Generic[C]):
    """What a search has found.

    Attributes:
        tried: rules that had their chance to be broken.
        count: conversations that were played.
        last: what was seen in the last of them.
        stopped: why it ended before all was tried; empty if it did not.
    """

    findings: list[Finding[C]] = []
    tried: set[str] = set()
    count: int = 0
    last: Played | None = None
    stopped: str = ""
