"""What is believed of a server's era, and for how long."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.eras import LATEST_LEGACY, LATEST_MODERN, Era
from isthmus.core.limits import Limits
from isthmus.core.verdicts import OTHER, Verdict

LIMITS = Limits()
REVISIONS = {Era.HANDSHAKE: LATEST_LEGACY, Era.STATELESS: LATEST_MODERN}
STEPS = ("proof", "denial", "forget")
HISTORIES = [
    history for length in range(4) for history in itertools.product(itertools.product(Era, STEPS), repeat=length)
]


@pytest.mark.parametrize("forced", [None, *Era], ids=str)
def test_an_era_was_spoken_as_long_as_it_was_proved_last(forced: Era | None) -> None:
    """Each era for itself: what was heard last of it counts, and a proof names the revision."""
    for history in HISTORIES:
        verdict = Verdict(forced, LIMITS)
        last: dict[Era, str] = {}
        for era, step in history:
            last[era] = step
            if step == "proof":
                verdict.receive_proof(era, REVISIONS[era])
            elif step == "denial":
                verdict.receive_denial(era, 0.0)
            else:
                verdict.forget(era)
        assert verdict.spoken == {era: REVISIONS[era] for era in last if last[era] == "proof"}, history


@pytest.mark.parametrize("era", Era, ids=str)
def test_a_no_is_believed_for_a_while_and_a_yes_until_further_notice(era: Era) -> None:
    verdict = Verdict(None, LIMITS)
    verdict.receive_denial(era, 5.0)
    end = 5.0 + LIMITS.verdict_ttl_s
    assert (verdict.speaks(era, end - 1), verdict.speaks(era, end)) == (False, None)
    verdict.receive_proof(era, None)
    assert verdict.speaks(era, 100 * end) is True


@pytest.mark.parametrize("era", Era, ids=str)
def test_what_the_configuration_says_is_not_doubted(era: Era) -> None:
    """A server is spoken to as its configuration has it, whatever it says and whoever its client is."""
    verdict = Verdict(era, LIMITS)
    verdict.receive_denial(era, 0.0)
    assert {verdict.choose(wanted, 1.0) for wanted in Era} == {era}
    assert not verdict.may_turn(era, 1.0) and not verdict.may_turn(OTHER[era], 1.0)
