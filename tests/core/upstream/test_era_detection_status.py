"""Tests of the eras that the status reports for a server."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.revisions import LATEST_LEGACY, LATEST_MODERN, Era
from isthmus.core.upstream.era_detection import ServerEra

LIMITS = Limits()
REVISIONS = {Era.HANDSHAKE: LATEST_LEGACY, Era.STATELESS: LATEST_MODERN}
STEPS = ("proof", "denial", "forget")
HISTORIES = [
    history for length in range(4) for history in itertools.product(itertools.product(Era, STEPS), repeat=length)
]


@pytest.mark.parametrize("forced", [None, *Era], ids=str)
def test_an_era_is_reported_if_its_last_evidence_is_a_proof(forced: Era | None) -> None:
    """Each era counts by itself: the last evidence of it decides, and a proof names the revision."""
    for history in HISTORIES:
        server_era = ServerEra(forced, LIMITS)
        last: dict[Era, str] = {}
        for era, step in history:
            last[era] = step
            if step == "proof":
                server_era.receive_proof(era, REVISIONS[era])
            elif step == "denial":
                server_era.receive_denial(era, 0.0)
            else:
                server_era.forget(era)
        assert server_era.spoken == {era: REVISIONS[era] for era in last if last[era] == "proof"}, history
