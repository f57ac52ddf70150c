"""Makes up conversations with Hypothesis until one breaks a rule, shrinks it, and goes on with the other rules."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, Generic

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, configuration, settings
from hypothesis.errors import HypothesisWarning
from hypothesis.strategies import SearchStrategy

from ....core.oracle import Severity, Violation
from ...base.errors import Failed
from ..script.survey import Played, has_spoken
from ..verdict.findings import C, Finding, Outcome
from .trial import OUT_OF_TIME, STOPPED, Effort, Trial

SHRINKS_MAX: Final = 60
"""Conversations played to shrink one."""
SHRINKING_MAX_S: Final = 120.0
"""Seconds for shrinking one: with a server that does not answer, each conversation takes a whole timeout."""
SILENCES_MAX: Final = 3
"""Conversations in a row in which the tested side sends nothing at all: it hangs, and later ones would too."""
CONFIRMATIONS: Final = 2
"""Times that the shrunk conversation is played again: one that does not break the rule each time is flaky."""


class _Broken(Exception):
    """A conversation breaks the rule that is searched for."""


class Search(Generic[C]):
    """One search for all broken rules of a trial.

    Args:
        rules: the rules to search for.
        tell: called with lines of progress for people.
        is_late: true if the time is over.
    """

    def __init__(
        self,
        trial: Trial[C],
        effort: Effort,
        rules: Collection[str],
        tell: Callable[[str], None],
        is_late: Callable[[], bool],
    ) -> None:
        self.outcome: Outcome[C] = Outcome()
        self._trial = trial
        self._examples = effort.examples
        self._is_late = is_late
        self._seed = effort.seed
        self._rules = set(rules)
        self._tell = tell
        self._target: tuple[str, Severity] | None = None
        self._smallest: Finding[C] | None = None
        self._remembered: dict[bytes, bool] = {}
        self._rounds = 0
        self._made = 0
        self._shrinks = 0
        self._shrink_until = 0.0
        self._silences = 0
        self._failed: Failed | None = None

    def run(self, strategy: SearchStrategy[C]) -> Outcome[C]:
        with _temporary_storage(), warnings.catch_warnings():
            warnings.simplefilter("ignore", HypothesisWarning)  # they are meant for authors of tests
            try:
                while self._made < self._examples and not self._is_late():
                    if not self._find_one(strategy):
                        break
                if not self._made:
                    self.outcome.stopped = OUT_OF_TIME
            except Failed as error:
                self.outcome.stopped = str(error)
                self._keep_smallest()
            except KeyboardInterrupt:
                self.outcome.stopped, self.outcome.last = STOPPED, None
                self._keep_smallest()
        return self.outcome

    def _keep_smallest(self) -> None:
        """Keeps the finding that was being shrunk, as far as that went."""
        found = self._smallest
        if found is not None and self._is_new(found.violation):
            self._keep(found)

    def _find_one(self, strategy: SearchStrategy[C]) -> bool:
        """Searches for one broken rule. False if there was none."""
        self._target, self._smallest, self._shrinks = None, None, 0
        self._remembered.clear()
        self._rounds += 1

        @hypothesis.seed(self._seed + self._rounds - 1)
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
        @hypothesis.given(strategy)
        def search(conversation: C) -> None:
            if self._breaks(conversation):
                raise _Broken

        try:
            search()
        except (_Broken, hypothesis.errors.Flaky):
            pass
        if self._failed is not None:
            raise self._failed
        found: Finding[C] | None = self._smallest
        if found is not None:
            self._confirm(self._trimmed(found))
        return found is not None

    def _breaks(self, conversation: C) -> bool:
        """True if a conversation breaks the rule that is searched for, or, if there is none yet, any new one."""
        if self._failed is not None:
            return False
        if (key := _key(conversation)) in self._remembered:
            return self._remembered[key]
        if self._target is None:
            if self._made >= self._examples or self._is_late():
                return False
            self._made += 1
        else:
            if self._shrinks >= SHRINKS_MAX or time.monotonic() >= self._shrink_until or self._is_late():
                return False
            self._shrinks += 1
        try:
            violations, played = self._judged(conversation)
        except Failed as error:
            self._failed = error  # not raised: Hypothesis would take it for a fault to shrink
            return False
        for violation in violations:
            if violation.rule not in self._rules or not self._is_new(violation):
                continue
            if self._target is None:
                self._tell(f"{violation.rule} is broken; looking for the shortest conversation that shows it …")
                self._target = violation.rule, violation.severity
                self._shrink_until = time.monotonic() + SHRINKING_MAX_S
            if self._target == (violation.rule, violation.severity):
                self._smallest = Finding(violation, conversation, played)
                self._remembered[key] = True
                return True
        self._remembered[key] = False
        return False

    def _is_new(self, violation: Violation) -> bool:
        """True if the rule is not known as broken yet, or only as a SHOULD while this violation is a MUST.

        The severity of a rule differs between revisions.
        """
        known = self._known(violation.rule)
        return known is None or (known.severity, violation.severity) == (Severity.SHOULD, Severity.MUST)

    def _known(self, rule: str) -> Violation | None:
        return next((found.violation for found in self.outcome.findings if found.violation.rule == rule), None)

    def _judged(self, conversation: C) -> tuple[list[Violation], Played]:
        played = self._trial.play(conversation)
        self.outcome.count += 1
        self.outcome.last = played
        self._silences = 0 if has_spoken(played, self._trial.role) else self._silences + 1
        if self._silences >= SILENCES_MAX:
            who = self._trial.role.value
            raise Failed(f"the {who} says nothing any more: {SILENCES_MAX} conversations were without a word of it")
        self.outcome.tried |= self._trial.chances(conversation, played)
        return self._trial.judge(conversation, played), played

    def _trimmed(self, finding: Finding[C]) -> Finding[C]:
        """Removes each step that is not needed to break the rule."""
        for index in range(self._trial.size(finding.conversation) - 1, -1, -1):
            less = self._trial.without(finding.conversation, index)
            if less is None or time.monotonic() >= self._shrink_until or self._is_late():
                continue
            violations, played = self._judged(less)
            for violation in violations:
                if (violation.rule, violation.severity) == (finding.violation.rule, finding.violation.severity):
                    finding = Finding(violation, less, played)
        return finding

    def _confirm(self, finding: Finding[C]) -> None:
        rule = finding.violation.rule
        for _ in range(CONFIRMATIONS):
            if self._is_late():
                break
            violations, _ = self._judged(finding.conversation)
            finding.is_flaky |= rule not in {violation.rule for violation in violations}
        self._keep(finding)

    def _keep(self, finding: Finding[C]) -> None:
        """Keeps a finding, in place of an earlier one for its rule."""
        rule = finding.violation.rule
        self.outcome.findings = [each for each in self.outcome.findings if each.violation.rule != rule] + [finding]
        self.outcome.tried.add(rule)


@contextlib.contextmanager
def _temporary_storage() -> Iterator[None]:
    """Makes Hypothesis use a temporary storage folder until the context is left."""
    found = configuration.storage_directory(intent_to_write=False)
    previous: Path = getattr(found, "home_directory", found)  # type: ignore[arg-type]  # older versions return the folder
    with tempfile.TemporaryDirectory(prefix="isthmus-conform-") as folder:
        configuration.set_hypothesis_home_dir(Path(folder))
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(previous)


def _key(conversation: object) -> bytes:
    return msgspec.json.encode(conversation)
