"""Anything is observed on a wire: the oracle judges it, and each violation names a rule and a clause that exist.

The first line of the input gives the transport and the revision in its first two bytes; each further line is an
observation as `decode_observation` reads it. Any other line is a message, of the server if it begins with a space.
Accepted outcomes: `LocalProtocolError` for an observation that is impossible, and then nothing has changed; or
violations of existing rules, by a peer that the rule binds, under a clause of the rule, with the observations that show
them.
"""

from __future__ import annotations

from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.oracle import PIPE_CHANNEL, RULES, AnyObservation, Oracle, Role, Said, Transport, decode_observation

REVISIONS = (None, "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "1999-01-01")
OBSERVATIONS_MAX = 200


def test_one_input(data: bytes) -> None:
    head, *lines = data.split(b"\n")[: OBSERVATIONS_MAX + 1]
    kind, revision = head[:2].ljust(2, b"0")
    transport = tuple(Transport)[kind % len(Transport)]
    oracle = Oracle(REVISIONS[revision % len(REVISIONS)], transport)
    for line in lines:
        count = oracle.count
        try:
            judge(oracle, observation(line))
        except LocalProtocolError:
            assert oracle.count == count
    found = oracle.finish()
    check(oracle, found)


def observation(line: bytes) -> AnyObservation:
    try:
        return decode_observation(line)
    except ValueError:
        return Said(PIPE_CHANNEL, Role.SERVER if line.startswith(b" ") else Role.CLIENT, line)


def judge(oracle: Oracle, seen: AnyObservation) -> None:
    count = oracle.count
    check(oracle, oracle.receive(seen))
    assert oracle.count == count + 1


def check(oracle: Oracle, found: list) -> None:  # type: ignore[type-arg]
    for violation in found:
        rule = RULES[violation.rule]
        assert violation.who in rule.who
        assert violation.clause[:10] in rule.clauses
        assert violation.text
        assert all(0 <= number < oracle.count for number in violation.observations)
