"""Trials of a server."""

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
    """Returns the trial of a server.

    Args:
        is_safe: call only tools whose annotations say `readOnlyHint: true`.
        revision: speak this one only; None: all that the server speaks.

    Raises:
        Failed: the server cannot be reached.
    """
    play, transport = target.reach()

    def learn(is_late: Callable[[], bool]) -> Surveyed[Conversation]:
        found = survey(in_time(play, is_late, Role.SERVER), transport, is_safe=is_safe, only=revision)

        def strategy() -> SearchStrategy[Conversation]:
            from ..generate.conversations import conversations  # late: a replay does not need Hypothesis

            return conversations(found[::-1])  # newest first: Hypothesis shrinks towards the first

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
    """Removes a step; None for the steps of the handshake."""
    steps = conversation.steps
    if steps[index].begins:
        return None
    return msgspec.structs.replace(conversation, steps=steps[:index] + steps[index + 1 :])
