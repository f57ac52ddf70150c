"""What a search or a replay has found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...core.oracle import Transport, Violation
from .judging import SERVER_RULES, judge
from .steps import Conversation
from .survey import Play, Played


class Finding(msgspec.Struct):
    """A rule that was broken, with the smallest conversation that shows it.

    Attributes:
        played: what was seen in it.
        is_flaky: it was not broken each time that this conversation was played.
    """

    violation: Violation
    conversation: Conversation
    played: Played
    is_flaky: bool = False


class Outcome(msgspec.Struct):
    """What a search has found.

    Attributes:
        tried: rules that had their chance to be broken.
        count: conversations that were played.
        last: what was seen in the last of them.
        stopped: why it ended before all was tried; empty if it did not.
    """

    findings: list[Finding] = []
    tried: set[str] = set()
    count: int = 0
    last: Played | None = None
    stopped: str = ""


def replayed(conversation: Conversation, rule: str, play: Play, transport: Transport) -> Finding | None:
    """Play a conversation again: what it shows of `rule`, if it is broken again."""
    played = play(conversation)
    found = [each for each in judge(conversation, played, transport) if each.rule == rule]
    return Finding(found[0], conversation, played) if found else None


def chosen(only: Sequence[str], ignored: Sequence[str]) -> set[str]:
    """The rules that are looked for."""
    return {rule for rule in SERVER_RULES if (not only or rule in only) and rule not in ignored}
