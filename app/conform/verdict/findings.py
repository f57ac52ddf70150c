"""The findings of a search or a replay."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from ....core.oracle import Violation
from ..script.survey import Played

C = TypeVar("C")
"""The kind of conversation: `Conversation` in tests of servers, `Behaviour` in tests of clients."""


class Finding(msgspec.Struct, Generic[C]):
    """A rule that was broken, with the smallest conversation that shows it.

    Attributes:
        played: the observations of that conversation.
        is_flaky: the rule was not broken each time that the conversation was played.
    """

    violation: Violation
    conversation: C
    played: Played
    is_flaky: bool = False


class Outcome(msgspec.Struct, Generic[C]):
    """The result of a search.

    Attributes:
        findings: the broken rules, each once.
        tried: the rules that could have been broken.
        count: the number of conversations played.
        last: the observations of the last conversation.
        stopped: why the search ended early; empty if it did not.
    """

    findings: list[Finding[C]] = []
    tried: set[str] = set()
    count: int = 0
    last: Played | None = None
    stopped: str = ""
