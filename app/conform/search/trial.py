"""What is tested, whichever end of the wire it is, and what is found in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

import msgspec

from ....core.oracle import Role, Rule, Violation
from ...base.errors import Failed
from ..script.survey import Played, has_spoken
from ..verdict.findings import C, Finding, Outcome

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

STOPPED: Final = "stopped by a signal"
OUT_OF_TIME: Final = "the time was over before a conversation could begin: more --seconds are needed"
WHAT_TO_INSTALL: Final = "isthmus conform needs Hypothesis: pip install 'isthmus[conform]'"


class Surveyed(NamedTuple, Generic[C]):
    """What was learned before the test.

    Attributes:
        revisions: those that are spoken, the oldest first.
        strategy: makes the strategy of conversations. It needs Hypothesis.
    """

    revisions: Sequence[str]
    strategy: Callable[[], SearchStrategy[C]]


class Trial(NamedTuple, Generic[C]):
    """A server or a client that is tested.

    Attributes:
        target: its name, for people.
        role: which end it is.
        kind: the type of its conversations.
        rules: those that it can break.
        survey: learns what it speaks, told how to see that the time is over; raises `Failed` if it cannot be tested.
        play: plays a conversation, and says what was seen.
        judge: what was broken in it, each rule once.
        chances: the rules that could have been.
        size: how many steps a conversation has.
        without: the conversation without one of them; None: it takes that.
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
        """The rules that are looked for."""
        return [rule for rule in self.rules if (not only or rule in only) and rule not in ignored]

    def replayed(self, conversation: C, rule: str) -> Finding[C] | None:
        """Play a conversation again: what it shows of `rule`, if it is broken again."""
        played = self.play(conversation)
        found = [each for each in self.judge(conversation, played) if each.rule == rule]
        return Finding(found[0], conversation, played) if found else None


class Effort(msgspec.Struct, frozen=True):
    """How much is tried.

    Attributes:
        examples: conversations that are made up; those that make others small are not counted.
        seconds: no new conversation begins after so many, what is learned before included; None: there is no such
            limit.
        seed: what all choices follow from.
    """

    examples: int = 200
    seconds: float | None = None
    seed: int = 0


def in_time(play: Callable[[C], Played], is_late: Callable[[], bool], role: Role) -> Callable[[C], Played]:
    """`play`, which raises `Failed` once the time is over, instead of beginning another conversation.

    Args:
        role: which end is tested.
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
    """Look for broken rules. Returns the revisions that are spoken, and what was found.

    Args:
        tell: called with a line for people, now and then.

    Raises:
        Failed: it cannot be tested, or not in that time, or Hypothesis is missing.
    """
    until = None if effort.seconds is None else time.monotonic() + effort.seconds

    def is_late() -> bool:
        return until is not None and time.monotonic() >= until

    try:
        from .search import Search  # what it needs is needed by no other command
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise Failed(WHAT_TO_INSTALL) from error
    revisions, strategy = trial.survey(is_late)
    tell(f"seed {effort.seed}; {trial.target} speaks {', '.join(revisions)}")
    return revisions, Search(trial, effort, rules, tell, is_late).run(strategy())
