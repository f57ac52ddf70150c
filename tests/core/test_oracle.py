"""Every rule of the oracle, in every revision that has it: one conversation keeps it, and one breaks it."""

from __future__ import annotations

import pytest
from isthmus.core.oracle import RULES
from oracle_cases import CASES, Case, found

PAIRS = [(case, revision) for case in CASES for revision in RULES[case.rule].clauses]

BESIDES = {"session-revived": ("session-id-lost",)}
"""What cannot be broken alone: whoever finds a session that is over has asked for it."""


def named(value: object) -> str:
    return value.rule if isinstance(value, Case) else str(value)


@pytest.mark.parametrize(("case", "revision"), PAIRS, ids=named)
def test_a_rule_is_kept_and_broken(case: Case, revision: str) -> None:
    """The conversation that keeps it has no violation; the other has this one, and no other."""
    wire, none = found(case, revision, is_broken=False)
    assert none == [], list(wire.seen)
    wire, violations = found(case, revision, is_broken=True)
    rules = {violation.rule for violation in violations}
    assert case.rule in rules
    assert rules <= {case.rule, *BESIDES.get(case.rule, ()), "unanswered"}, violations
    for violation in violations:
        rule = RULES[violation.rule]
        assert violation.who in rule.who
        spoken = violation.clause.partition(" ")[0]
        assert spoken == revision or case.rule == "version-unsupported"  # where the answer's revision holds
        assert violation.severity is rule.severity(spoken)
        assert violation.clause == f"{spoken} {rule.clauses[spoken]}"
        assert violation.observations
        assert all(0 <= number < len(wire.seen) for number in violation.observations)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)
