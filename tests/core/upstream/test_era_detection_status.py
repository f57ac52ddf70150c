"""Which eras a server was found to speak, as operators are told."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.revisions import LATEST_LEGACY, LATEST_MODERN, Era
from isthmus.core.upstream.era_detection import Verdict

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
