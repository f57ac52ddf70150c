"""A trial of a server or a client, and how to run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

import msgspec

from ....core.oracle import Role, Rule, Violation
from ...base.errors import Failed
from ..script.schema import WHAT_TO_INSTALL
from ..script.survey import Played, has_spoken
from ..verdict.findings import C, Finding, Outcome

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

STOPPED: Final = "stopped by a signal"
OUT_OF_TIME: Final = "the time was over before a conversation could begin: more --seconds are needed"


class Surveyed(NamedTuple, Generic[C]):
    """The result of the survey before a test.

    Attributes:
        revisions: the revisions that the tested side speaks, the oldest first.
        strategy: makes the strategy of conversations. Needs Hypothesis.
    """

    revisions: Sequence[str]
    strategy: Callable[[], SearchStrategy[C]]


class Trial(NamedTuple, Generic[C]):
    """The test of a server or a client.

    Attributes:
        target: the name of the tested side, for people.
        role: the side that is tested.
        kind: the type of its conversations.
        rules: the rules that it can break.
        survey: surveys the tested side; its argument returns true if the time is over. Raises `Failed` if the side
            cannot be tested.
        play: plays a conversation, and returns the observations.
        judge: returns the violations in it, each rule once.
        chances: returns the rules that it could have broken.
        size: returns the number of steps of a conversation.
        without: returns the conversation without one step; None if that step is needed.
    """

    target: str
    role: Role
    kind: type[C]
    rules: Mapping[str, Rule]
    survey: Callable[[Callable[[], bool]], Surveyed[C]]
    play: Callable[[C], Played]
    judge: Callable[[C, Played], list[Violation]]
    chances: Callable[[C, Played], set[str]]
    size: Callable[[C], int]
    without: Callable[[C, int], C | None]

    def chosen(self, only: Collection[str] = (), ignored: Collection[str] = ()) -> list[str]:
        """Returns the rules to search for."""
        return [rule for rule in self.rules if (not only or rule in only) and rule not in ignored]

    def replayed(self, conversation: C, rule: str) -> Finding[C] | None:
        """Plays a conversation again. Returns the finding if `rule` is broken again."""
        played = self.play(conversation)
        found = [each for each in self.judge(conversation, played) if each.rule == rule]
        return Finding(found[0], conversation, played) if found else None


class Effort(msgspec.Struct, frozen=True):
    """Bounds of a search.

    Attributes:
        examples: conversations that are made up; those for shrinking are not counted.
        seconds: begin no new conversation after so many, the survey included; None: no limit.
        seed: the seed of all random choices.
    """

    examples: int = 200
    seconds: float | None = None
    seed: int = 0


def in_time(play: Callable[[C], Played], is_late: Callable[[], bool], role: Role) -> Callable[[C], Played]:
    """Returns `play` with a time limit: once the time is over, it raises `Failed` and begins no conversation.

    Args:
        role: the side that is tested.
    """
    is_silent = True

    def in_time(conversation: C) -> Played:
        nonlocal is_silent
        if is_late():
            raise Failed(OUT_OF_TIME + (f"; the {role.value} has said nothing so far" if is_silent else ""))
        played = play(conversation)
        is_silent = is_silent and not has_spoken(played, role)
        return played

    return in_time


def run(
    trial: Trial[C], effort: Effort, rules: Collection[str], tell: Callable[[str], None]
) -> tuple[Sequence[str], Outcome[C]]:
    """Searches for broken rules. Returns the revisions that the tested side speaks, and the outcome.

    Args:
        tell: called with lines of progress for people.

    Raises:
        Failed: the side cannot be tested, or not in that time, or Hypothesis is missing.
    """
    until = None if effort.seconds is None else time.monotonic() + effort.seconds

    def is_late() -> bool:
        return until is not None and time.monotonic() >= until

    try:
        from .search import Search  # late: it needs Hypothesis, which may not be installed
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise Failed(WHAT_TO_INSTALL) from error
    revisions, strategy = trial.survey(is_late)
    tell(f"seed {effort.seed}; {trial.target} speaks {', '.join(revisions)}")
    return revisions, Search(trial, effort, rules, tell, is_late).run(strategy())
