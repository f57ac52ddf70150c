"""A test of somebody else's server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ....core.oracle import Role
from ..clients.targets import Target
from ..script.steps import Conversation
from ..script.survey import survey
from ..verdict.servers import SERVER_RULES, chances, judge
from .trial import Surveyed, Trial, in_time

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def server_trial(target: Target, *, is_safe: bool = False, revision: str | None = None) -> Trial[Conversation]:
    """Args:
        is_safe: call only tools that say that they only read.
        revision: speak this one only; None: all that the server speaks.

    Raises:
        Failed: it cannot be reached.
    """
    play, transport = target.reach()

    def learn(is_late: Callable[[], bool]) -> Surveyed[Conversation]:
        found = survey(in_time(play, is_late, Role.SERVER), transport, is_safe=is_safe, only=revision)

        def strategy() -> SearchStrategy[Conversation]:
            from ..generate.conversations import conversations  # what it needs is needed to search only

            return conversations(found[::-1])  # the newest revision is the simplest

        return Surveyed([each.revision for each in found], strategy)

    return Trial(
        target=target.name,
        role=Role.SERVER,
        kind=Conversation,
        rules=SERVER_RULES,
        survey=learn,
        play=play,
        judge=lambda conversation, played: judge(conversation, played, transport),
        chances=lambda conversation, played: chances(conversation, played, transport),
        size=lambda conversation: len(conversation.steps),
        without=_without,
    )


def _without(conversation: Conversation, index: int) -> Conversation | None:
    """But for the steps by which a session begins."""
    steps = conversation.steps
    if steps[index].begins:
        return None
    return msgspec.structs.replace(conversation, steps=steps[:index] + steps[index + 1 :])
