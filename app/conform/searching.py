"""Hypothesis makes up conversations until one breaks a rule, makes it small, and goes on with the other rules."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, configuration, settings
from hypothesis.errors import HypothesisWarning

from ...core.oracle import Severity, Transport, Violation
from ..errors import Failed
from .conversations import conversations
from .findings import Finding, Outcome
from .judging import chances, judge
from .steps import Conversation, pruned
from .survey import Play, Played, Survey

SHRINKS_MAX: Final = 40
"""Conversations played to make one small, before what is left is tried without each of its steps."""
CONFIRMATIONS: Final = 2
"""How often the small one is played again: what does not break the rule each time is flaky."""


class _Broken(Exception):
    """A conversation breaks the rule that is looked for."""


class Search:
    """Args:
    examples: conversations that are made up; those that make others small are not counted.
    seconds: no new conversation begins after so many; None: there is no such limit.
    rules: those that are looked for.
    tell: called with a line for people, now and then.
    """

    def __init__(
        self,
        play: Play,
        transport: Transport,
        *,
        examples: int,
        seconds: float | None,
        seed: int,
        rules: Collection[str],
        tell: Callable[[str], None],
    ) -> None:
        self.outcome = Outcome()
        self._play = play
        self._transport = transport
        self._examples = examples
        self._until = None if seconds is None else time.monotonic() + seconds
        self._seed = seed
        self._rules = set(rules)
        self._tell = tell
        self._target: tuple[str, Severity] | None = None
        self._smallest: Finding | None = None
        self._remembered: dict[bytes, bool] = {}
        self._looks = 0
        self._made = 0
        self._shrinks = 0
        self._failed: Failed | None = None

    def run(self, surveys: Sequence[Survey]) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="isthmus-conform-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", HypothesisWarning)  # they are for whoever writes tests
            configuration.set_hypothesis_home_dir(Path(folder))
            while self._made < self._examples and not self._is_late():
                if not self._look(surveys):
                    break
        return self.outcome

    def _look(self, surveys: Sequence[Survey]) -> bool:
        """Find one broken rule. False if there was none."""
        self._target, self._smallest, self._shrinks = None, None, 0
        self._remembered.clear()
        self._looks += 1

        @hypothesis.seed(self._seed + self._looks - 1)
        @settings(
            max_examples=self._examples - self._made,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=hypothesis.Verbosity.quiet,
        )
        @hypothesis.given(conversations(surveys[::-1]))  # the newest revision is the simplest
        def search(conversation: Conversation) -> None:
            if self._breaks(conversation):
                raise _Broken

        try:
            search()
        except (_Broken, hypothesis.errors.Flaky):
            pass
        if self._failed is not None:
            raise self._failed
        found: Finding | None = self._smallest
        if found is not None:
            self._confirm(self._without_needless(found))
        return found is not None

    def _breaks(self, conversation: Conversation) -> bool:
        """Whether it breaks the rule that is looked for, or the first one that is new."""
        if self._failed is not None:
            return False
        if (key := _key(conversation)) in self._remembered:
            return self._remembered[key]
        if self._target is None:
            if self._made >= self._examples or self._is_late():
                return False
            self._made += 1
        else:
            if self._shrinks >= SHRINKS_MAX or self._is_late():
                return False
            self._shrinks += 1
        try:
            violations, played = self._judged(conversation)
        except Failed as error:
            self._failed = error  # for Hypothesis it would be one more fault to look into
            return False
        for violation in violations:
            if violation.rule not in self._rules or not self._is_news(violation):
                continue
            if self._target is None:
                self._tell(f"{violation.rule} is broken; looking for the shortest conversation that shows it …")
                self._target = violation.rule, violation.severity
            if self._target == (violation.rule, violation.severity):
                self._smallest = Finding(violation, conversation, played)
                self._remembered[key] = True
                return True
        self._remembered[key] = False
        return False

    def _is_news(self, violation: Violation) -> bool:
        """A rule that must be kept in one revision may be one that only should be in another, where it was found."""
        known = self._known(violation.rule)
        return known is None or (known.severity, violation.severity) == (Severity.SHOULD, Severity.MUST)

    def _known(self, rule: str) -> Violation | None:
        return next((found.violation for found in self.outcome.findings if found.violation.rule == rule), None)

    def _without_needless(self, finding: Finding) -> Finding:
        """Leave out, from the last one on, each step without which the rule is broken just as well."""
        wanted = (finding.violation.rule, finding.violation.severity)
        for number in reversed(range(len(finding.conversation.steps))):
            shorter = pruned(finding.conversation, number)
            if shorter is None or self._is_late():
                continue
            violations, played = self._judged(shorter)
            for violation in violations:
                if (violation.rule, violation.severity) == wanted:
                    finding = Finding(violation, shorter, played)
        return finding

    def _judged(self, conversation: Conversation) -> tuple[list[Violation], Played]:
        played = self._play(conversation)
        self.outcome.count += 1
        self.outcome.tried |= chances(conversation, played)
        return judge(conversation, played, self._transport), played

    def _confirm(self, finding: Finding) -> None:
        rule = finding.violation.rule
        for _ in range(CONFIRMATIONS):
            violations, _ = self._judged(finding.conversation)
            finding.is_flaky |= rule not in {violation.rule for violation in violations}
        self.outcome.findings = [each for each in self.outcome.findings if each.violation.rule != rule]
        self.outcome.findings.append(finding)
        self.outcome.tried.add(rule)

    def _is_late(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until


def _key(conversation: Conversation) -> bytes:
    return msgspec.json.encode(conversation)
