"""Whatever is seen of a wire, the oracle judges it, and what it says can be looked up.

The input is a line that says the transport and the revision, by its first two bytes, and observations after it, a line
each, as `decode_observation` reads them; a line that is none is a message, of the server if it begins with a space.
Accepted outcomes: `LocalProtocolError` for what cannot have been seen, and then nothing has changed; or violations: of
rules that there are, by somebody who can break them, in the revision that their clause names, shown by what was seen.
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
